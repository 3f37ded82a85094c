"""The rows: real sets, written questions, negatives, and files that are never trained on."""

import gzip
import json
from collections import Counter
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from benchmarks.own_documents import files as own_documents
from benchmarks.own_documents.files import FILES, README, Place, text_of, write_texts
from reader_training import written
from reader_training.mixture import Negatives, requests_without_evidence
from reader_training.rows import (
    DATA,
    HELD_OUT,
    Row,
    drawn,
    hotpotqa,
    musique_hops,
    popqa,
    real_rows,
    tidy,
)
from reader_training.written import AROUND, FAR, QUESTIONS, file_text, place, written_rows

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
    assert Counter(row.source for row in train).keys() == {
        "nq", "qed", "fairytaleqa", "policyqa", "selqa", "covidqa",
    }  # fmt: skip
    assert all(answer in row.passage for row in [*train, *held_out] for answer in row.answers)
    sides = [{row.question.lower() for row in rows if row.source in ("nq", "qed")}
             for rows in (train, held_out)]  # fmt: skip
    assert all(sides)
    assert not sides[0] & sides[1]
    titles = {row.title for row in train if row.source == "fairytaleqa"}
    assert not titles & {row.title for row in held_out if row.source == "fairytaleqa"}


@needs_data
def test_sets_that_are_never_trained_on_have_their_answers() -> None:
    assert len(popqa()) == 741
    assert all(row.question and row.answers for row in [*popqa(), *hotpotqa()])
    hops = musique_hops()
    assert hops
    assert all("#" not in row.question for row in hops)


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
def test_the_place_of_an_answer_is_nearest_to_the_words_near_it(
    answer: str, near: str, at: int
) -> None:
    assert place(TEXT, answer, near) == at
    assert place(f"here{' ' * FAR}40", "40", "here") == -1, "too far"


def write_questions(folder: Path, **found: list[dict[str, Any]]) -> list[Row]:
    """All rows of these lines, on whatever side they are."""
    for name in ("manuals", "wikipedia", "notes"):
        rows = "".join(json.dumps(row) + "\n" for row in found.get(name, []))
        (folder / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    file_text.cache_clear()
    train, held_out = written_rows(folder)
    return [*train, *held_out]


def test_written_questions_become_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "encyclopedia", lambda: [("Ann Lee", "Ann Lee is from Faro.")])
    file = tmp_path / "copyit.txt"
    long = "\n".join(f"Nothing of note in line {k}." for k in range(200))
    file.write_text(f"{TEXT}{long}\n", encoding="utf-8")
    asked = {"question": "How long?", "near": "second limit", "answer": "40\nseconds"}
    manual, none, wiki, note, unanswered = write_questions(
        tmp_path,
        manuals=[
            {**asked, "file": str(file)},
            {**asked, "file": str(tmp_path / "gone.txt")},
            {**asked, "file": str(file), "answer": "90 seconds"},
            {**asked, "file": str(file), "answer": ""},
        ],
        wikipedia=[{**asked, "title": "Ann Lee", "answer": "Faro", "near": "is from"}],
        notes=[{"title": "n.md", "text": "At noon.", "asked": [["When?", "noon"], ["Why?", ""]]}],
    )
    assert (manual.title, manual.answers) == ("copyit", ("40 seconds",))
    assert manual.passage.startswith(" ".join(TEXT.split()))
    assert AROUND < len(manual.passage) < AROUND + 120
    assert (none.answers, none.source) == ((), "written: manuals")
    assert wiki == (
        "How long?",
        "Ann Lee",
        "Ann Lee is from Faro.",
        ("Faro",),
        "written: wikipedia",
    )
    assert note == ("When?", "n.md", "At noon.", ("noon",), "written: notes")
    assert unanswered.answers == ()


def test_no_written_question_is_about_a_file_that_is_kept_out() -> None:
    names = {place.package or Path(place.file).parent.name for place in FILES.values()}
    paths = {place.file for place in FILES.values() if not place.package}
    for line in (QUESTIONS / "manuals.jsonl").read_text(encoding="utf-8").splitlines():
        file = json.loads(line)["file"]
        assert file not in paths
        assert file.partition(":")[0] not in names or file.startswith("/")


def test_written_questions_are_set_aside_by_titles() -> None:
    notes = [json.loads(line) for line in (QUESTIONS / "notes.jsonl").open(encoding="utf-8")]
    share = sum(drawn(note["title"], HELD_OUT) for note in notes) / len(notes)
    assert 0.03 < share < 0.15
    plain = [(" ".join(note["text"].split()), note["asked"]) for note in notes]
    assert all(" ".join(a.split()) in text for text, asked in plain for _, a in asked)


@needs_data
def test_requests_need_no_passage() -> None:
    requests = requests_without_evidence()
    assert len(requests) > 300
    assert all(request.strip() for request in requests)


def test_negatives_are_like_the_question_and_do_not_state_its_answer() -> None:
    rows = [
        Row("Who sang the moon song?", "Moon", "Jo Dell sang the moon song.", ("Jo Dell",), "nq"),
        Row("Who sang?", "Star", "The star song was sung by jo dell.", ("jo dell",), "nq"),
        Row("May I?", "A", "You may sing the moon song here.", ("You may",), "policyqa"),
        Row("May they?", "B", "They sing the moon song.", ("They",), "policyqa"),
    ]
    further = [("Moon", "The moon song is old."), *((f"T{i}", f"Text {i}.") for i in range(12))]
    first, _, policy, _ = Negatives(rows, further).find(rows)
    assert first[0].passage in ("The moon song is old.", "They sing the moon song.")
    assert all("Dell" not in row.passage and "dell" not in row.passage for row in first)
    assert {row.answers for row in first} == {()}
    assert "They sing the moon song." not in [row.passage for row in policy]


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
    files = {
        "here": Place(str(tmp_path / "here.md")),
        "gone": Place(str(tmp_path / "gone.md")),
        "package": Place(README, "no-such-package"),
    }
    monkeypatch.setattr(own_documents, "FILES", files)
    (tmp_path / "out").mkdir()
    assert write_texts(tmp_path / "out") == ["gone", "package"]
    assert (tmp_path / "out" / "here.md").read_text() == "# Here"
    with pytest.raises(PackageNotFoundError):
        text_of(Place(README, "no-such-package"))
    assert text_of(Place(README, "pytest"))[0].startswith("Name: pytest\nVersion: ")
