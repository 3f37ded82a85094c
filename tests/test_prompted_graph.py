"""Self-RAG over chat models: the whole graph, malformed critiques and errors."""

from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag import SelfRAGSettings, create_self_crag, create_self_rag
from selfcorrect_rag.commands.show import console, show_candidates
from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import PromptedReflectionLLM, RetrievalEvaluator
from selfcorrect_rag.prompts.critic import RETRIEVE_MORE
from selfcorrect_rag.search import RetrieverWebSearch
from tests.prompted_runs import NOVEL, PASSAGES, QUESTION, generate, hard, is_writing, reader
from tests.providers import LOGPROBS, REFUSES, VLLM, Provider, RateLimited, Refused, ToolCaller

# Malformed critiques and errors


@pytest.mark.parametrize("answer", ["", "[Maybe]", "I cannot say. " * 50, "Score: \nRating:"])
def test_malformed_critiques_are_absent_and_no_praise(answer: str) -> None:
    def model(prompt: str) -> str:
        return "Jane Austen." if is_writing(prompt) else answer

    llm = PromptedReflectionLLM(Provider(answer=model))
    result = create_self_rag(llm, lambda query: PASSAGES).invoke({"question": QUESTION})
    assert result["answer"] == "Jane Austen."
    assert result["retrieval"]["retrieve"]
    assert result["retrieval"]["probability"] is None
    assert any("did not say whether it needs evidence" in note for note in result["notes"])
    written = [c for c in result["candidates"] if c["text"]]
    assert len(written) == 2
    for candidate in written:
        assert candidate["critique"] == {"ISREL": None, "ISSUP": None, "ISUSE": None}
        assert candidate["score"] == 0.0
    assert llm.counts.retried == llm.counts.classifications == 4
    assert llm.counts.absent == 1 + 3 + 2 * 2


def test_errors_of_critiques_are_absent_critiques() -> None:
    def model(prompt: str) -> Any:
        return "Jane Austen." if is_writing(prompt) else RateLimited()

    llm = PromptedReflectionLLM(Provider(answer=model))
    (segment,) = generate(llm, NOVEL)
    assert (segment["text"], segment["reflections"]) == ("Jane Austen.", [])
    assert llm.counts.failed == 2


async def test_no_answer_at_all_is_a_clear_error() -> None:
    def model(prompt: str) -> Any:
        return RateLimited() if is_writing(prompt) else reader(prompt)

    graph = create_self_rag(Provider(answer=model, **LOGPROBS), lambda query: [NOVEL])
    said = r"the model gave no answer \(RateLimited: slow down\)"
    with pytest.raises(EngineFailed, match=said):
        graph.invoke({"question": QUESTION})
    with pytest.raises(EngineFailed, match=said):
        await graph.ainvoke({"question": QUESTION})


def test_one_answer_is_enough() -> None:
    def model(prompt: str) -> Any:
        return RateLimited() if is_writing(prompt) and "sequel" in prompt else reader(prompt)

    result = create_self_rag(Provider(answer=model, **LOGPROBS), lambda query: PASSAGES).invoke(
        {"question": QUESTION}
    )
    assert result["answer"] == "Jane Austen."
    assert [c["dropped"] for c in result["candidates"]] == ["pruned by ISREL", None, "no text"]


def test_options_that_are_refused_are_left_out_from_then_on() -> None:
    class Picky(Provider):
        def _message(self, messages: Any, options: dict[str, Any]) -> Any:
            message = super()._message(messages, options)
            if "max_tokens" in options:
                raise Refused("max_tokens is not supported")
            return message

    model = Picky(answer=hard(reader))
    llm = PromptedReflectionLLM(model)
    (first,) = generate(llm, NOVEL)
    (second,) = generate(llm, NOVEL)
    assert first["text"] == second["text"] == "Jane Austen."
    assert second["requests"] == 3


def test_an_answer_cut_at_its_limit_says_so() -> None:
    class Cut(Provider):
        def _message(self, messages: Any, options: dict[str, Any]) -> Any:
            message = super()._message(messages, options)
            assert options.get("max_tokens") != 100
            message.response_metadata["finish_reason"] = "length"
            return message

    llm = PromptedReflectionLLM(Cut(answer=reader, **VLLM), thinking_tokens=500)
    result = create_self_rag(llm, lambda query: [NOVEL]).invoke({"question": QUESTION})
    assert "the last segment was cut at its limit of 100 tokens" in result["notes"]
    assert llm.invoke(QUESTION, stop=["knows"]) == "Nobody"


# The graph


