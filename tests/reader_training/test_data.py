"""The rows: real sets, written questions, negatives, and files that are never trained on."""

import gzip
import random
from importlib.metadata import PackageNotFoundError
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.own_documents import files as own_documents
from benchmarks.own_documents.files import FILES, write_texts
from reader_training import evaluate, export, mixture, written
from reader_training.installed import README, Place, text_of
from reader_training.mixture import draw_rows, requests_without_evidence
from reader_training.negatives import Negatives, drop_answer, near_miss
from reader_training.rows import (
    DATA,
    HELD_OUT,
    QUESTIONS,
    Retrieved,
    Row,
    Split,
    drawn,
    lines,
    mentions,
    real_rows,
    retrieved,
    retrieved_rows,
    split_of,
    tidy,
)
from reader_training.written import AROUND, FAR, place, written_rows
from tests.training.toys import write

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}")
TEXT = "The first limit is 30 seconds.\n\nSet the second limit\nto 40  seconds. Never 30 seconds.\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It 's a dog , isn't it ?", "It's a dog, isn't it?"),
        ("( born  1976 ) in\nChemnitz .", "(born 1976) in Chemnitz."),
        ("He said `` no '' -- twice", 'He said "no" – twice'),
    ],
)
def test_a_treebanks_spaces_are_removed(text: str, expected: str) -> None:
    assert tidy(text) == expected


def test_the_same_texts_are_always_drawn() -> None:
    drawn_texts = [str(i) for i in range(1000) if drawn(str(i), 0.2)]
    assert 150 < len(drawn_texts) < 250
    assert {str(i) for i in range(1000) if drawn(str(i), 0.1)} < set(drawn_texts)


@needs_data
def test_every_answer_stands_in_its_passage_and_no_question_is_on_both_sides() -> None:
    train, held_out = real_rows()
    assert {row.source for row in train} == {"nq", "qed", "fairytaleqa", "covidqa"}
    assert all(answer in row.passage for row in [*train, *held_out] for answer in row.answers)
    for sources, field in ((("nq", "qed"), "question"), (("fairytaleqa",), "title")):
        trained, kept = (
            {getattr(row, field).lower() for row in rows if row.source in sources}
            for rows in (train, held_out)
        )
        assert trained
        assert kept
        assert not trained & kept
    asked = ("Who wrote Emma?", "WHO WROTE EMMA?", "a", "b")
    assert [split_of(question) for question in asked] == [3, 3, 0, 3]


@needs_data
def test_no_question_of_splits_2_and_3_is_trained_on_and_split_3_calibrates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = requests_without_evidence()
    assert len(requests) > 300
    assert all(request.strip() for request in requests)
    trained = {row.question for row in retrieved_rows(0, 1)}
    assert len(trained) > 300
    assert {split_of(question) for question in trained} == {0, 1}
    kept = {asked.question.lower() for asked in retrieved(2, 3)}
    written_questions = {
        row["question"].lower()
        for name in ("manuals", "wikipedia", "retrieved")
        for row in lines(QUESTIONS / f"{name}.jsonl")
    }
    assert not kept & ({row.question.lower() for row in real_rows().train} | written_questions)
    monkeypatch.setattr(mixture, "written_rows", lambda: Split([], []))
    assert not kept & {row.question.lower() for row in mixture.all_rows()}
    asked = list[str]()
    monkeypatch.setattr(evaluate, "read", lambda reader, question, *given: asked.append(question))
    monkeypatch.setattr(export, "ask_own_documents", lambda reader, half, most: [half])
    reader: Any = None
    assert export.calibration_questions(reader)[-1] == "open"
    assert {split_of(question) for question in asked} == {2}
    sources = {each.source for each in retrieved(2) if each.question in asked}
    assert sources == {"popqa"}, "two hops have no answer in one passage, TriviaQA lacks right ones"


def test_passages_as_retrieved_answer_only_if_that_is_sure() -> None:
    answers = ("United States", "US")
    asked = Retrieved("In what country is Vera?", answers, [], "popqa")
    assert asked.stated("Vera (town)", "Vera is in the US.") == ("US",)
    assert asked.stated("Vera (town)", "It tells us of Vera in Jerusalem.") == ()
    assert asked.stated("Mirambeau", "It is in the United States.") is None, "a namesake's country"
    trivia = asked._replace(source="triviaqa")
    assert trivia.stated("Mirambeau", "It is in the united states.") == ("United States",)
    assert asked._replace(source="multihop").stated("Vera", "In the US.") is None


