"""Self-RAG as a graph: what is asked of the model, what comes out, and the knobs (Algorithm 1)."""

import math
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import SelfRAGSettings, create_self_rag
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.reflection import CONTINUE, NO_RETRIEVAL, NO_SUPPORT, RETRIEVAL
from selfcorrect_rag.state import Segment
from tests.nodes.parts import beam
from tests.scripted import (
    FULL,
    IRRELEVANT,
    NONE,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
)
from tests.test_faults import FORMS, ask

A, B, C = document("A"), document("B"), document("C")
QUESTION: Any = {"question": "Who?"}


def from_passage(prompt: str) -> Segment:
    """A is relevant and supports its answer; everything else is neither."""
    title = passage_of(prompt)
    if "<paragraph>" not in prompt:
        return segment("From memory.", USEFUL)
    if title == "A":
        return segment("From A.", RELEVANT, FULL, USEFUL)
    return segment(f"From {title}.", IRRELEVANT, NONE, USEFUL)


def build(*documents: Document, **options: Any) -> tuple[Any, ScriptedReflectionLLM]:
    llm = ScriptedReflectionLLM(write=options.pop("write", from_passage), **options)
    return create_self_rag(llm, lambda query: list(documents)), llm


def test_the_answer_its_score_and_its_citation() -> None:
    graph, _ = build(B, A)
    result = graph.invoke(QUESTION)
    assert result["answer"] == "From A."
    assert result["cited_answer"] == "From A. [1]"
    assert result["score"] == pytest.approx(0.5 + 0.9 + 1.0 + 0.5 * 1.0)
    (citation,) = result["citations"]
    assert (citation["number"], citation["passage"], citation["title"]) == (1, 1, "A")
    assert [c["chosen"] for c in result["candidates"]] == [False, True]
    assert result["candidates"][0]["score"] == pytest.approx(0.5 + 0.1 + 0.0 + 0.5)
    assert result["candidates"][1]["judgements"]["ISREL"]["[Relevant]"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("retrieval", "no_retrieval", "threshold", "retrieves"),
    [
        (0.15, 0.05, 0.2, True),
        (0.01, 0.19, 0.2, False),  # 0.05 of the two
        (0.042, 0.158, 0.2, True),
        (0.038, 0.162, 0.2, False),
        (0.1, 0.1, 0.5, False),  # equal to the threshold
        (0.11, 0.09, None, True),
        (0.09, 0.11, None, False),
    ],
)
def test_without_evidence_continue_leaves_it_to_the_other_two(
    retrieval: float, no_retrieval: float, threshold: float | None, retrieves: bool
) -> None:
    """[Continue to Use Evidence] before any evidence, and after a segment without."""
    likely = {CONTINUE: 0.8, RETRIEVAL: retrieval, NO_RETRIEVAL: no_retrieval}
    context: Any = {"threshold": threshold}
    graph, _ = build(A, decision=likely)
    result = graph.invoke(QUESTION, context=context)
    assert result["retrieval"]["retrieve"] is retrieves
    assert result["retrieval"]["probability"] == pytest.approx(retrieval / 0.2)
    assert bool(result["passages"]) is retrieves

    def write(prompt: str) -> Segment:
        if prompt.endswith("[No Retrieval]") and "One." not in prompt:
            return segment("One.", next=likely)
        return segment("Two.", RELEVANT, FULL, USEFUL)

    graph, llm = build(A, write=write, retrieval=0.0)
    graph.invoke(QUESTION, context=context)
    ending = "</paragraph>" if retrieves else "[No Retrieval]"
    assert [prompt.endswith(ending) for prompt in llm.calls[2]] == [True]


@FORMS
async def test_a_decision_that_cannot_be_read_retrieves_and_is_said(form: str) -> None:
    graph, _ = build(A, decision={RETRIEVAL: 0.1, NO_RETRIEVAL: math.nan})
    result = await ask(graph, form, QUESTION)
    assert (result["retrieval"]["retrieve"], result["retrieval"]["probability"]) == (True, None)
    assert "did not say whether it needs evidence" in result["notes"][0]


@pytest.mark.parametrize(("mode", "first"), [("adaptive", 1), ("always", 1), ("never", 0)])
def test_a_turn_begins_with_one_beam_and_the_decision(mode: str, first: int) -> None:
    llm = ScriptedReflectionLLM(write=from_passage, retrieval=0.1)
    given = {"mode": mode, "instruction": "Be brief.", "threshold": 0.0}
    settings = SelfRAGSettings.of(given)
    update = decide_retrieval(llm, settings).invoke(QUESTION)
    assert update["beams"] == [beam(score=0.0, next=("none", "retrieve")[first])]
    asked = {"probability": pytest.approx(0.1), "threshold": 0.0} if mode == "adaptive" else {}
    decision = {"retrieve": bool(first), "probability": None, "threshold": None, "mode": mode}
    assert update["retrieval"] == decision | asked
    opening = "### Instruction:\nBe brief.## Input:\n\nWho?\n\n### Response:\n"
    assert llm.calls == ([[opening]] if asked else [])


def test_the_caller_may_fix_the_documents() -> None:
    graph, _ = build(C)
    many = [*(document(f"D{i}") for i in range(8)), A]
    result = graph.invoke({**QUESTION, "documents": many}, context={"passages": 2})
    assert result["answer"] == "From A."
    assert len(result["candidates"]) == 9, "what the caller gives is not cut to `passages`"
    assert result["usage"]["retrievals"] == 0


def test_hard_constraints_look_at_the_chosen_token() -> None:
    def write(prompt: str) -> Segment:
        if passage_of(prompt) == "A":
            return segment("Bold.", RELEVANT, {NO_SUPPORT: 0.5, "[Fully supported]": 0.49}, USEFUL)
        return segment("Careful.", IRRELEVANT, FULL)

    graph, _ = build(A, B, write=write)
    assert graph.invoke(QUESTION)["answer"] == "Bold."
    result = graph.invoke(QUESTION, context={"hard_constraints": [NO_SUPPORT]})
    assert result["answer"] == "Careful."
    assert result["candidates"][0]["dropped"] == f"hard constraint {NO_SUPPORT}"
    assert result["constraints_met"]
    graph, _ = build(B, C)  # all break it: the best is given and marked
    result = graph.invoke(QUESTION, context={"hard_constraints": [NO_SUPPORT]})
    assert result["answer"] == "From B."
    assert not result["constraints_met"]
    assert "every candidate was dropped" in result["notes"][0]
    assert result["citations"] == [], "an irrelevant passage is no evidence"


def test_streams_say_what_happens() -> None:
    graph, _ = build(A, B)
    events = [chunk["event"] for chunk in graph.stream(QUESTION, stream_mode="custom")]
    names = "retrieval_decided retrieved candidate_scored candidate_scored segment_chosen answered"
    assert events == names.split()
