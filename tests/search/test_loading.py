import codecs
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.search import Problem, load
from selfcorrect_rag.search.loading import PIECE

from .stand_ins import pdf

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[3] / "shared" / "data"))


def read(*paths: Path, **options: Any) -> tuple[list[Document], list[Problem]]:
    problems: list[Problem] = []
    return list(load(paths, problems.append, **options)), problems


def contents(*paths: Path) -> list[tuple[str, str]]:
    documents, problems = read(*paths)
    assert not problems
    return [(document.metadata["title"], document.page_content) for document in documents]


def reason(path: Path, **options: Any) -> str:
    """Why a file, which must be the only one, was not read, or not in whole."""
    _, (problem,) = read(path, **options)
    assert problem.path == str(path)
    return problem.reason


def test_text_is_titled_by_its_name(docs: Path) -> None:
    (docs / "field_notes.txt").write_text("Rain all day.\r\n\r\n\r\n  Mud.  ")
    assert contents(docs) == [("field notes", "Rain all day.\n\nMud.")]


def test_markdown_is_titled_by_its_heading(docs: Path) -> None:
    (docs / "a.md").write_text("intro\n# The heading \ntext")
    (docs / "b.MD").write_text("no heading")
    assert [title for title, _ in contents(docs)] == ["The heading", "b"]


