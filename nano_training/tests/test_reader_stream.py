"""The stream of the reader's training: shares, passages that do not answer, judged answers."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from nano_training.reader import stream
from nano_training.reader.mixture import CHANGELOGS, MANUALS, SHARES, share
from nano_training.reader.negatives import RETRIEVED, Negatives
from nano_training.reader.rows import Row
from nano_training.reader.stream import ALONE, JUDGED, YES_NO, examples, like, sentence_of

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


class Calls:
    """An encoder that gives back what it was asked."""

    def reading(self, row: Row) -> Any:
        return ("reading", row)

    def judgement(self, row: Row, answer: str, support: int, utility: int) -> Any:
        return ("judgement", row, answer, support, utility)

    def yes_no(self, row: Row, answer: bool) -> Any:
        return ("yes or no", row, answer)

    def question(self, text: str, retrieve: bool) -> Any:
        return ("alone", text, retrieve)


DECIDED = Row("Is it old?", "", "It was built in 1200.", (), "strategyqa")


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "yes_no_rows", lambda: [(DECIDED, True)])
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


def test_a_row_without_an_answer_brings_no_negatives_and_is_not_judged(
    negatives: Negatives,
) -> None:
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
    right = sum(call[0] == "judgement" and call[3] == 2 for call in calls)
    assert right / rows == pytest.approx(JUDGED, abs=0.015)
    assert 1.7 * right < kinds["judgement"] <= 2 * right
    asked = {call[1] for call in calls if call[0] == "alone" and call[2]}
    assert asked == {row.question for row in ROWS}
    assert {call[1] for call in calls if call[0] == "alone" and not call[2]} == {"Hello!", "Thanks"}
    assert {call[1:] for call in calls if call[0] == "yes or no"} == {(DECIDED, True)}


def test_judged_answers_are_labelled_by_what_the_passage_says(negatives: Negatives) -> None:
    labels: Counter[tuple[int, int]] = Counter()
    for call in islice(streamed(negatives), 20_000):
        if call[0] != "judgement":
            continue
        _, row, answer, support, utility = call
        labels[support, utility] += 1
        right = next(known.answers[0] for known in ROWS if known.question == row.question)
        if support == 2:
            assert answer == (right if utility == 4 else row.passage.split(". ")[0] + ".")
            assert right in answer
            assert answer in row.passage
        elif support == 1:
            assert answer.startswith(f"{right} and ")
            assert answer.removeprefix(f"{right} and ") in row.passage
            assert right in row.passage
        elif utility == 4:  # the right answer, on a passage that does not state it
            assert answer == right
            assert right not in row.passage
        else:
            assert right not in answer
            assert answer in row.passage
    assert set(labels) == {(2, 3), (2, 4), (1, 2), (0, 4), (0, 1)}


def test_rows_come_by_the_share_of_their_source(negatives: Negatives) -> None:
    rows = [about(town, 1950, source) for town, source in zip(TOWNS, SHARES, strict=False)]
    rows += [about("Y", 1950, "selqa"), about("X", 1950, "options"), about("W", 1950, "changelog")]
    made = Negatives(rows, FURTHER)
    seen = Counter(
        call[1].source
        for call in islice(streamed(made, rows, per_row=0), 30_000)
        if call[0] == "reading"
    )
    wanted = {**SHARES, "selqa": 1.0, "options": MANUALS, "changelog": CHANGELOGS}
    for source, part in wanted.items():
        expected = part / sum(wanted.values())
        assert seen[source] / seen.total() == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("nq", 3.0),
        ("qed", 3.0),
        ("policyqa", 0.6),
        ("covidqa", 0.7),
        ("relations", 0.4),
        ("selqa", 1.0),
        ("fairytaleqa", 1.0),
        ("changelog: date", CHANGELOGS),
        ("facts: licence", MANUALS),
    ],
)
def test_shares_of_sources(source: str, part: float) -> None:
    assert share(about("Arno", 1900, source)) == part


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
    assert {call[0] for call in calls} == {"judgement", "yes or no", "alone"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("passage", "answer", "sentence"),
    [
        ("It rained. Ann left in 1900. She came back.", "1900", "Ann left in 1900."),
        ("Ann left in 1900. She came back.", "Ann", "Ann left in 1900."),
        ("Ann left in 1900. She came back.", "1900", "Ann left in 1900."),
        ("Was it? Yes! It was 3.5 m long", "3.5 m", "It was 3.5 m long"),
        ("Dates: a.\n 1900 is one. b.", "1900", "1900 is one."),
        ("One sentence.", "One sentence.", "One sentence."),
    ],
)
def test_the_sentence_of_an_answer(passage: str, answer: str, sentence: str) -> None:
    assert sentence_of(passage, answer) == sentence


def test_others_like_an_answer() -> None:
    text = "In 1900 Ann Lee of Faro met Bo Berg, 12 years old, on 3 May 1901."
    assert {"1900", "12"} <= {span.split()[-1] for span in like(text, "1901")}
    assert all(any(c.isdigit() for c in span) for span in like(text, "1901"))
    assert {"Ann Lee of Faro", "Bo Berg"} <= set(like(text, "Peter"))
    assert "Bo Berg" not in like(text, "Bo Berg")
    assert like("red green blue white black", "two words") == ["red green"]


def test_no_random_number_is_shared() -> None:
    random.seed(5)
    before = random.getstate()
    list(islice(streamed(Negatives(ROWS, FURTHER)), 50))
    assert random.getstate() == before
