"""Rows of the reader from manuals: each rule on a small hand-made text."""

from pathlib import Path
from random import Random

import pytest

from nano_training.reader import manuals
from nano_training.reader.changelogs import changelog
from nano_training.reader.kept_out import FILES
from nano_training.reader.manuals import (
    Material,
    document_material,
    file_rows,
    is_excluded,
    manual_material,
    manual_rows,
    source_materials,
)
from nano_training.reader.mixture import own_documents
from nano_training.reader.pages import located, text_page
from nano_training.reader.roff import manual_page, unescaped
from nano_training.reader.rows import Row
from nano_training.reader.sources import docstring_blocks
from nano_training.reader.wording import (
    Phrase,
    clause,
    gerund,
    noun_phrase,
    participle,
    phrase,
    third,
)

ROFF = r"""'\" t
.TH COPYIT 1 "2022"
.SH NAME
copyit \- copy files and directories
.SH SYNOPSIS
.B copyit
[\fIOPTION\fR]... SOURCE DEST
.SH DESCRIPTION
Copies SOURCE to DEST, or several of them to a directory that must exist before.
.TP
\fB\-n\fR, \fB\-\-no\-clobber\fR
do not overwrite an existing file (overrides a previous \-i option)
.TP
\fB\-p\fR, \fB\-\-preserve\fR
Preserve permissions and ownership of files.
.TP
\fB\-t\fR, \fB\-\-timeout\fR=\fISECONDS\fR
Set the time to wait for a lock. The default is 30 seconds.
.SH ENVIRONMENT
.TP
.B COPYIT_HOME
The directory of temporary files.
.SH "EXIT STATUS"
.TP
.B 3
if the lock cannot be acquired
.SH EXAMPLES
To copy all pictures to the disk, run:
.PP
.EX
copyit -p *.jpg /mnt/disk
.EE
.SH AUTHOR
Written by Ada Byron.
"""
README = """\
# Fetcher

![badge](https://img.shields.io/x)

Fetcher is a small HTTP client for busy people. It listens on port 8123.

## Installation

```bash
$ pip install fetcher
```

Fetcher requires Python 3.9+ and is licensed under the MIT License.

- `retries` - Set the number of attempts. Defaults to `4`.
- `verify`: Check the certificate of the server.

To run the tests, type:

    pytest -q tests

It supports these formats: JSON, YAML and TOML.
"""
CHANGES = """\
# Changelog

## 1.4.0 (2023-04-06)

* Add support for proxies
* Fix a crash on empty answers (#12)

## 1.3.2 (2022-11-30)

* Drop support for Python 3.7
"""
SOURCE = '''\
"""Tool."""
import argparse

DEFAULT_PORT = 8080
SERVER_NAME = "sunny"


def fetch(url, *, timeout=5.0, follow=False):
    """Download a page from the given address of the network.

    Args:
        url: The address to download, with its scheme.
        timeout (float): Seconds to wait for the server.

    Returns:
        The body of the answer.

    Raises:
        TimeoutError: If the server does not answer in time.
    """


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-q", "--quiet", action="store_true", help="Do not print progress messages")
    parser.add_argument("--port", type=int, default=8080, help="Port of the local server")
    parser.add_argument("--out", default="result.json", help="Write results to this file")
    parser.parse_args()
'''


def rows_of(*materials: Material) -> list[Row]:
    return list(file_rows(list(materials), Random(1), 10_000))


def material_at(seed: int, roff: str = ROFF) -> Material:
    material = manual_material("copyit", "1", roff, Random(seed))
    assert material
    return material


def readme_at(seed: int) -> Material:
    return document_material("fetcher", "README.md", README, Random(seed))


def found(rows: list[Row], *, answer: str, source: str = "") -> list[str]:
    return [row.question for row in rows if answer in row.answers and row.source.startswith(source)]


def test_roff() -> None:
    blocks = manual_page("copyit", "1", ROFF)
    assert blocks
    heads = {block.head: block.body for block in blocks.blocks if block.kind == "entry"}
    assert heads["-n, --no-clobber"].startswith("do not overwrite an existing file (overrides")
    assert heads["-t, --timeout=SECONDS"].endswith("30 seconds.")
    assert [block.text for block in blocks.blocks if block.kind == "code"] == [
        "copyit -p *.jpg /mnt/disk"
    ]
    assert manual_page("other", "1", ".so man1/copyit.1\n") is None


def test_escapes() -> None:
    assert unescaped(r"\fB\-\-x\fR=\fI\,Y\/\fR \(co \*(lqa\*(rq \\").startswith('--x=Y © "a" ')


def test_docbook_entries() -> None:
    source = ".SH OPTIONS\n.PP\n\\fB\\-a\\fR, \\fB\\-\\-all\\fR\n.RS 4\nShow everything\\&.\n.RE\n"
    found = manual_page("x", "1", source)
    assert found
    assert [(block.head, block.body) for block in found.blocks[1:]] == [
        ("-a, --all", "Show everything.")
    ]