def test_pdf_gives_pages(docs: Path) -> None:
    (docs / "a.pdf").write_bytes(pdf("First page.", "Second page.", title="A paper"))
    documents, problems = read(docs)
    assert [(d.page_content, d.metadata["page"]) for d in documents] == [
        ("First page.", 1),
        ("Second page.", 2),
    ]
    assert documents[0].metadata["title"] == "A paper"
    assert not problems


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"title": "T", "text": "x"}, [("T", "x")]),
        ([{"title": "T", "text": "x"}, {"text": "y"}], [("T", "x"), ("", "y")]),
        (["x", "y"], [("", "x"), ("", "y")]),
        ({"Title": "T", "contents": ["x", "y"]}, [("T", "x y")]),
        ([{"question": "?", "ctxs": [{"title": "T", "text": "x"}]}], [("T", "x")]),
        ([{"paragraphs": [{"title": "T", "paragraph_text": "x"}]}], [("T", "x")]),
        ([{"context": [["T", ["x", "y"]], ["U", ["z"]]]}], [("T", "x y"), ("U", "z")]),
        ({"T": ["x", "y"], "U": ["z"]}, [("T", "x y"), ("U", "z")]),
        ({"17": {"QUESTION": "?", "CONTEXTS": ["x", "y"]}}, [("", "x"), ("", "y")]),
        ({"data": [{"title": "T", "paragraphs": [{"context": "x", "qas": []}]}]}, [("T", "x")]),
        ({"demos": [{"docs": [{"title": "T", "text": "x"}]}]}, [("T", "x")]),
        ({"title": "T", "text": "x", "url": "u", "n": 1, "vector": [0.5]}, [("T", "x")]),
    ],
)
def test_json_in_the_shapes_of_question_answering_data(
    docs: Path, value: Any, expected: list[tuple[str, str]]
) -> None:
    (docs / "a.json").write_text(json.dumps(value))
    assert contents(docs) == expected
    (docs / "a.json").unlink()
    if not isinstance(value, dict) or "text" in value:
        rows = value if isinstance(value, list) else [value]
        (docs / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert contents(docs) == expected


def test_short_fields_of_a_row_become_metadata(docs: Path) -> None:
    row = {"text": "x", "url": "u", "year": 1990, "long": "y" * 1000, "nested": {}, "source": "z"}
    (docs / "a.json").write_text(json.dumps(row))
    ((document,), _) = read(docs)
    assert document.metadata == {
        "url": "u",
        "year": 1990,
        "title": "",
        "source": str(docs / "a.json"),
    }


def test_gzip_is_read_through(docs: Path) -> None:
    (docs / "a.json.gz").write_bytes(gzip.compress(b'{"text": "x"}'))
    (docs / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "y"}\n{"text": "z"}'))
    (docs / "c.txt.gz").write_bytes(gzip.compress(b"w"))
    assert [text for _, text in contents(docs)] == ["x", "y", "z", "w"]


def test_rows_in_a_json_file_are_read_as_lines(docs: Path) -> None:
    (docs / "a.json").write_text('{"text": "x"}\n{"text": "y"}')
    assert [text for _, text in contents(docs)] == ["x", "y"]


@pytest.mark.parametrize(
    "data",
    [
        "Zürich".encode(),
        codecs.BOM_UTF8 + "Zürich".encode(),
        "Zürich".encode("utf-16"),
        "Zürich".encode("utf-32"),
    ],
)
def test_encodings_that_say_what_they_are(docs: Path, data: bytes) -> None:
    (docs / "a.txt").write_bytes(data)
    assert [text for _, text in contents(docs)] == ["Zürich"]


def test_another_encoding_is_guessed_and_said(docs: Path) -> None:
    (docs / "a.txt").write_bytes("Zürich".encode("latin-1"))
    (document,), (problem,) = read(docs)
    assert document.page_content == "Zürich"
    assert problem == Problem(str(docs / "a.txt"), "not UTF-8: read as Windows-1252", partly=True)


def test_what_no_index_can_store_is_replaced(docs: Path) -> None:
    (docs / "a.json").write_text('{"title": "a\\u0000\\nb", "text": "x\\ud800y\\u0000"}')
    (document,), (problem,) = read(docs)
    assert (document.metadata["title"], document.page_content) == ("a\ufffd b", "x\ufffdy\ufffd")
    assert (problem.reason, problem.partly) == ("what is no text in it was replaced", True)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"\x7fELF\0\0\1", "binary, not text"),
        ("a.txt", codecs.BOM_UTF16_LE + b"x", "broken utf-16"),
        ("a.txt", b"", "no text in it"),
        ("a.md", b" \n ", "no text in it"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b'{"a": "b"}', "no passages in it"),
        ("a.json", b"7" * 10_000, "not JSON"),
        ("a.jsonl", b"x\ny", "line 1 is not JSON"),
        ("a.jsonl", b"", "no passages in it"),
        ("a.txt.gz", b"not gzip", "broken gzip"),
        ("a.txt.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], "broken gzip"),
        ("a.pdf", b"%PDF-1.4 and nothing more", "broken or encrypted PDF"),
        ("a.pdf", b"", "broken or encrypted PDF"),
        ("a.pdf", pdf(""), "no text in it; a scan needs OCR"),
    ],
)
def test_a_broken_file_is_named_and_the_rest_is_read(
    docs: Path, name: str, data: bytes, expected: str
) -> None:
    (docs / name).write_bytes(data)
    (docs / "good.txt").write_text("good")
    (good,), (problem,) = read(docs)
    assert good.page_content == "good"
    assert problem.path == str(docs / name)
    assert problem.reason.startswith(expected)


def test_broken_lines_are_named_and_the_rest_is_read(docs: Path) -> None:
    lines = ['{"text": "x"}', "{", "", "[" * 100_000, '{"text": "y"}', "nonsense"]
    (docs / "a.jsonl").write_text("\n".join(lines))
    documents, (problem,) = read(docs)
    assert [document.page_content for document in documents] == ["x", "y"]
    assert problem.reason.startswith("line 2 is not JSON")
    assert problem.reason.endswith("and 2 more lines")
    assert problem.partly


def test_one_huge_line_is_read(docs: Path) -> None:
    (docs / "a.txt").write_text("word" * 500_000)
    assert "".join(text for _, text in contents(docs)) == "word" * 500_000