@pytest.mark.parametrize(
    ("model", "is_hard"),
    [
        (Provider(answer=reader, **LOGPROBS), False),
        (Provider(answer=reader, **VLLM), False),
        (ToolCaller(answer=hard(reader), **REFUSES), True),
        (Provider(answer=hard(reader)), True),
        (Provider(answer=reader, **LOGPROBS).with_retry(), False),
    ],
)
async def test_the_whole_graph_over_a_plain_chat_model(
    model: Any, is_hard: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = create_self_rag(model, lambda query: PASSAGES)
    given = {"question": QUESTION}
    result = graph.invoke(given)
    assert result["answer"] == "Jane Austen."
    assert result["cited_answer"] == "Jane Austen. [1]"
    assert [c["title"] for c in result["citations"]] == ["Emma (novel)"]
    prompted = "the model has no reflection tokens: prompts asked for what they say"
    labels = "its provider gave no probabilities: critiques are hard labels"
    assert result["notes"] == [prompted, labels] if is_hard else [prompted]
    pruned, best, other = result["candidates"]
    assert pruned["dropped"] == "pruned by ISREL"
    assert best["chosen"]
    assert best["hard"] == (["ISREL", "ISSUP", "ISUSE"] if is_hard else [])
    assert (best["sequence_probability"] is None) == is_hard
    if is_hard:
        assert best["score"] == 1 + 1 + 0.5
        assert other["score"] == 1 + 0.5 + 0.5
    else:
        assert best["critique"]["ISREL"] == pytest.approx(0.9)
        assert best["score"] == pytest.approx(0.25 + 0.9 + 0.75 + 0.5 * 0.375)
        assert result["retrieval"]["probability"] == pytest.approx(0.75)
    # The decision, ISREL of all, two answers, their critiques: far below a call a passage.
    assert graph.invoke(given)["candidates"] == result["candidates"]
    again = await graph.ainvoke(given)
    assert again["candidates"] == result["candidates"]
    assert again["answer"] == result["answer"]
    show_candidates(console(), result["candidates"], "P")
    shown = capsys.readouterr().out
    assert ("1.00 h" in shown) == is_hard


def test_thresholds_and_weights_work_unchanged() -> None:
    model = Provider(answer=reader, **VLLM)
    graph = create_self_rag(model, lambda query: PASSAGES, settings=SelfRAGSettings(threshold=0.8))
    result = graph.invoke({"question": QUESTION})
    assert not result["retrieval"]["retrieve"]
    assert (result["answer"], result["citations"]) == ("Nobody knows..", [])
    (candidate,) = result["candidates"]
    assert (candidate["critique"]["ISREL"], candidate["critique"]["ISSUP"]) == (None, None)
    assert candidate["critique"]["ISUSE"] == pytest.approx(0.375)
    strict = {"hard_constraints": ("[Fully supported]",), "mode": "always"}
    result = graph.invoke({"question": QUESTION}, context=strict)
    assert result["answer"] == "Austen."


def test_critiques_and_candidates_stay_out_of_token_streams() -> None:
    graph = create_self_rag(Provider(answer=reader, **VLLM), lambda query: PASSAGES)
    streamed = graph.stream({"question": QUESTION}, stream_mode="messages")
    assert [chunk.text for chunk, _ in streamed] == ["Jane Austen. [1]", ""]


class Approving(RetrievalEvaluator):
    def score(self, question: str, passages: Any) -> list[float]:
        return [1.0] * len(passages)


def test_self_crag_takes_a_chat_model_too() -> None:
    web = RetrieverWebSearch(RunnableLambda(lambda query: [NOVEL]), "a corpus")
    graph = create_self_crag(
        Provider(answer=reader, **VLLM), lambda query: [NOVEL], Approving(), web
    )
    result = graph.invoke({"question": QUESTION})
    assert result["answer"] == "Jane Austen."
    assert "prompts asked for what they say" in result["notes"][-1]


def test_what_is_no_model_is_refused() -> None:
    for wrong in (RunnableLambda(str), 7, None):
        with pytest.raises(TypeError, match="give a ReflectionLLM"):
            create_self_rag(wrong, lambda query: [])  # type: ignore[arg-type]
    create_self_rag(FakeListLLM(responses=["x"]), lambda query: [])


def test_plain_text_costs_one_call() -> None:
    model = Provider(answer=reader, **VLLM)
    assert PromptedReflectionLLM(model).invoke(QUESTION) == "Nobody knows.."
    assert len(model.calls) == 1
    assert RETRIEVE_MORE.label_heading == "Rating:"