def test_manual_questions() -> None:
    rows = [row for seed in range(12) for row in rows_of(material_at(seed))]
    assert any("overwrit" in question for question in found(rows, answer="-n, --no-clobber"))
    assert not any("do not" in question for question in found(rows, answer="-n, --no-clobber"))
    assert found(rows, answer="30 seconds", source="defaults")
    assert found(rows, answer="COPYIT_HOME", source="environment variable")
    assert found(rows, answer="3", source="status")
    assert found(rows, answer="if the lock cannot be acquired", source="status")
    assert found(rows, answer="copyit -p *.jpg /mnt/disk", source="examples")
    assert found(rows, answer="Ada Byron", source="facts: author")
    assert found(rows, answer="copy files and directories", source="name")


def test_numbers_of_a_list_are_no_names() -> None:
    steps = '.SH NOTES\n.IP "10." 4\nThe width of a column.\n.TP\nwidth\nThe width of a column.\n'
    found = set()
    for seed in range(10):
        material = material_at(seed, ROFF + steps)
        found |= {asked.answer for asked in material.asked if asked.source == "settings: thing"}
        assert not [
            asked for asked in material.asked if "10." in f"{asked.question} {asked.answer}"
        ]
    assert found == {"width"}


def test_search_words_have_no_question_mark() -> None:
    asked = [
        one.question
        for seed in range(40)
        for one in [*material_at(seed).asked, *readme_at(seed).asked]
        if one.question.lower().startswith("how to ")
    ]
    assert asked
    assert not [question for question in asked if question.endswith("?")]


def test_a_tool_is_not_made_to_specify() -> None:
    steps = ".SH OPTIONS\n.TP\n.B \\-s\nSpecify the size of a block.\n"
    asked = [
        one.question
        for seed in range(60)
        for one in material_at(seed, ROFF + steps).asked
        if "block" in one.question
    ]
    assert any(question.startswith("How do I specify") for question in asked)
    assert not [question for question in asked if "make copyit specify" in question]


def test_readme() -> None:
    material = readme_at(0)
    answers = {asked.answer: asked.source for asked in material.asked}
    assert answers["pip install fetcher"] == "facts: install"
    assert answers["a small HTTP client for busy people"] == "facts: what it is"
    assert answers["8123"] == "facts: port"
    assert answers["MIT License"] == "facts: licence"
    assert answers["3.9+"] == "facts: python"
    assert answers["JSON, YAML and TOML"] == "facts: formats"
    assert answers["4"] == "defaults"
    assert answers["pytest -q tests"] == "examples"
    assert "badge" not in " ".join(block.text for block in material.page.blocks)


def test_definitions() -> None:
    blocks = text_page("x", "x", README).blocks
    assert [block.head for block in blocks if block.kind == "entry"] == ["retries", "verify"]


def test_changelog() -> None:
    sections = [block.section for block in changelog("x", "x", CHANGES).blocks[1:]]
    assert sections == ["1.4.0"] * 3 + ["1.3.2"] * 2
    rows = [
        row
        for seed in range(8)
        for row in rows_of(document_material("fetcher", "CHANGES.md", CHANGES, Random(seed)))
    ]
    assert any("proxies" in question for question in found(rows, answer="1.4.0"))
    assert any("dropped" in question for question in found(rows, answer="1.3.2"))
    assert found(rows, answer="2022-11-30", source="changelog: date")


def test_source() -> None:
    asked = [
        (one.source, one.answer)
        for seed in range(8)
        for material in source_materials("tool.fetching", "tool", SOURCE, Random(seed))
        for one in material.asked
    ]
    assert ("functions: default", "5.0") in asked
    assert ("functions: return", "The body of the answer") in asked
    assert ("functions: error", "TimeoutError") in asked
    assert ("functions", "fetch") in asked
    assert ("constants", "8080") in asked
    assert ("constants", "sunny") in asked
    assert ("options", "--out") in asked or ("options", "--out OUT") in asked
    assert ("options: meaning", "Do not print progress messages") in asked


@pytest.mark.parametrize(
    "doc",
    [
        "Get.\n\nArgs:\n    size (int): Bytes to\n        read at once.\n",
        "Get.\n\nParameters\n----------\nsize : int\n    Bytes to\n    read at once.\n",
        "Get.\n\n:param int size: Bytes to\n    read at once.\n",
    ],
)
def test_docstring_styles(doc: str) -> None:
    entries = [block for block in docstring_blocks(doc) if block.kind == "entry"]
    assert [(block.head, block.body) for block in entries] == [("size", "Bytes to read at once.")]


def test_answers_stand_in_their_passages() -> None:
    materials = [
        material_at(0),
        readme_at(0),
        document_material("fetcher", "CHANGES.md", CHANGES, Random(0)),
        *source_materials("tool.fetching", "tool", SOURCE, Random(0)),
    ]
    rows = [row for material in materials for row in rows_of(material)]
    assert len(rows) > 40
    for row in rows:
        for answer in row.answers:
            assert answer in row.passage
            assert answer == answer.strip(" .,;")


