"""Self-CRAG: Self-RAG on what CRAG made of the retrieval, with scripted models."""

from typing import Any

import pytest

from selfcorrect_rag import create_self_crag
from selfcorrect_rag.reflection import CONTINUE, RETRIEVAL
from selfcorrect_rag.state import Segment
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesWebSearch, WordEvaluator, document
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, passage_of, segment


def write(prompt: str) -> Segment:
    """Says which passage it read."""
    if "<paragraph>" not in prompt:
        return segment("from memory", USEFUL)
    return segment(f"from {passage_of(prompt)}", RELEVANT, FULL, USEFUL)


def graph(texts: list[str], llm: Any, evaluator: Any = None) -> Any:
    found = [document(text) for text in texts]
    return create_self_crag(llm, lambda _: found, evaluator or WordEvaluator(), PagesWebSearch())


@pytest.mark.parametrize(
    ("texts", "action", "read"),
    [
        (CORRECT, "correct", ["from Gold is he"]),
        (INCORRECT, "incorrect", ["from Web 1"]),
        (AMBIGUOUS, "ambiguous", ["from Vague word", "from Web 1"]),
    ],
)
def test_self_rag_reads_what_the_action_leaves(
    texts: list[str], action: str, read: list[str]
) -> None:
    llm = ScriptedReflectionLLM(write=write)
    result = graph(texts, llm).invoke({"question": "Who?"}, context={"depth": 1})
    assert result["action"] == action
    assert [candidate["text"] for candidate in result["candidates"]] == read
    assert len(result["knowledge"]) == len(read)
    assert result["citations"][0]["text"] == result["knowledge"][0].page_content
    assert len(llm.calls) == 2  # the decision, and all candidates at once


def test_an_answer_that_needs_no_evidence_costs_no_retrieval() -> None:
    llm = ScriptedReflectionLLM(write=write, retrieval=0.01)
    result = graph(CORRECT, llm).invoke({"question": "Hello"})
    assert (result["answer"], result["action"], result["grades"]) == ("from memory", None, [])


def test_evidence_that_is_wanted_later_is_corrected_then() -> None:
    def later(prompt: str) -> Segment:
        if "<paragraph>" in prompt:
            return write(prompt)
        return segment("First.", USEFUL, next={RETRIEVAL: 0.9, CONTINUE: 0.05})

    llm = ScriptedReflectionLLM(write=later, retrieval=0.01)
    result = graph(INCORRECT, llm).invoke({"question": "Who?"})
    assert result["action"] == "incorrect"
    assert result["answer"] == "First. from Web 1"


def test_later_segments_read_the_same_knowledge_and_nothing_is_graded_again() -> None:
    evaluator = WordEvaluator()
    again = segment("Gold.", RELEVANT, FULL, next={RETRIEVAL: 0.9, CONTINUE: 0.05})
    llm = ScriptedReflectionLLM(write=lambda prompt: again)
    built = graph(["Gold is here."], llm, evaluator)
    result = built.invoke({"question": "Who?"}, context={"depth": 3})
    assert [c["depth"] for c in result["candidates"]] == [0, 1, 2]
    assert len(evaluator.calls) == 2


def test_nothing_found_anywhere_is_written_without_evidence() -> None:
    llm = ScriptedReflectionLLM(write=write)
    built = create_self_crag(llm, lambda q: [], WordEvaluator(), lambda q: [])
    result = built.invoke({"question": "Who?"})
    assert (result["answer"], result["citations"]) == ("from memory", [])
