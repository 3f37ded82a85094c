"""The stream of the reader's training: shares, and passages that do not answer."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nano_training.reader import stream
from nano_training.reader.mixture import CHANGELOGS, MANUALS, RELATIONS, SHARES, WRITTEN, share
from nano_training.reader.negatives import RETRIEVED, Negatives, encyclopedia
from nano_training.reader.rows import Row
from nano_training.reader.stream import ALONE, YES_NO, examples

TOWNS = ("Arno", "Brevik", "Celje", "Dorum", "Emden", "Faro", "Gyula", "Husum", "Izmir", "Jena")


def about(town: str, year: int, source: str = "qed") -> Row:
    text = f"The bridge of {town} was built in {year}. It is 75 m long."
    return Row(f"When was the bridge of {town} built?", town, text, (str(year),), source)


ROWS = [about(town, 1900 + number) for number, town in enumerate(TOWNS)]
FURTHER = [(f"Mill {k}", f"The bridge at mill {k} was built in {1900 + k}.") for k in range(10)]


@pytest.fixture(scope="module")
def negatives() -> Negatives:
    return Negatives([*ROWS, *ROWS[:2]], FURTHER)


def test_negatives_are_other_passages_without_the_answer(negatives: Negatives) -> None:
    assert len(negatives.passages) == 20  # each once
    for row, found in zip(ROWS, negatives.of(ROWS), strict=True):
        assert 8 <= len(found) <= RETRIEVED
        for other in found:
            assert other.question == row.question
            assert (other.title, other.passage) in negatives.passages
            assert other.passage != row.passage
            assert row.answers[0] not in other.passage
            assert other.answers == ()
            assert other.source == "qed, retrieved"


def test_negatives_are_alike_and_the_likest_comes_first() -> None:
    further = [(f"Page {k}", f"Nothing of note, page {k}.") for k in range(20)]
    asked = about("Arno", 1234)
    near = ("Arno", "When the bridge of Arno fell, it was built anew.")
    [found] = Negatives([asked], [*further, near]).of([asked])
    assert (found[0].title, found[0].passage) == near


def test_an_answer_in_another_case_is_no_negative() -> None:
    asked = Row("Who built it?", "A", "Built by Ann Lee.", ("Ann Lee", "Lee"), "nq")
    further = [(f"Page {k}", f"It was built by nobody {k}.") for k in range(12)]
    further += [("B", "It was built by ANN LEE."), ("C", "Who built it? lee did.")]
    [found] = Negatives([asked], further).of([asked])
    assert found
    assert all(other.title.startswith("Page") for other in found)


POLICY = "We keep the date of your visit for {} days, and no other date."


def policies(count: int = 14) -> list[Row]:
    """The same question on the policies of as many websites."""
    return [
        Row(
            "How many days do you keep the date of a visit?",
            f"site{k}.org",
            POLICY.format(k),
            (f"{k} days",),
            "policyqa",
        )
        for k in range(30, 30 + count)
    ]


def test_policies_of_other_websites_are_no_negatives_of_a_policys_question() -> None:
    further = [(f"Page {k}", f"How long it was kept, page {k}, is not known.") for k in range(6)]
    rows = policies(6)
    for found in Negatives([*rows, *ROWS], further).of(rows):
        assert found
        assert not {other.title for other in found} & {row.title for row in rows}
        assert {other.source for other in found} == {"policyqa, retrieved"}


def test_policies_are_negatives_of_other_questions() -> None:
    rows = policies()
    asked = [rows[0]._replace(source="nq"), Row("Dates of visits?", "", "Nothing.", ("x",), "qed")]
    for found in Negatives([*rows, *asked], []).of(asked):
        assert {other.title for other in found} & {row.title for row in rows[1:]}


def test_a_passage_that_is_no_policy_is_a_negative_under_a_policys_title() -> None:
    further = [("site31.org", f"How long we keep dates of kind {k} is told.") for k in range(12)]
    rows = policies(2)
    for found in Negatives(rows, further).of(rows):
        assert {other.title for other in found} == {"site31.org"}


def test_further_passages_are_pages_of_wikipedia(tmp_path: Path) -> None:
    pages = [
        {"title": "Ann", "text": "Ann ( born 1900 ) \n was it ."},
        {"title": "Bo", "text": "B"},
    ]
    (tmp_path / "2wikimultihopqa_corpus_6119.json").write_text(json.dumps(pages))
    assert encyclopedia(tmp_path) == [("Ann", "Ann (born 1900) was it."), ("Bo", "B")]


class Calls:
    """An encoder that gives back what it was asked."""

    def reading(self, row: Row) -> Any:
        return ("reading", row)

    def decides(self, row: Row) -> Any:
        return ("yes or no", row)

    def question(self, text: str, retrieve: bool) -> Any:
        return ("alone", text, retrieve)


DECIDED = Row("Is it old?", "", "It was built in 1200.", (), "strategyqa")


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "yes_no_rows", lambda: [DECIDED])
    monkeypatch.setattr(stream, "requests_without_evidence", lambda: iter(["Hello!"]))
    monkeypatch.setattr(stream, "selfrag_questions", lambda: ["Thanks"])


def streamed(
    negatives: Negatives, rows: list[Row] = ROWS, *, per_row: float = 1.3, seed: int = 1
) -> Iterator[Any]:
    encoder: Any = Calls()
    return examples(rows, negatives, encoder, seed, per_row)


@pytest.mark.parametrize("per_row", [0.0, 0.5, 1.3, 2.0])
def test_so_many_negatives_come_for_each_row(negatives: Negatives, per_row: float) -> None:
    calls = islice(streamed(negatives, per_row=per_row), 8000)
    readings = [call[1] for call in calls if call[0] == "reading"]
    right = sum(bool(row.answers) for row in readings)
    assert (len(readings) - right) / right == pytest.approx(per_row, abs=0.04)


def test_a_row_without_an_answer_brings_no_negatives(negatives: Negatives) -> None:
    silent = [row._replace(answers=(), source="silent") for row in ROWS]
    calls = list(islice(streamed(negatives, [ROWS[0], *silent]), 3000))
    about_silent = [call for call in calls if getattr(call[1], "question", "") != ROWS[0].question]
    assert len(about_silent) > 1000
    assert {call[0] for call in about_silent} == {"reading", "yes or no", "alone"}
    read = [call[1] for call in about_silent if call[0] == "reading"]
    assert {row.source for row in read} == {"silent"}


def test_shares_of_the_kinds(negatives: Negatives) -> None:
    calls = list(islice(streamed(negatives), 30_000))
    rows = sum(call[0] == "reading" and bool(call[1].answers) for call in calls)
    kinds = Counter(call[0] for call in calls)
    assert kinds["yes or no"] / rows == pytest.approx(YES_NO, abs=0.006)
    assert kinds["alone"] / rows == pytest.approx(ALONE, abs=0.006)
    assert set(kinds) == {"reading", "yes or no", "alone"}
    needed = [call[2] for call in calls if call[0] == "alone"]
    assert sum(needed) / len(needed) == pytest.approx(0.5, abs=0.05)
    asked = {call[1] for call in calls if call[0] == "alone" and call[2]}
    assert asked == {row.question for row in ROWS}
    assert {call[1] for call in calls if call[0] == "alone" and not call[2]} == {"Hello!", "Thanks"}
    assert {call[1:] for call in calls if call[0] == "yes or no"} == {(DECIDED,)}


def test_rows_come_by_the_share_of_their_source(negatives: Negatives) -> None:
    sources = (*SHARES, "fairytaleqa", "options", "changelog", "relations", "written: notes")
    rows = [about(town, 1950, source) for town, source in zip(TOWNS, sources, strict=True)]
    rows.append(about("Kiel", 1950, "relations")._replace(answers=()))
    made = Negatives(rows, FURTHER)
    seen = Counter(
        (call[1].source, bool(call[1].answers))
        for call in islice(streamed(made, rows, per_row=0), 20_000)
        if call[0] == "reading"
    )
    wanted = {
        **{(source, True): part for source, part in SHARES.items()},
        ("fairytaleqa", True): 1.0,
        ("options", True): MANUALS,
        ("changelog", True): CHANGELOGS,
        ("relations", True): RELATIONS[0],
        ("relations", False): RELATIONS[1],
        ("written: notes", True): WRITTEN,
    }
    assert set(seen) == set(wanted)
    for key, part in wanted.items():
        assert seen[key] / seen.total() == pytest.approx(part / sum(wanted.values()), rel=0.25)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("nq", 3.0),
        ("qed", 3.0),
        ("policyqa", 0.5),
        ("covidqa", 0.7),
        ("selqa", 0.5),
        ("fairytaleqa", 1.0),
        ("relations", 0.3),
        ("written: manuals", 2.5),
        ("written: wikipedia", 2.5),
        ("written: notes", 2.5),
        ("changelog: date", 0.2),
        ("facts: licence", 0.4),
        ("options", 0.4),
    ],
)
def test_shares_of_sources(source: str, part: float) -> None:
    answered = about("Arno", 1900, source)
    assert share(answered) == part
    assert share(answered._replace(answers=())) == (0.1 if source == "relations" else part)


def test_a_seed_gives_the_same_stream(negatives: Negatives) -> None:
    one, same, other = (list(islice(streamed(negatives, seed=s), 3000)) for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_an_example_without_a_place_is_left_out(negatives: Negatives) -> None:
    class Blind(Calls):
        def reading(self, row: Row) -> Any:
            return None

    encoder: Any = Blind()
    calls = islice(examples(ROWS, negatives, encoder, 1, 1.0), 300)
    assert {call[0] for call in calls} == {"yes or no", "alone"}  # type: ignore[index]


def test_no_random_number_is_shared() -> None:
    random.seed(5)
    before = random.getstate()
    list(islice(streamed(Negatives(ROWS, FURTHER)), 50))
    assert random.getstate() == before
