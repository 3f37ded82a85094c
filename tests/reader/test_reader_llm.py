"""The reader as a ReflectionLLM: when it retrieves, and what its refusals say."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.documents import Document
from nano_training.reader.examples import Encoder

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.prompts.refusals import REFUSAL, is_refusal
from selfcorrect_rag.prompts.self_rag import segment_prompt
from selfcorrect_rag.reader import Reader
from selfcorrect_rag.reader.reader_llm import NO_DOCUMENTS
from tests.reader.scripted_reader import reader_llm
from tests.scripted import timeless

QUESTION = "Who runs the harbour?"


def asked(
    question: str, findings: Mapping[str, float], *passages: str, **fields: Any
) -> dict[str, Any]:
    """The result of Self-RAG, whose sync and async form must agree."""
    found = [Document(text, metadata={"title": f"P{i}"}) for i, text in enumerate(passages)]
    graph = create_self_rag(reader_llm(findings, **fields)[0], lambda query: found)
    result = graph.invoke({"question": question})
    assert timeless(asyncio.run(graph.ainvoke({"question": question}))) == timeless(result)
    return result


def test_it_retrieves_for_what_needs_evidence() -> None:
    result = asked(QUESTION, {"Ada Berg": 0.9}, "Ada Berg does.")
    assert result["retrieval"]["probability"] == pytest.approx(0.9)
    assert result["cited_answer"] == "Ada Berg [1]"
    thanks = asked("Thank you.", {"Ada Berg": 0.9}, "Ada Berg does.")
    assert thanks["retrieval"]["probability"] == pytest.approx(0.1)
    assert thanks["answer"] == NO_DOCUMENTS
    assert not thanks["passages"]


def test_answers_are_stated_above_a_confidence() -> None:
    half = {"Ada Berg": 0.5}
    assert asked(QUESTION, half, "Ada Berg does.", answer_above=0.49)["answer"] == "Ada Berg"
    for findings, above in ((half, 0.5), ({"Ada Berg": 1.0}, 1.0)):
        result = asked(QUESTION, findings, "Ada Berg does.", answer_above=above)
        assert result["cited_answer"] == REFUSAL
        assert not result["citations"]


def test_a_refusal_names_the_best_guess_where_asked() -> None:
    findings, passages = {"Tom": 0.1, "Ada Berg": 0.3}, ("Tom does.", "Ada Berg does.")
    assert asked(QUESTION, findings, *passages)["answer"] == REFUSAL
    result = asked(QUESTION, findings, *passages, show_guess=True)
    guess = "(best guess, with a probability of 0.30: Ada Berg)"
    assert result["cited_answer"] == f"The documents do not say {guess}."
    assert not result["citations"]


def test_a_guess_is_no_answer() -> None:
    findings = {"Tom": 0.1, "Ada Berg": 0.9}
    result = asked(QUESTION, findings, "Tom does.", "Ada Berg does.", show_guess=True)
    assert result["cited_answer"] == "Ada Berg [1]"
    assert "0.10: Tom" in result["candidates"][0]["text"]


@pytest.mark.parametrize("text", ["Tom. Ada Berg runs it", "nobody; but Ada Berg does"])
def test_a_guess_that_reads_as_an_answer_is_left_out(text: str) -> None:
    assert not is_refusal(f"The documents do not say (best guess: {text}).")
    assert asked(QUESTION, {text: 0.3}, text, show_guess=True)["cited_answer"] == REFUSAL


def test_a_guess_is_at_its_own_question() -> None:
    llm, _ = reader_llm({"Tom": 0.1, "Ada Berg": 0.3}, show_guess=True)
    prompts = [
        segment_prompt(question, [], [Document(text)], "retrieve", 0)
        for question, text in ((QUESTION, "Tom does."), ("Who was it?", "Ada Berg was."))
    ]
    first, second = llm.generate_segments(prompts)
    assert "Tom" in first["text"]
    assert "Ada Berg" in second["text"]


def test_the_shipped_reader_judges_questions_alone() -> None:
    reader = Reader.load()
    questions = ["Who wrote Emma?", "Thank you very much!", "", "Which port? " * 200]
    needs = [need.probability for need in reader.needs_evidence(questions)]
    again = [need.probability for need in asyncio.run(reader.aneeds_evidence(questions))]
    assert all(math.isfinite(need) and 0 < need < 1 for need in needs)
    assert needs == pytest.approx(again, abs=1e-4)
    assert needs[0] == pytest.approx(reader.needs_evidence(questions[:1])[0].probability, abs=1e-4)
    assert reader.needs_evidence([]) == []


def test_a_question_alone_is_read_as_in_training() -> None:
    trained, row = Encoder().question(QUESTION, True), Reader.load()._alone(QUESTION)
    assert (row.ids, row.types) == (trained.ids, trained.types)
