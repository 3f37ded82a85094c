"""Untrusted text at the door: valid, bounded, plain, and shown on one line."""

import datetime
import json
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from selfcorrect_rag import intake
from selfcorrect_rag.errors import NoDocument


def test_valid() -> None:
    assert intake.valid("an emoji cut in two \ud83d here") == "an emoji cut in two \ufffd here"
    assert intake.valid("\ud83d\ude00") == "\U0001f600"
    assert intake.valid("a\x00b\x1b[31mc") == "a\ufffdb\ufffd[31mc"
    assert intake.valid("line\x85page\x0cend") == "line\npage\nend"


@given(st.text(st.characters(codec=None, categories=("Cs", "Cc", "L", "So"))))
def test_valid_text_is_encoded_and_stays(text: str) -> None:
    done = intake.valid(text)
    done.encode()
    assert intake.valid(done) == done


def test_long_questions_and_documents_are_cut_and_notes_say_so() -> None:
    cut = ["the question was cut to its first 10 characters"]
    assert intake.admit_question("x" * 12, 10) == ("x" * 10, cut)
    assert "cannot be read" in intake.admit_question("\x00", 10)[1][0]
    source = {"title": "a\nb", "source": "s" * 40, "more": "m" * 90}
    documents = [Document("y" * 120, metadata=source, id="i" * 2000), Document("fine")]
    found, notes = intake.admit(documents, 100, "documents")
    assert len(found[0].page_content) == 100
    assert found[0].metadata == {"title": "a b", "source": "s" * 40}, "dropped, not cut"
    assert len(found[0].id or "") == 1000
    assert notes == [
        "1 of 2 documents cut to the first 100 characters (document_characters)",
        "1 of 2 documents lost metadata longer than 100 characters",
    ]


PLAIN: list[tuple[Any, Any]] = [
    (np.float32(0.5), 0.5),
    ({3: {"x": {1}}}, {"3": {"x": [1]}}),
    (np.array([1, 2]), [1, 2]),
    (PurePosixPath("a/b"), "a/b"),
    (datetime.date(2026, 11, 28), "2026-11-28"),
]


@pytest.mark.parametrize(("value", "expected"), PLAIN, ids=lambda v: type(v).__name__)
def test_metadata_become_plain_values(value: Any, expected: Any) -> None:
    done = intake.plain(value, "metadata")
    assert done == expected
    assert type(done) is type(expected)
    json.dumps(done)


def test_metadata_that_are_not_data_are_refused_by_document_and_key() -> None:
    bad = Document("b", metadata={"score": len})
    with pytest.raises(NoDocument, match=r"retrieved documents, 1: metadata 'score' is a"):
        intake.admit([Document("a"), bad], 100, "retrieved documents")


def test_deep_and_wide_metadata_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    assert "\u2026" in json.dumps(intake.plain(deep, "x"), ensure_ascii=False)
    assert len(intake.plain(range(10**9), "x")) == 1000
    wide = Document("a", metadata={str(i): 0 for i in range(5000)})
    ((kept,), _) = intake.admit([wide], 10**6, "d")
    assert len(kept.metadata) == 1000


def test_what_is_not_documents_is_refused() -> None:
    unfit: dict[str, Any] = {"gave None": None, "a dict with 'page_content'": {"page_content": "x"}}
    unfit |= {"as document 0": [{"page_content": "x", "metadata": 3}], "a Document": Document("x")}
    for says, given_documents in unfit.items():
        with pytest.raises(NoDocument, match=says):
            intake.as_documents(given_documents)


def test_documents_from_json_and_generators() -> None:
    found = intake.as_documents({"page_content": str(i), "id": i} for i in range(20_000))
    assert (len(found), found[1].page_content, found[1].id) == (10_000, "1", "1")


SAFE = ["https://example.org/a?b=c#d", "file:///home/a.txt", "notes/a.md", r"C:\notes\a.md"]
SAFE += ["/notes/Meeting 10:30.md"]
UNSAFE = ["JaVaScRiPt:alert(1)", "https://user:secret@example.org", "https://a.org/<script>"]
UNSAFE += ["/x](javascript:a)", "//evil.org/x", "a\u202eb", "https://a.org/" + "x" * 3000]


def test_sources_that_are_safe_to_show() -> None:
    assert [intake.shown_source(source) for source in SAFE] == SAFE
    assert [intake.shown_source(source) for source in UNSAFE] == [""] * len(UNSAFE)


def test_titles_are_one_line_and_links_are_web_addresses() -> None:
    assert intake.title_line("a\n\u202eb\x00c") == "a b c"
    assert len(intake.title_line("x" * 300)) <= intake.MAX_TITLE
    assert intake.web_address("a.md, https://a.org") == "https://a.org"
