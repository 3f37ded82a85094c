"""Citations made from segments, without a graph."""

from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.nodes.citations import (
    citation,
    citations_of,
    cited_passages,
    cited_text,
    settled,
)
from tests.nodes.one_node import beam, candidate

PASSAGES = [
    Document(f"Text {i}.", metadata={"title": f"T{i}", "source": f"https://{i}.org/a"})
    for i in range(3)
]


QUESTION = "Which one?"


def cited(number: int, passage: int, *segments: int, quote: str = "") -> dict[str, Any]:
    return {
        "number": number,
        "passage": passage,
        "title": f"T{passage}",
        "source": f"https://{passage}.org/a",
        "text": f"Text {passage}.",
        "quote": quote,
        "segments": list(segments),
    }


def test_a_citation_is_a_copy_of_what_a_reader_needs() -> None:
    segments = (1, 2)
    assert citation(3, 1, PASSAGES[1], segments, ["No", "1"], QUESTION) == cited(
        3, 1, 1, 2, quote="Text 1."
    )


def test_citations_are_numbered_as_they_appear_and_hold_all_their_segments() -> None:
    path = [
        candidate("The documents do not say.", depth=0, passage=0),
        candidate("From 2.", depth=1, passage=2),
        candidate("From memory.", depth=2, passage=None, step="none"),
        candidate("From 0, doubtful.", depth=3, passage=0, ISREL=0.25),
        candidate("From 1, excluded.", depth=4, passage=1),
        candidate("From 0.", depth=5, passage=0),
        candidate("From 2 again.", depth=6, passage=2),
    ]
    found = citations_of(path, PASSAGES, QUESTION, {1})
    assert found == [cited(1, 2, 1, 6), cited(2, 0, 5)]
    assert cited_text(path, found) == (
        "The documents do not say. From 2. [1] From memory. From 0, doubtful. From 1, excluded. "
        "From 0. [2] From 2 again. [1]"
    )


@pytest.mark.parametrize(
    ("isrel", "is_cited"), [(0.5, True), (0.499, False), (1.0, True), (0.0, False), (None, False)]
)
def test_a_passage_is_evidence_from_an_isrel_of_a_half(isrel: Any, is_cited: bool) -> None:
    assert bool(citations_of([candidate("Said.", ISREL=isrel)], PASSAGES, QUESTION)) is is_cited


@pytest.mark.parametrize(
    ("steps", "depths"),
    [
        ([("retrieve", 0.9), ("continue", None), ("continue", None)], [0, 1, 2]),
        ([("retrieve", 0.9), ("continue", 0.1), ("continue", None)], [0]),
        ([("retrieve", 0.1), ("continue", 0.9), ("continue", None)], [1, 2]),
        ([("retrieve", 0.9), ("retrieve", None), ("continue", None)], [0]),
        ([("continue", None), ("continue", 0.9)], [1]),
    ],
)
def test_a_segment_that_continues_has_the_isrel_of_its_passage(
    steps: list[tuple[Any, Any]], depths: list[int]
) -> None:
    path = [
        candidate("Said.", depth=depth, step=step, ISREL=isrel)
        for depth, (step, isrel) in enumerate(steps)
    ]
    assert citations_of(path, PASSAGES, QUESTION) == [cited(1, 0, *depths)]


def test_the_first_segment_that_stands_in_the_passage_is_quoted() -> None:
    """Of several sentences with it, the one that has most of the question's words."""
    text = "Emma is by Austen.\n\nWho wrote\nEmma? It was Jane Austen (1815)."
    passages = [Document(text, metadata={"title": "T0", "source": "https://0.org/a"})]
    path = [
        candidate("In other words.", depth=0, passage=0),
        candidate("Austen.", depth=1, passage=0),
        candidate("1815", depth=2, passage=0),
    ]
    found = citations_of(path, passages, "Was it Jane?")
    assert [c["quote"] for c in found] == ["It was Jane Austen (1815)."]
    assert citations_of(path, passages, "Who is Emma by?")[0]["quote"] == "Emma is by Austen."
    assert citations_of(path[:1], passages, "Who?")[0]["quote"] == ""


def test_two_citations_of_one_segment_stand_side_by_side() -> None:
    citations: Any = [cited(1, 0, 0), cited(2, 1, 1), cited(3, 2, 0)]
    said = [candidate("One."), candidate("Two [9].", depth=1), candidate("Three.", depth=2)]
    assert cited_text(said, citations) == "One. [1] [3] Two [9?]. [2] Three."


@pytest.mark.parametrize(("source", "passages"), [("knowledge", [1]), ("passages", [0, 1])])
def test_only_knowledge_has_been_judged(source: Any, passages: list[int]) -> None:
    state = {source: PASSAGES, "judged": ["irrelevant", "relevant", None]}
    path = [candidate("Zero.", passage=0), candidate("One.", depth=1, passage=1)]
    assert [c["passage"] for c in cited_passages(path, state, source)] == passages


def test_what_nothing_has_judged_is_cited_where_the_model_calls_it_relevant() -> None:
    state = {"knowledge": PASSAGES, "judged": [None, None, None]}
    assert cited_passages([candidate("Two.", passage=2)], state, "knowledge") == [cited(1, 2, 0)]


def test_settled_is_what_all_beams_begin_with() -> None:
    first, second = candidate("First."), candidate("Second.", depth=1)
    others = [
        candidate("Other.", depth=1, passage=1),
        candidate("Other.", depth=1, beam=1),
        candidate("Other.", depth=2),
    ]
    assert settled([beam(first, second)]) == [first, second]
    assert settled([beam(first, second), beam(first, second, others[2])]) == [first, second]
    assert settled([beam(first, second, others[2]), beam(first)]) == [first]
    for other in others:
        assert settled([beam(first, second), beam(first, second), beam(first, other)]) == [first]
    assert settled([beam(first), beam(others[0]), beam(first)]) == []