@pytest.mark.parametrize(
    ("answer", "text", "places"),
    [
        ("Jo Dell", "jo dell and Jo Dell", [(0, 7), (12, 19)]),
        ("US", "us and US", [(7, 9)]),
        ("30", "1930 or 30.", [(8, 10)]),
        (" -a, ", "use -a", [(4, 6)]),
        ("", "text", []),
    ],
)
def test_mentions_are_whole_words(answer: str, text: str, places: list[tuple[int, int]]) -> None:
    assert mentions(answer, text) == places


@pytest.mark.parametrize(
    ("answer", "near", "at"),
    [
        ("30 seconds", "The first limit", TEXT.index("30")),
        ("30 seconds", "Never 30", TEXT.rindex("30")),
        ("40 seconds", "second limit to", TEXT.index("40")),
        ("50 seconds", "The first limit", -1),
        ("30 seconds", "The third limit", -1),
        ("3. seconds", "The first limit", -1),
    ],
)
def test_the_place_of_an_answer_is_nearest_to_its_words(answer: str, near: str, at: int) -> None:
    assert place(TEXT, answer, near) == at
    assert place(f"here{' ' * FAR}40", "40", "here") == -1, "too far"


def test_written_questions_become_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "encyclopedia", lambda: [("Ann Lee", "Ann Lee is from Faro.")])
    asked_of = Retrieved("?", (), [("Ann", "Ann ran."), ("Ann", "Ann sang.")], "popqa")
    monkeypatch.setattr(written, "retrieved", lambda *splits: [asked_of] * (splits == (0, 1)))
    file = tmp_path / "copyit.txt"
    long = "\n".join(f"Nothing of note in line {k}." for k in range(200))
    file.write_text(f"{TEXT}{long}\n", encoding="utf-8")
    asked = {"question": "How long?", "near": "second limit", "answer": "40\nseconds"}
    write(
        tmp_path / "manuals.jsonl",
        {**asked, "file": str(file)},
        {**asked, "file": str(tmp_path / "gone.txt")},
        {**asked, "file": str(file), "answer": "90 seconds"},
        {**asked, "file": str(file), "answer": "", "near": "of note in line 150."},
        {**asked, "file": str(file), "answer": "", "near": "says no longer"},
    )
    page = {**asked, "title": "Ann Lee", "answer": "Faro", "near": "is from"}
    write(tmp_path / "wikipedia.jsonl", page)
    asked = {"question": "When did Ann sing?", "title": "Ann", "answer": "", "near": "Ann sang"}
    write(tmp_path / "retrieved.jsonl", asked, {**asked, "near": "Ann slept"})
    about = {"title": "n.md", "text": "At noon.", "asked": [["When?", "noon"], ["Why?", ""]]}
    write(tmp_path / "notes.jsonl", about)
    train, held_out = written_rows(tmp_path)
    manual, none, wiki, sang, note, unanswered = [*train, *held_out]
    assert (manual.title, manual.answers) == ("copyit", ("40 seconds",))
    assert manual.passage.startswith(" ".join(TEXT.split()))
    assert AROUND < len(manual.passage) < AROUND + 120
    assert (none.answers, none.source) == ((), "written: manuals")
    assert "line 149." in none.passage
    assert sang == ("When did Ann sing?", "Ann", "Ann sang.", (), "written: retrieved")
    faro = "Ann Lee is from Faro."
    assert wiki == ("How long?", "Ann Lee", faro, ("Faro",), "written: wikipedia")
    assert note == ("When?", "n.md", "At noon.", ("noon",), "written: notes")
    assert unanswered.answers == ()


def test_written_questions_and_near_misses_keep_out_of_what_measures() -> None:
    names = {place.package or Path(place.file).parent.name for place in FILES.values()}
    paths = {place.file for place in FILES.values() if not place.package}
    for file in (row["file"] for row in lines(QUESTIONS / "manuals.jsonl")):
        assert file not in paths
        assert file.partition(":")[0] not in names or file.startswith("/")
    notes = list(lines(QUESTIONS / "notes.jsonl"))
    share = sum(drawn(note["title"], HELD_OUT) for note in notes) / len(notes)
    assert 0.03 < share < 0.15
    plain = [(" ".join(note["text"].split()), note["asked"]) for note in notes]
    assert all(" ".join(a.split()) in text for text, asked in plain for _, a in asked)
    rows = list(lines(QUESTIONS / "near_misses.jsonl"))
    assert len({row["question"] for row in rows}) == 20
    assert all(row["answer"] in row["text"] for row in rows)
    assert not {note["title"] for note in notes} & {row["title"] for row in rows}