def test_unanswered_passages_lack_the_answer() -> None:
    for seed in range(20):
        for row in file_rows([material_at(seed)], Random(seed), 100):
            if not row.answers:
                assert "--no-clobber" not in row.passage or "overwrit" not in row.question


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which manuals stand: man1, doc and node."""
    for name, folder in (("MANUALS", ""), ("DOCUMENTS", "doc"), ("NODE", "node_modules")):
        monkeypatch.setattr(manuals, name, tmp_path / folder)
    monkeypatch.setattr(manuals, "UNANSWERED", 0)  # draws differ with the folder's name
    monkeypatch.setattr(manuals, "distributions", list)
    monkeypatch.setattr(manuals.sysconfig, "get_path", lambda name: str(tmp_path / "none"))
    (tmp_path / "man1").mkdir()
    return tmp_path


def test_excluded(machine: Path) -> None:
    (machine / "man1" / "copyit.1.gz").write_bytes(manuals.gzip.compress(ROFF.encode()))
    (machine / "doc" / "copyit").mkdir(parents=True)
    (machine / "doc" / "copyit" / "README.md").write_text(
        README.lower().replace("fetcher", "copyit")
    )
    rows = manual_rows(exclude=set())
    assert {"facts: install", "options", "name"} <= {row.source for row in rows}
    assert len(manual_rows(exclude=set(), limit=5)) == 5
    assert rows == manual_rows(exclude=set())
    assert manual_rows(exclude={"copyit"}) == []


def test_files_of_own_documents_give_no_rows(machine: Path) -> None:
    for number, place in enumerate(FILES.values()):
        path = Path(place.file)
        if "/man/" in place.file:
            (machine / "man1" / path.name).write_bytes(manuals.gzip.compress(ROFF.encode()))
        elif not place.package:
            (machine / "doc" / path.parent.name).mkdir(parents=True, exist_ok=True)
            further = range(50 * number)  # doubles, files of one length, are passed over
            packed = manuals.gzip.compress(f"{README}\n{list(further)}\n".encode())
            (machine / "doc" / path.parent.name / path.name).write_bytes(packed)
    commands = machine / "node_modules" / "npm" / "docs" / "content" / "commands"
    commands.mkdir(parents=True)
    (commands / "npm-audit.md").write_text(README)
    assert manual_rows(exclude=own_documents()) == []
    written = {str(path) for path in machine.rglob("*.*") if path.is_file()}
    assert {path for path, _ in manuals._files(set(), 0)} == written
    assert len(written) == 10


@pytest.mark.parametrize("name", ["HTTPX", "python3-httpx", "httpx_tools", "httpx"])
def test_excluded_names(name: str) -> None:
    assert is_excluded([name], {"httpx"})
    assert not is_excluded(["respx"], {"httpx"})


def test_located() -> None:
    assert located("-n", "see --no and -n.") == "-n"
    assert located("two words", "a two\n   words b") == "two\n   words"
    assert located("8", "80 and 18") == ""


def test_clause() -> None:
    assert clause("Print the size, e.g. of a file. And more.") == "Print the size, e.g. of a file"
    assert clause("List files (the default).") == "List files"
    assert clause("One of these: a, b") == ""


def test_phrase() -> None:
    assert phrase("Do not overwrite files.") == Phrase("overwrite", "files", True)
    assert phrase("This option prints the name") == Phrase("print", "the name")
    assert phrase("If set, use COLOR output") is None or phrase("If set, use the tool")
    assert phrase("Output file") is None
    assert phrase("Takes a boolean argument") is None
    assert phrase("Sets or deletes the default branch") is None


def test_verbs_that_are_joined_have_one_form() -> None:
    found = phrase("Print the version and exit.")
    assert found
    assert found.base() == "print the version and exit"
    assert found.third() == "prints the version and exits"
    assert found.gerund() == "printing the version and exiting"
    listed = phrase("Show the name and format of files.")
    assert listed
    assert listed.third() == "shows the name and format of files"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Maximum number of retries", "the maximum number of retries"),
        ("A list of names, one a line", "the list of names"),
        ("List of directories", "the list of directories"),
        ("Output file name", "the output file name"),
        ("URL for the new request", "the URL for the new request"),
        ("List details of each worktree", ""),
        ("Output code for the given shell", ""),
        ("Same as the --merge option above", ""),
        ("The default is to ask", ""),
        ("A synonym for --right-only", ""),
        ("New in version 3.25", ""),
    ],
)
def test_noun_phrase(text: str, named: str) -> None:
    assert noun_phrase(text) == named


def test_verb_forms() -> None:
    assert [gerund("stop"), gerund("write"), gerund("agree")] == ["stopping", "writing", "agreeing"]
    assert [third("copy"), third("pass"), third("do")] == ["copies", "passes", "does"]
    assert [participle("drop"), participle("copy"), participle("write")] == [
        "dropped",
        "copied",
        "written",
    ]
