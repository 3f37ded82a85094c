"""Segments and critiques by chat models: what is asked, what it costs, and whole Self-RAG runs."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.models.chat_model import LONGEST_ANSWER
from selfcorrect_rag.models.classification import ABSENT
from selfcorrect_rag.prompts import decision_prompt, prompt_of, segment_prompt
from selfcorrect_rag.prompts.chat import joint_critique_prompt, segment_request
from selfcorrect_rag.prompts.critic import ISREL, ISSUP, ISUSE, RETRIEVE, Instance
from selfcorrect_rag.reflection import Group, critique, retrieval_probability
from selfcorrect_rag.state import Segment
from tests.providers import LOGPROBS, REFUSES, Provider, RateLimited, ToolCaller
from tests.scripted import document
from tests.test_faults import FORMS, ask

QUESTION = "Who wrote Emma?"
NOVEL = document("Emma (novel)", "Emma is a novel by Jane Austen.")
TOWN = document("Emma (town)", "Emma is a town in the hills.")
SEQUEL = document("Emma again", "Some say that Austen wrote a sequel of Emma.")
PASSAGES = [TOWN, NOVEL, SEQUEL]
ASKED: Any = {"question": QUESTION}


def last_case(prompt: str) -> str:
    return prompt.rsplit("\n\n##\n", 1)[1]


def writes(prompt: str) -> bool:
    return prompt.startswith("Answer the question.")


def reader(prompt: str) -> list[Any]:
    """A model with opinions: Austen answers, towns do not."""
    if writes(prompt):
        said = re.search(r"by ([\w ]+)\.|that (\w+) wrote", prompt)
        return [(said[1] or said[2] if said else "Nobody knows.", 0.5), (".", 0.125)]
    case = last_case(prompt)
    if "Need retrieval?" in case:
        return [("[", 1.0), ("Yes", 0.75, {"No": 0.25}), ("]", 1.0)]
    if "Evidence 1:" in case:
        pieces: list[Any] = []
        for i, evidence in enumerate(case.split("Evidence ")[1:], start=1):
            relevant = [("[Relevant", 0.9, {"[Ir": 0.1}), ("]\n", 1.0)]
            irrelevant = [("[Ir", 0.8, {"[Relevant": 0.2}), ("relevant]\n", 1.0)]
            pieces += [(f"{i}: ", 1.0), *(relevant if "Austen" in evidence else irrelevant)]
        return pieces
    if case.endswith("Rating:"):
        return [("[Relevant]", 0.9)]
    full = "novel by Jane Austen" in case
    support = "[Fully supported]" if full else "[Partially supported]"
    utility = [("5", 0.5, {"4": 0.25, "1": 0.25})]
    if "Score" not in "".join(prompt.rsplit("\n\n##\n", 2)[1:]):  # how to answer, and the case
        return utility
    score = [("[", 1.0), (support[1:5], 0.75, {"No": 0.25}), (support[5:], 1.0)]
    return [("Score:", 1.0), (" ", 1.0), *score, ("\nPerceived utility: ", 1.0), *utility]


def hard(answers: Callable[[str], list[Any]]) -> Callable[[str], str]:
    return lambda prompt: "".join(piece[0] for piece in answers(prompt))


def generate(llm: PromptedReflectionLLM, *passages: Document, **options: Any) -> list[Segment]:
    step: Any = "retrieve" if passages else "none"
    asked = [segment_prompt(QUESTION, [], passages, step, i) for i in range(len(passages) or 1)]
    return llm.generate_segments(asked, **options)


def test_a_candidate_with_probabilities() -> None:
    model = Provider(answer=reader, **LOGPROBS)
    (segment,) = generate(PromptedReflectionLLM(model), NOVEL)
    isrel, issup, isuse = segment["reflections"]
    assert (segment["text"], segment["finish_reason"]) == ("Jane Austen.", "end")
    kinds, texts = zip(*((p["kind"], p["text"]) for p in segment["pieces"]), strict=True)
    assert kinds == ("control", "text", "control", "control")
    assert texts == ("[Relevant]", "Jane Austen.", "[Fully supported]", "[Utility:5]")
    assert [r["position"] for r in segment["reflections"]] == [0, 3, 4]
    scores = critique([isrel, issup, isuse])
    assert [*scores.values()] == pytest.approx([1.0, 0.75, 0.5 * 1 + 0.25 * 0.5 - 0.25])
    # ISREL, the answer, the joined critique.
    assert segment["requests"] == len(model.calls) == 3
    assert (segment["prompt_tokens"], segment["tokens"]) == (30, 1 + 2 + 7)
    # p(y|x,d) is the geometric mean over the text's tokens alone: sqrt(1/2 * 1/8) = 1/4.
    assert segment["logprob"] == pytest.approx(segment["tokens"] * math.log(0.25))


def test_retrieval_is_decided_by_table_8() -> None:
    model = Provider(answer=reader, **LOGPROBS)
    llm = PromptedReflectionLLM(model)
    (segment,) = llm.choose([decision_prompt(QUESTION)], Group.RETRIEVE)
    (reflection,) = segment["reflections"]
    assert model.prompts[-1] == RETRIEVE.prompt(Instance(QUESTION))
    assert retrieval_probability(reflection) == pytest.approx(0.75)
    assert reflection["logprobs"]["[Continue to Use Evidence]"] == ABSENT


@pytest.mark.parametrize(
    ("candidates", "run", "texts", "requests"),
    [
        (1, {}, ["", "Jane Austen.", ""], [1, 2, 0]),
        (3, {}, ["", "Jane Austen.", "Austen."], [1, 2, 2]),
        (3, {"prune_below": 0.1}, ["Nobody knows..", "Jane Austen.", "Austen."], [3, 2, 2]),
        (3, {"prune_below": 0.95}, ["", "Jane Austen.", ""], [1, 2, 0]),
        (2, {"critique": False}, ["Nobody knows..", "Jane Austen.", "Austen."], [1, 1, 1]),
    ],
)
def test_passages_are_judged_together_and_irrelevant_ones_are_not_written_from(
    candidates: int, run: Any, texts: list[str], requests: list[int]
) -> None:
    model = Provider(answer=reader, **LOGPROBS)
    segments = generate(PromptedReflectionLLM(model, candidates=candidates), *PASSAGES, **run)
    assert [s["text"] for s in segments] == texts
    assert [s["finish_reason"] for s in segments] == ["end" if t else "pruned" for t in texts]
    assert [s["requests"] for s in segments] == requests
    assert len(model.calls) == sum(requests)


def test_a_critic_judges_and_the_model_writes() -> None:
    model, critic = Provider(answer=hard(reader)), Provider(answer=hard(reader))
    segments = generate(PromptedReflectionLLM(model, critic=critic), NOVEL)
    assert [s["requests"] for s in segments] == [3]
    assert all(map(writes, model.prompts))
    whole = Instance(QUESTION, output="Jane Austen.", segment="Jane Austen.")
    whole = whole._replace(evidence="Emma (novel)\nEmma is a novel by Jane Austen.")
    assert critic.prompts == [ISREL.prompt(whole), joint_critique_prompt([ISSUP, ISUSE], whole)]
    (segment,) = generate(PromptedReflectionLLM(Provider(answer=lambda p: "4")))
    groups = [reflection["group"] for reflection in segment["reflections"]]
    assert groups == [Group.ISUSE], "support is not asked for without evidence"


def test_refused_options_are_left_out_from_then_on() -> None:
    picky = Provider(answer=hard(reader), refuses=frozenset({"max_tokens"}))
    llm = PromptedReflectionLLM(picky)
    (first,), (second,) = generate(llm, NOVEL), generate(llm, NOVEL)
    assert first["text"] == second["text"] == "Jane Austen."
    assert second["requests"] == 3


def test_failed_and_malformed_critiques_are_absent() -> None:
    for said in (RateLimited(), "[Maybe]"):
        model = Provider(answer=lambda p, said=said: "Jane Austen." if writes(p) else said)
        llm = PromptedReflectionLLM(model)
        assert [s["reflections"] for s in generate(llm, NOVEL)] == [[]]
        result = create_self_rag(llm, lambda query: [NOVEL]).invoke(ASKED)
        assert result["answer"] == "Jane Austen."
        assert "evidence was retrieved" in result["notes"][0], "it goes on"
    llm = PromptedReflectionLLM(Provider(answer=lambda prompt: RateLimited()))
    with pytest.raises(EngineFailed, match="gave no answer"):
        llm.choose([decision_prompt("Who?")], "Retrieve")


@FORMS
@pytest.mark.parametrize(
    ("fails_on", "dropped"),
    [("", None), ("sequel", [None, "no text"]), ("by Jane", ["no text", None])],
)
async def test_a_model_fails_if_it_gives_no_answer(form: str, fails_on: str, dropped: Any) -> None:
    def answer(prompt: str) -> Any:
        return RateLimited() if writes(prompt) and fails_on in prompt else reader(prompt)

    graph = create_self_rag(Provider(answer=answer, **LOGPROBS), lambda query: PASSAGES)
    if dropped is None:
        with pytest.raises(EngineFailed, match=r"no answer \(RateLimited: slow down\)"):
            await ask(graph, form, ASKED)
    else:
        candidates = (await ask(graph, form, ASKED))["candidates"]
        assert [c["dropped"] for c in candidates] == ["pruned by ISREL", *dropped]


def test_an_answer_cut_at_a_limit_says_so() -> None:
    cut = AIMessage("Nobody knows.", response_metadata={"finish_reason": "length"})
    llm = PromptedReflectionLLM(Provider(answer=lambda p: cut if writes(p) else "5"))
    (segment,) = generate(llm, NOVEL)
    assert segment["finish_reason"] == "length"
    assert llm.invoke(QUESTION, stop=["knows"]) == "Nobody"
    endless = Provider(answer=lambda p: "[1]" * 50_000 if writes(p) else "5")
    (segment,) = generate(PromptedReflectionLLM(endless), NOVEL)
    assert (len(segment["text"]), segment["finish_reason"]) == (LONGEST_ANSWER, "length")
    assert max(map(len, endless.prompts)) < 2 * LONGEST_ANSWER, "critiques see the cut text"


def test_a_prompt_is_parsed_by_its_parts() -> None:
    pieces = [{"kind": "control", "text": "[Relevant]"}, {"kind": "text", "text": " She did. "}]
    written: Any = {"step": "retrieve", "passage": 0, "pieces": pieces}
    evidence = "Emma (town)\n" + PASSAGES[0].page_content
    given = Instance(QUESTION, preceding_sentences="She did.", evidence=evidence)
    kept = segment_request(segment_prompt(QUESTION, [written], PASSAGES, "continue", 0))
    assert kept == (given, "continue", "Emma (town)")
    without = segment_request(segment_prompt(QUESTION, [written], PASSAGES, "none", None))
    assert without == (given._replace(evidence=""), "none", "")
    text = prompt_of("<paragraph>x</paragraph>")
    assert segment_request(text) == (Instance("<paragraph>x</paragraph>"), "none", "")


@pytest.mark.parametrize(
    ("model", "is_hard"),
    [
        (Provider(answer=reader, **LOGPROBS), False),
        (ToolCaller(answer=hard(reader), **REFUSES), True),
        (Provider(answer=hard(reader)), True),
        (Provider(answer=reader, **LOGPROBS).with_retry(), False),
    ],
)
async def test_self_rag_over_a_plain_chat_model(model: Any, is_hard: bool) -> None:
    graph = create_self_rag(model, lambda query: PASSAGES)
    result = graph.invoke(ASKED)
    assert (result["answer"], result["cited_answer"]) == ("Jane Austen.", "Jane Austen. [1]")
    assert any("hard labels" in note for note in result["notes"]) == is_hard
    _, best, other = result["candidates"]
    assert best["hard"] == (["ISREL", "ISSUP", "ISUSE"] if is_hard else [])
    if is_hard:
        assert (best["score"], other["score"]) == (1 + 1 + 0.5, 1 + 0.5 + 0.5)
    else:
        assert best["score"] == pytest.approx(0.25 + 0.9 + 0.75 + 0.5 * 0.375)
    assert (await graph.ainvoke(ASKED))["candidates"] == result["candidates"]


def essay(prompt: str) -> Any:
    """A model that keeps to no form, so that each critique is asked for twice."""
    return "It depends." if writes(prompt) else "Let me think about that at length."


def test_a_note_says_that_no_judgement_was_readable() -> None:
    notes = create_self_rag(Provider(answer=essay), lambda q: PASSAGES).invoke(ASKED)["notes"]
    assert "the model has no reflection tokens: it was prompted for its judgements" in notes
    assert "3 of 3 candidates have no readable judgement" in notes
    once = {"mode": "always", "max_model_calls": 1}  # which leaves none for a critique
    graph = create_self_rag(Provider(answer=essay), lambda q: PASSAGES)
    assert not any("judgement" in note for note in graph.invoke(ASKED, context=once)["notes"])


@pytest.mark.parametrize("most", [1, 2, 3, 5, 13])
@pytest.mark.parametrize(("answer", "options"), [(reader, ()), (essay, ()), (essay, ("A", "B"))])
async def test_an_answer_within_any_number_of_calls(answer: Any, options: Any, most: int) -> None:
    model = Provider(answer=answer, **(LOGPROBS if answer is reader else REFUSES))
    graph = create_self_rag(PromptedReflectionLLM(model), lambda query: PASSAGES)
    # This detects what the model can do; a text that names no option is asked which one.
    graph.invoke(ASKED, context={"options": options})
    assert len(model.calls) > 8 or answer is reader
    for form in ("sync", "async"):
        model.calls.clear()
        context = {"max_model_calls": most, "options": options}
        result = await ask(graph, form, ASKED, context=context)
        assert result["answer"] or options
        assert len(model.calls) == result["usage"]["model_calls"] <= most
        assert (result["stopped"] is None) == (most >= 13) or options