PAGES = [(f"Parties {i}", f"Text {i} of a town.") for i in range(12)]
PARTY = Row(
    "When is the 2nd summer party, Ms Bell?",
    "Parties (notes)",
    "We plan. The summer party is on 4 June. All of the guests come by the old train, with cake.",
    ("4 June",),
    "nq",
)


def test_the_page_without_the_fact_keeps_its_other_sentences() -> None:
    rest: Any = drop_answer(PARTY)
    assert rest.passage == "We plan. All of the guests come by the old train, with cake."
    assert (rest.answers, rest.question) == ((), PARTY.question)
    assert drop_answer(PARTY._replace(passage="On 4 June. We plan.")) is None, "too short"
    assert drop_answer(PARTY._replace(answers=("one two three four five six seven",))) is None


def test_a_near_miss_asks_for_what_the_passage_does_not_have() -> None:
    missed = {near_miss(PARTY, [], random.Random(seed)) for seed in range(20)}
    questions = {row.question.split()[4] for row in missed if row}
    assert questions == {"spring", "autumn", "winter"}
    assert {(row.answers, row.passage) for row in missed if row} == {((), PARTY.passage)}
    plain = PARTY._replace(question="Who pays for Parties?")
    other: Any = near_miss(plain, ["Vera"], random.Random(0))
    assert other.question == "Who pays for Vera?"
    assert near_miss(plain, [], random.Random(0)) is None
    assert near_miss(plain, ["cake"], random.Random(0)) is None, "the passage names it"
    year: Any = near_miss(PARTY._replace(question="Who won in 1998?"), [], random.Random(0))
    assert year.question.startswith("Who won in ")
    assert year.question != "Who won in 1998?"


def test_negatives_are_like_the_question_and_do_not_state_its_answer() -> None:
    row = Row("Who sang the moon song?", "Moon", "Jo Dell sang the moon song.", ("Jo Dell",), "nq")
    other = Row("Who sang?", "Star", "The star song was sung by jo dell.", ("jo dell",), "nq")
    further = [("Moon (planet)", "The moon song is old."), *PAGES]
    negatives, chance = Negatives([row, other], further), random.Random(3)
    first, _ = negatives.find([row, other])
    assert first[0].passage == "The moon song is old."
    assert all("dell" not in each.passage.lower() for each in first)
    assert {each.answers for each in first} == {()}
    drawn_rows = {negatives.draw(row, [], chance) for _ in range(60)}
    assert first[0]._replace(source="nq, retrieved") in drawn_rows, "a namesake"
    assert None in drawn_rows


def test_the_stream_is_the_same_again_with_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "encyclopedia", lambda: PAGES)
    monkeypatch.setattr(mixture, "requests_without_evidence", lambda: ["Hello."])
    rows = [PARTY, PARTY._replace(answers=(), source="retrieved: popqa")]
    made = list(islice(draw_rows(rows, 1), 400))
    assert made == list(islice(draw_rows(rows, 1), 400))
    assert all(each.relevant in (None, bool(each.row.answers)) for each in made)
    alone = {(each.row.question, each.retrieve) for each in made if each.relevant is None}
    assert alone == {(PARTY.question, True), ("Hello.", False)}
    kinds = {(each.row.source, "We plan." in each.row.passage) for each in made}
    assert kinds >= {("nq, near", True), ("nq, retrieved", False), ("nq, retrieved", True)}
    assert any(each.row.source == "retrieved: popqa" for each in made)
    assert not any(each.row.source.startswith("retrieved: popqa,") for each in made)


PAGE = ".TH COPYIT 5 2024\n.SH NAME\ncopyit \\- copies\n.SH KEYS\nKeys are \\fBthese\\fR:\n"


@pytest.mark.parametrize("name", ["copyit.1", "copyit.5.gz", "copyit.8"])
def test_manual_pages_are_read_as_text(tmp_path: Path, name: str) -> None:
    content = PAGE.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    text, suffix = text_of(Place(str(tmp_path / name)))
    assert "copyit - copies" in text
    assert "Keys are these:" in text
    assert ".SH" not in text
    assert suffix == ".txt"


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.md").write_text("# Here")
    files = {name: Place(str(tmp_path / f"{name}.md")) for name in ("here", "gone")}
    files["package"] = Place(README, "no-such-package")
    monkeypatch.setattr(own_documents, "FILES", files)
    (tmp_path / "out").mkdir()
    assert write_texts(tmp_path / "out") == ["gone", "package"]
    assert (tmp_path / "out" / "here.md").read_text() == "# Here"
    with pytest.raises(PackageNotFoundError):
        text_of(Place(README, "no-such-package"))
    assert text_of(Place(README, "pytest"))[0].startswith("Name: pytest\nVersion: ")
