"""Answers that disagree are listed with their sources, and others are not."""

import asyncio
from datetime import date
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_self_crag, create_self_rag
from selfcorrect_rag.agents.conflicts import describe_conflict, find_conflicts, say_the_same
from selfcorrect_rag.errors import BadArgument
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import reader_llm

ASKED: Any = {"question": "Which port is it?"}
PAGES = [
    Document("Gold: it is 8443.", metadata={"title": "Old", "date": "2024-03-01"}),
    Document("Gold: it is 9000 now.", metadata={"title": "New", "date": "2026-01-05T10:00:00Z"}),
    Document("Gold: port 8443, it says.", metadata={"title": "Older", "date": 2023}),
]
SURE = {"8443": 0.9, "9000": 0.8, "port 8443": 0.7}


def result(pages: list[Document] = PAGES, sure: Any = SURE, **settings: Any) -> Any:
    llm, _ = reader_llm(sure, answer_above=0.3)
    return create_self_rag(llm, lambda query: pages, settings=settings).invoke(ASKED)


def test_a_conflict_is_told_with_its_sources() -> None:
    claims = find_conflicts(result())
    assert [claim["answer"] for claim in claims] == ["8443", "9000"]
    titles = [[cited["title"] for cited in claim["citations"]] for claim in claims]
    assert titles == [["Old", "Older"], ["New"]]
    assert [cited["number"] for claim in claims for cited in claim["citations"]] == [1, 2, 3]
    assert claims[1]["citations"][0]["quote"] == "Gold: it is 9000 now."
    assert claims[0]["support"] == pytest.approx(0.925, abs=1e-4)
    assert claims[0]["newest"] is None
    told = describe_conflict(claims)
    assert told == "the documents disagree: “8443” (Old, Older), “9000” (New)"


def test_the_newest_comes_first_if_asked() -> None:
    undated = Document("Gold: it is 7.", metadata={"source": "b.md"})
    claims = find_conflicts(result([*PAGES, undated], {**SURE, "7": 0.99}), newest_by="date")
    assert [claim["answer"] for claim in claims] == ["9000", "8443", "7"]
    assert [claim["newest"] for claim in claims] == [date(2026, 1, 5), date(2024, 3, 1), None]
    assert describe_conflict(claims).endswith("“7” (b.md)")
    bad = Document("Gold: it is 7.", metadata={"date": "May 4th"})
    with pytest.raises(BadArgument, match="or a year, got 'May 4th'"):
        find_conflicts(result([*PAGES, bad], {**SURE, "7": 0.99}), newest_by="date")


@pytest.mark.parametrize(
    ("sure", "why"),
    [
        ({"8443": 0.9}, "one passage answers"),
        ({"8443": 0.9, "port 8443": 0.7}, "both say the same"),
        ({"8443": 0.9, "9000": 0.3}, "a refusal"),
        ({"8443": 0.9, "9000": 0.31}, "hardly supported"),
    ],
)
def test_no_conflict(sure: Any, why: str) -> None:
    claims = find_conflicts(result(sure=sure))
    assert claims == [], why
    assert describe_conflict(claims) == ""


@pytest.mark.parametrize(
    ("changes", "number"),
    [({"critique": {"ISREL": isrel, "ISSUP": issup}}, n)
     for isrel, issup, n in ((0.49, 0.9, 0), (0.9, 0.49, 0), (0.5, 0.5, 2))]
    + [({"depth": 1}, 0), ({"passage": None}, 0)],
)  # fmt: skip
def test_irrelevant_passages_and_later_segments_do_not_count(changes: Any, number: int) -> None:
    found = result()
    found["candidates"] = [c | changes if c["text"] == "9000" else c for c in found["candidates"]]
    assert len(find_conflicts(found)) == number


def test_a_custom_comparison_and_support() -> None:
    assert find_conflicts(result(), same=lambda first, second: True) == []
    assert len(find_conflicts(result(), same=lambda first, second: False)) == 3
    assert find_conflicts(result(), support=0.9) == []


def test_self_crag_finds_them_in_its_knowledge() -> None:
    llm, _ = reader_llm(SURE, answer_above=0.3)
    graph = create_self_crag(llm, lambda query: PAGES[1:], WordEvaluator())
    claims = find_conflicts(asyncio.run(graph.ainvoke(ASKED)))
    assert [claim["citations"][0]["title"] for claim in claims] == ["Older", "New"]


def test_a_result_without_candidates() -> None:
    with pytest.raises(BadArgument, match="give a result of Self-RAG or Self-CRAG"):
        find_conflicts({"answer": "8443"})


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("The Beatles", "beatles.", True),
        ("14 April 1912", "1912", True),
        ("April 14", "14 April", False),
        ("Paris", "Lyon", False),
        ("art", "part", False),
        ("", "Lyon", True),
        ("one " * 13, "Lyon", True),
        ("one " * 12, "Lyon", False),
    ],
)
def test_answers_that_say_the_same(first: str, second: str, same: bool) -> None:
    assert say_the_same(first, second) is say_the_same(second, first) is same
