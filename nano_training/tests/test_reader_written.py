"""Questions written by hand: how they become rows, and the files that ship."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from nano_training.reader import written
from nano_training.reader.kept_out import FILES, Place, text_of
from nano_training.reader.manuals import is_excluded
from nano_training.reader.mixture import own_documents
from nano_training.reader.negatives import encyclopedia
from nano_training.reader.rows import DATA, HELD_OUT, Row, drawn
from nano_training.reader.written import AROUND, FAR, QUESTIONS, file_text, place, written_rows

NAMES = ("manuals", "wikipedia", "notes")
PAGES = [("Ann Lee", "Ann Lee was born in Faro in 1901. She died in Oslo.")]
TEXT = """The first limit is 30 seconds.

Set the second limit
to 40  seconds. It is never
above 30 seconds.
"""


@pytest.fixture(autouse=True)
def small_encyclopedia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "encyclopedia", lambda: PAGES)


def rows(folder: Path, **found: list[dict[str, Any]]) -> list[Row]:
    """All rows of these lines, whatever side they are on."""
    for name in NAMES:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in found.get(name, [])]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    train, held_out = written_rows(folder)
    return [*train, *held_out]


def asked(answer: str, near: str, file: str | Path = "") -> dict[str, Any]:
    return {"file": str(file), "question": f"What of {answer}?", "answer": answer, "near": near}


def answered(text: str, answer: str, near: str, folder: Path) -> list[Row]:
    """Rows of one question about a file with this text."""
    file = folder / "copyit.txt"
    file.write_text(text, encoding="utf-8")
    file_text.cache_clear()
    return rows(folder, manuals=[asked(answer, near, file)])


@pytest.mark.parametrize(
    ("answer", "near", "at"),
    [
        ("30 seconds", "The first limit", TEXT.index("30")),
        ("30 seconds", "above 30 seconds", TEXT.rindex("30")),
        ("30 seconds", "It is never above", TEXT.rindex("30")),
        ("40 seconds", "second limit to", TEXT.index("40")),
        ("40  seconds", "second\nlimit to", TEXT.index("40")),
        ("50 seconds", "The first limit", -1),
        ("30 seconds", "The third limit", -1),
        ("3. seconds", "The first limit", -1),
        ("40 seconds", "limit t.", -1),
    ],
)
def test_the_place_is_the_nearest_to_what_stands_near(answer: str, near: str, at: int) -> None:
    assert place(TEXT, answer, near) == at


@pytest.mark.parametrize("before", [True, False])
def test_a_far_answer_has_no_place(before: bool) -> None:
    for gap, is_near in ((FAR - 4, True), (FAR - 3, False)):
        text = f"here{' ' * gap}40" if before else f"40  {' ' * gap}here"
        assert (place(text, "40", "here") >= 0) == is_near


def test_a_place_is_searched_as_it_is_written() -> None:
    assert place("Use (a|b)* or [x] + c.", "(a|b)*", "[x] + c.") == 4
    assert place("a first | b", "first", "a .irst") == -1


def test_a_question_on_a_file_becomes_a_row(tmp_path: Path) -> None:
    plain = " ".join(TEXT.split())
    [row] = answered(TEXT, "40\nseconds", "second limit", tmp_path)
    assert row.answers == ("40 seconds",)
    assert row == Row("What of 40\nseconds?", "copyit", plain, row.answers, "written: manuals")


def test_a_passage_is_of_whole_lines_around_the_answer(tmp_path: Path) -> None:
    lines = [f"Line {number} has {number} words, it is said." for number in range(1000, 1200)]
    text = "\n".join(lines)
    [row] = answered(text, "1100 words", "Line 1100", tmp_path)
    at = text.index("1100 words")
    numbers = [int(number) for number in re.findall(r"Line (\d+)", row.passage)]
    first, last = numbers[0], numbers[-1]
    assert row.passage == " ".join(lines[first - 1000 : last - 999])
    before, behind = at - text.index(f"Line {first} "), text.index(f"Line {last} ") - at
    length = len(lines[0])
    assert AROUND <= before <= AROUND + length + 1
    assert AROUND - length <= behind <= AROUND


@pytest.mark.parametrize("number", [1000, 1199])
def test_a_passage_ends_with_its_text(tmp_path: Path, number: int) -> None:
    lines = [f"Line {number} has {number} words, it is said." for number in range(1000, 1200)]
    [row] = answered("\n".join(lines), f"{number} words", f"Line {number}", tmp_path)
    assert row.passage.startswith(lines[0]) == (number == 1000)
    assert row.passage.endswith(lines[-1]) == (number == 1199)
    assert len(row.passage) < AROUND + 3 * len(lines[0])


def test_the_passage_is_that_of_the_nearest_answer(tmp_path: Path) -> None:
    far = "\n".join(f"Nothing of note in line {k}." for k in range(200))
    text = f"It takes 30 days.\n{far}\nIt waits 30 days."
    [row] = answered(text, "30 days", "It waits", tmp_path)
    assert "It waits 30 days" in row.passage
    assert "It takes" not in row.passage


def test_an_answer_that_is_cut_from_its_passage_gives_no_row(tmp_path: Path) -> None:
    words = [f"word{k}" for k in range(300)]
    text = "\n".join(words)
    assert answered(text, " ".join(words[:60]), "word0", tmp_path)
    assert not answered(text, " ".join(words[:200]), "word0", tmp_path)


def test_what_a_file_says_no_longer_is_left_out(tmp_path: Path) -> None:
    assert answered(TEXT, "30 seconds", "The first limit", tmp_path)
    assert not answered(TEXT, "31 seconds", "The first limit", tmp_path)
    assert not answered(TEXT, "30 seconds", "The last limit", tmp_path)


def test_files_that_are_not_here_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("Größe: 30 seconds".encode("latin-1"))
    (tmp_path / "here.txt").write_text("It takes 30 seconds.")
    files = [
        tmp_path / "none.txt",
        tmp_path / "latin.txt",
        "no-such-package:METADATA",
        "pytest:no/such/file.md",
        tmp_path / "here.txt",
    ]
    found = rows(tmp_path, manuals=[asked("30 seconds", "30 seconds", file) for file in files])
    assert [row.title for row in found] == ["here"]


def test_files_of_packages_are_read() -> None:
    assert file_text("pytest:METADATA").startswith("Name: pytest\n")
    assert "console_scripts" in file_text("pytest:entry_points.txt")


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("/usr/share/man/man1/copyit.1.gz", "copyit"),
        ("/usr/share/doc/copyit/NEWS.Debian.gz", "NEWS"),
        ("copyit:METADATA", "copyit"),
        ("copyit:docs/first-steps.md", "first-steps"),
        ("copyit:LICENSE", "LICENSE"),
    ],
)
def test_the_title_is_the_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, title: str
) -> None:
    monkeypatch.setattr(written, "file_text", lambda name: TEXT if name == file else "")
    [row] = rows(tmp_path, manuals=[asked("40 seconds", "40 seconds", file)])
    assert row.title == title


def test_an_empty_answer_is_not_said(tmp_path: Path) -> None:
    text = "\n".join(f"Line {number} of the text." for number in range(200))
    [row] = answered(text, "", "", tmp_path)
    assert row.answers == ()
    assert row.passage.startswith("Line 0 of the text. Line 1 ")
    assert AROUND < len(row.passage) < AROUND + 40


def test_questions_on_pages(tmp_path: Path) -> None:
    lines = [
        {"title": title, "question": "Where was she born?", "answer": "Faro", "near": "was born"}
        for title in ("Ann Lee", "Nobody")
    ]
    found = rows(tmp_path, wikipedia=lines)
    title, text = PAGES[0]
    assert found == [Row("Where was she born?", title, text, ("Faro",), "written: wikipedia")]


def test_questions_on_notes(tmp_path: Path) -> None:
    text = "Rota\n\n- Monday: Ann\n- Tuesday: Bo  Berg"
    pairs = [
        ["Who is first?", "Ann"],
        ["And then?", "Bo Berg"],
        ["On Sunday?", ""],
        ["Gone?", "Cy"],
    ]
    found = rows(tmp_path, notes=[{"title": "rota.md", "text": text, "asked": pairs}])
    plain = " ".join(text.split())
    assert found == [
        Row("Who is first?", "rota.md", plain, ("Ann",), "written: notes"),
        Row("And then?", "rota.md", plain, ("Bo Berg",), "written: notes"),
        Row("On Sunday?", "rota.md", plain, (), "written: notes"),
    ]


def test_whole_notes_are_set_aside(tmp_path: Path) -> None:
    pairs = [["Who?", "Ann"], ["When?", "Monday"]]
    notes = [{"title": f"{k}.md", "text": "Monday: Ann", "asked": pairs} for k in range(500)]
    rows(tmp_path, notes=notes)
    train, held_out = written_rows(tmp_path)
    aside = {note["title"] for note in notes if drawn(note["title"], HELD_OUT)}
    assert 20 < len(aside) < 60
    assert Counter(row.title for row in held_out) == dict.fromkeys(aside, 2)
    others = {note["title"] for note in notes} - aside
    assert Counter(row.title for row in train) == dict.fromkeys(others, 2)


# The files that ship.

KEYS = {
    "manuals": {"file": str, "question": str, "answer": str, "near": str},
    "wikipedia": {"title": str, "question": str, "answer": str, "near": str},
    "notes": {"title": str, "text": str, "asked": list},
}
LONGEST = 30
"""Words of a question, and of an answer."""
FOUND = 0.97
"""Share of the lines whose place is found where their text is; releases of packages differ."""


def shipped(name: str) -> list[dict[str, Any]]:
    lines = (QUESTIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def pairs(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Questions of a line, with their answers and what stands near them."""
    if "asked" in found:
        return [(question, answer, answer) for question, answer in found["asked"]]
    return [(found["question"], found["answer"], found["near"])]


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_well_formed(name: str) -> None:
    for found in shipped(name):
        assert {key: type(value) for key, value in found.items()} == KEYS[name], found
        assert all(found[key] for key in ("file", "title", "text", "asked") if key in found), found
        for question, answer, near in pairs(found):
            assert 0 < len(question.split()) <= LONGEST, question
            assert len(answer.split()) <= LONGEST, question
            assert near.strip() or not answer, question


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_asked_the_same_twice(name: str) -> None:
    """Nor are notes of one title with another text: sides are drawn by titles."""
    found = shipped(name)
    about = Counter(
        (line.get("file") or line["title"], question)
        for line in found
        for question, _, _ in pairs(line)
    )
    assert not [key for key, number in about.items() if number > 1]