def test_a_long_text_comes_in_pieces_that_lose_nothing(docs: Path) -> None:
    lines = [f"Line {i} of a long text." for i in range(100_000)]
    for name, border in (("a", "\n\n"), ("b", "\r\n"), ("c", " ")):
        (docs / f"{name}.txt").write_text(border.join(lines), newline="")
    documents, problems = read(docs)
    assert not problems
    assert max(len(document.page_content) for document in documents) <= PIECE
    for title in "abc":
        pieces = [d.page_content for d in documents if d.metadata["title"] == title]
        assert len(pieces) > 2
        assert all(piece.startswith("Line ") and piece.endswith(".") for piece in pieces[:2])
        assert " ".join(pieces).split() == " ".join(lines).split()


def test_a_line_that_is_too_long_is_named_and_the_rest_is_read(docs: Path) -> None:
    long = json.dumps({"text": "word " * 300})
    (docs / "a.jsonl").write_text("\n".join(['{"text": "x"}', long, '{"text": "y"}']))
    documents, (problem,) = read(docs, max_bytes=4096)
    assert [document.page_content for document in documents] == ["x", "y"]
    assert problem.reason == "line 2 is too long (1,024 characters or more)"


def test_what_is_read_whole_may_be_a_quarter(docs: Path) -> None:
    (docs / "a.json").write_text(json.dumps({"text": "x" * 2**20}))
    assert reason(docs / "a.json", max_bytes=2**22) == "larger than 1 MiB"
    assert not read(docs, max_bytes=2**23)[1]


def test_a_file_that_changes_while_it_is_read_is_named(docs: Path) -> None:
    (docs / "a.jsonl").write_text('{"text": "x"}\n' * 2)
    problems: list[Problem] = []
    for _ in load([docs], problems.append):
        (docs / "a.jsonl").write_text('{"text": "y"}\n' * 9)
    assert [problem.reason for problem in problems] == ["changed while it was read: run again"]


def test_a_large_file_is_named_also_where_gzip_hides_its_size(docs: Path) -> None:
    (docs / "a.txt").write_bytes(b"x" * 2**20)
    assert reason(docs / "a.txt", max_bytes=2**20 - 1) == "larger than 1 MiB"
    (docs / "b.txt.gz").write_bytes(gzip.compress(b"x" * 2**24))
    assert reason(docs / "b.txt.gz", max_bytes=2**20) == "larger than 1 MiB"


def test_a_file_without_permission_is_named(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> int:
        raise PermissionError(13, "Permission denied")

    (docs / "a.txt").write_text("x")
    monkeypatch.setattr(os, "open", refuse)  # root may read what it likes
    assert reason(docs / "a.txt") == "Permission denied"


def test_hidden_files_and_names_that_are_no_text(docs: Path) -> None:
    (docs / ".hidden.txt").write_text("x")
    with open(os.fsencode(docs) + b"/\xff.txt", "w") as file:
        file.write("y")
    ((document,), _) = read(docs)
    assert document.metadata["source"] == f"{docs}/\\xff.txt"


def test_pdf_without_pypdf_names_the_remedy(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (docs / "a.pdf").write_bytes(pdf("x"))
    assert reason(docs / "a.pdf") == 'pypdf is not installed: pip install "selfcorrect-rag[chroma]"'


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}: set SELFCORRECT_DATA")
@pytest.mark.parametrize(
    ("name", "passages"),
    [
        ("2wikimultihopqa_corpus_6119.json", 6119),
        ("nq_open_oracle_2655.jsonl.gz", 2655),
        ("popqa_dev_741.jsonl", 1482),
        ("musique_train100.json", 2000),
        ("hotpotqa_train100.json", 994),
        ("hotpotqa_train100_corpus.json", 994),
        ("pubmedqa_pqal_1000.json", 3358),
        ("alce_asqa_default_prompt.json", 20),
    ],
)
def test_real_data(name: str, passages: int) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in {DATA}")
    assert len(contents(DATA / name)) == passages
