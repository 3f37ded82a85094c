"""An answer whose score is not above ``score_above`` is refused, by every graph."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_rag
from selfcorrect_rag.prompts.reading import REFUSAL
from tests.crag_runs import CORRECT, INCORRECT, PagesSearch, WordEvaluator, document
from tests.four_graphs import ALL, PLAIN, create, gossip, write
from tests.providers import Provider, chat, content
from tests.reader.scripted_reader import reader_llm
from tests.scripted import ScriptedLLM
from tests.test_faults import FORMS, ask

HALVES = {"content": content([("By ", 0.25), ("Ann [1].", 1.0)])}
"""Tokens whose probabilities have a geometric mean of one half."""


def sure(prompt: str) -> AIMessage:
    return AIMessage("By Ann [1].", response_metadata={"logprobs": HALVES})


def graph(name: str, **options: Any) -> Any:
    llm = ScriptedLLM(write=write)
    return create(name, llm, Provider(answer=sure), gossip, WordEvaluator(), None, **options)


@FORMS
@pytest.mark.parametrize("name", ALL)
async def test_every_graph_refuses_up_to_the_threshold(name: str, form: str) -> None:
    async def run(**context: Any) -> Any:
        return await ask(graph(name), form, PLAIN, context=context)

    stated = await run()
    score = stated["score"]
    assert (await run(score_above=score - 0.01))["answer"] == stated["answer"] != REFUSAL
    refused = await run(score_above=score)  # which is not above
    assert (refused["answer"], refused["cited_answer"]) == (REFUSAL, REFUSAL)
    assert (refused["citations"], refused["score"]) == ([], score)
    (note,) = set(refused["notes"]) - set(stated["notes"])
    assert note == f"refused: the answer has a score of {score:.4g}, and score_above is {score:.4g}"


def test_the_score_of_a_model_that_does_not_judge() -> None:
    """It is the evaluator's best and the probability of the text, as far as these are known."""

    def crag(llm: Any, texts: list[str], web: Any = None) -> Any:
        found = [document(text) for text in texts]
        made = create_crag(llm, lambda query: found, WordEvaluator(), web)
        return made.invoke(PLAIN)["score"]

    assert crag(chat("Ann [1]."), CORRECT) == 0.9
    assert crag(chat("Ann [1]."), INCORRECT) == -0.9
    assert crag(chat("Ann [1]."), INCORRECT, PagesSearch()) == 0.9
    assert crag(Provider(answer=sure), CORRECT) == pytest.approx(1.4)
    assert crag(chat("Ann."), []) is None
    instruct = create_instruct_rag(Provider(answer=sure), gossip)
    assert instruct.invoke(PLAIN)["score"] == pytest.approx(0.5)


def test_the_score_of_a_model_that_judges_is_its_best_answers() -> None:
    llm, _ = reader_llm({"Ann": 0.8, "Bo": 0.9}, answer_above=0.5)
    pages = [document("Gold: it was Ann."), document("Gold: it was Bo.")]
    crag = create_crag(llm, lambda query: pages, WordEvaluator(), settings={"refine": False})
    self_rag = create_self_rag(llm, lambda query: pages)
    found = [each.invoke(PLAIN) for each in (crag, self_rag)]
    assert [result["answer"] for result in found] == ["Bo", "Bo"]
    # p(y) + ISREL + ISSUP + ISUSE / 2, all from a confidence of 0.9: 0.9 + 0.9 + 0.925 + 0.4
    assert [result["score"] for result in found] == pytest.approx([3.125] * 2, abs=1e-4)
    instruct = create_instruct_rag(llm, lambda query: pages)
    assert instruct.invoke(PLAIN)["score"] == pytest.approx(0.9, abs=1e-4)


def test_an_answer_without_a_score_is_refused_and_a_refusal_stays() -> None:
    instruct = create_instruct_rag(chat("It was Ann."), gossip, settings={"score_above": -9})
    result = instruct.invoke(PLAIN)
    assert (result["answer"], result["score"]) == (REFUSAL, None)
    assert result["rationale"] == "It was Ann."
    assert "refused: the answer has no score, and score_above is -9" in result["notes"]
    result = create_instruct_rag(chat(REFUSAL), gossip, settings={"score_above": 1}).invoke(PLAIN)
    assert not any("refused" in note for note in result["notes"])


@pytest.mark.parametrize("name", ["crag", "instruct_rag"])
def test_no_token_of_a_refused_answer_is_streamed(name: str) -> None:
    def streamed(**context: Any) -> str:
        built = create(name, None, chat("Ann wrote it."), gossip, WordEvaluator(), None)
        asked = {"messages": [HumanMessage("Who wrote it?")]}
        chunks = built.stream(asked, context=context, stream_mode="messages")
        return "".join(message.text for message, _ in chunks if message.type != "human")

    assert "Ann" in streamed()
    assert streamed(score_above=9) == REFUSAL
