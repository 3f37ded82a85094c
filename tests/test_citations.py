"""A citation says: this segment was written from that text, and the text was judged relevant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.nodes.write_answer import cited_passages, cited_text
from selfcorrect_rag.prompts.reading import REFUSAL
from tests.nodes.parts import candidate
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, document, segment

PASSAGES = [document("A", "The door is red. It is old."), document("B"), document("C")]


def citations_of(segments: Any) -> Any:
    return cited_passages(segments, {"passages": PASSAGES, "question": "Who?"}, "passages")


def cite(*segments: Any) -> str:
    return cited_text(segments, citations_of(segments))


@pytest.mark.parametrize(
    ("fields", "cited"),
    [
        ({"ISREL": 0.5}, True),
        ({"ISREL": 0.49}, False),
        ({"ISREL": None}, False),
        ({"passage": None, "step": "none"}, False),
        ({"step": "continue", "ISREL": None}, False),
    ],
    ids=str,
)
def test_a_segment_cites_its_passage_if_it_is_relevant(fields: Any, cited: bool) -> None:
    assert cite(candidate("Red.", **fields)) == ("Red. [1]" if cited else "Red.")


@pytest.mark.parametrize("text", ["  ", REFUSAL])
def test_refusals_and_silence_cite_nothing(text: str) -> None:
    assert citations_of([candidate(text)]) == []


def test_numbers_follow_the_order_of_appearance_and_one_passage_has_one() -> None:
    path = [
        candidate("None.", passage=None, step="none"),
        candidate("One.", passage=2, depth=1),
        candidate("Two.", passage=0, depth=2),
        candidate("Three.", passage=2, depth=3),
    ]
    found = [(c["number"], c["passage"], c["segments"]) for c in citations_of(path)]
    assert cite(*path) == "None. One. [1] Two. [2] Three. [1]"
    assert found == [(1, 2, [1, 3]), (2, 0, [2])]


@pytest.mark.parametrize(
    ("own", "marks"),
    [
        ({"step": "continue", "ISREL": None}, "One. [1] Two. [1]"),
        ({"step": "continue", "ISREL": 0.1}, "One. [1] Two."),
        ({"passage": 1, "ISREL": None}, "One. [1] Two."),
    ],
)
def test_only_a_continued_segment_without_a_judgement_inherits_one(own: Any, marks: str) -> None:
    assert cite(candidate("One."), candidate("Two.", depth=1, **own)) == marks


def test_what_the_evaluator_called_irrelevant_is_not_cited() -> None:
    state = {"knowledge": PASSAGES, "judged": [None, "irrelevant", "relevant"], "question": "Who?"}
    path = [candidate("One.", passage=1), candidate("Two.", passage=2, depth=1)]
    assert [c["passage"] for c in cited_passages(path, state, "knowledge")] == [2]


def test_marks_of_a_page_are_not_taken_for_ours() -> None:
    assert cite(candidate("See [3].")) == "See [3?]. [1]"


def test_a_quote_is_the_sentence_that_says_it_word_for_word() -> None:
    for said, quote in (("door is red", "The door is red."), ("It was painted.", "")):
        (citation,) = citations_of([candidate(said)])
        assert citation["quote"] == quote
    ages = document("A", "Ann is 5. Bob is 5.", page=3, heading="a\nb")
    state = {"passages": [ages], "question": "How old is Bob?"}
    (citation,) = cited_passages([candidate("5")], state, "passages")
    assert (citation["quote"], citation["page"], citation["heading"]) == ("Bob is 5.", 3, "a b")


def test_title_and_source_are_safe_to_show() -> None:
    found = [document("a\nb", source="javascript:alert(1)")]
    llm = ScriptedReflectionLLM(write=lambda _: segment("Red.", RELEVANT, FULL))
    result = create_self_rag(llm, lambda _: found).invoke({"question": "Who?"})
    (citation,) = result["citations"]
    assert (citation["title"], citation["source"]) == ("a b", "")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from((0.1, 0.9, None))), max_size=6))
def test_every_mark_has_a_citation_and_every_citation_a_mark(path: Any) -> None:
    segments = [
        candidate(f"Text {i}.", depth=i, passage=passage, ISREL=isrel)
        for i, (passage, isrel) in enumerate(path)
    ]
    citations = citations_of(segments)
    text = cited_text(segments, citations)
    assert [c["number"] for c in citations] == list(range(1, len(citations) + 1))
    assert text.count("[") == sum(len(c["segments"]) for c in citations)
    assert all(f"[{c['number']}]" in text for c in citations)