def kept_out_texts() -> Iterator[str]:
    for kept in FILES.values():
        try:
            yield text_of(kept)[0]
        except (FileNotFoundError, PackageNotFoundError):
            continue


def names_of(file: str) -> list[str]:
    """Package or folder of documentation, and the file's name without its endings."""
    package, _, path = file.rpartition(":")
    folder = Path(path).parent.name if path.startswith("/usr/share/doc/") else ""
    return [name for name in (package, folder, Path(path).name.partition(".")[0]) if name]


def is_kept_out(file: str, texts: set[str]) -> bool:
    package, _, path = file.rpartition(":")
    is_named = is_excluded(names_of(file), own_documents())
    return is_named or Place(path, package) in FILES.values() or file_text(file) in texts


def test_no_file_of_the_questions_on_own_documents_is_asked_about() -> None:
    texts = set(kept_out_texts())
    files = {line["file"] for line in shipped("manuals")}
    assert not [file for file in sorted(files) if is_kept_out(file, texts)]


@pytest.mark.parametrize("kept", FILES.values(), ids=FILES.keys())
def test_each_of_those_files_would_be_noticed(kept: Place) -> None:
    assert is_kept_out(f"{kept.package}:{kept.file}" if kept.package else kept.file, set())


def test_a_copy_of_such_a_file_would_be_noticed(tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_text("A text.")
    assert is_kept_out(str(copy), {"A text."})
    assert not is_kept_out(str(copy), {"Another text."})


def places(name: str) -> list[bool]:
    """Of each question with an answer whose text is here, whether its place is found."""
    pages = dict(encyclopedia()) if name == "wikipedia" else {}
    found = []
    for line in shipped(name):
        if name == "manuals":
            text = file_text(line["file"])
        else:
            text = line["text"] if name == "notes" else pages.get(line["title"], "")
        if text:
            found += [place(text, answer, near) >= 0 for _, answer, near in pairs(line) if answer]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_questions_find_their_places(name: str) -> None:
    if name == "wikipedia" and not DATA.is_dir():
        pytest.skip(f"no pages of Wikipedia in {DATA}")
    found = places(name)
    assert sum(found) >= FOUND * len(found)


def test_notes_answer_their_questions() -> None:
    """Their texts are here on every machine."""
    assert all(places("notes"))
