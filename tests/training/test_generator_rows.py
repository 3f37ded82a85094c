"""Rows of the generator's data: reading them, sentences, and the order of reflection tokens."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadTrainingData, MissingExtra
from selfcorrect_rag.training.generator_rows import (
    GeneratorRow,
    order_faults,
    read_generator_rows,
    segments,
    tokens_and_texts,
)

REAL = Path(os.environ.get("SELFCORRECT_DATA", "../shared/data"))
REAL_ROWS = REAL / "selfrag_generator_train_50samples.jsonl"
real = pytest.mark.skipif(not REAL_ROWS.exists(), reason="needs the 50 real rows, not copied here")


@real
def test_the_official_rows_are_read_whole() -> None:
    rows = read_generator_rows(REAL_ROWS)
    given = [json.loads(line) for line in REAL_ROWS.read_text().splitlines()]
    assert [row._asdict() for row in rows] == given
    assert list(given[0]) == list(GeneratorRow._fields)


@real
def test_the_order_of_tokens_in_the_official_rows() -> None:
    """Ours keep to it without exception: see test_augmentation."""
    faults = {row.id: order_faults(row.output) for row in read_generator_rows(REAL_ROWS)}
    skipped = ["text before the first token"]  # sentences under 30 characters are not judged there
    unread = "[Continue to Use Evidence] before any passage"
    assert {key: found for key, found in faults.items() if found} == {
        "flan_v2_97497": [*skipped, unread],
        "flan_v2_97393": skipped,
        "flan_v2_95910": skipped,
        "flan_v2_31050": skipped,
    }


P = "<paragraph>T\ntext</paragraph>"


@pytest.mark.parametrize(
    "output",
    [
        "[No Retrieval]y[Utility:5]",
        f"[Retrieval]{P}[Relevant]y[Fully supported][Utility:1]",
        f"[Retrieval]{P}[Irrelevant]y[Utility:2]",
        f"[No Retrieval]a[Retrieval]{P}[Relevant]b[Partially supported]"
        f"[Continue to Use Evidence]c[No Retrieval]d[Utility:3]",
    ],
)
def test_orders_that_are_right(output: str) -> None:
    assert order_faults(output) == []


@pytest.mark.parametrize(
    "output",
    [
        "y",
        "[No Retrieval]y",
        "[No Retrieval][Utility:5]",
        "[No Retrieval]y[Utility:5]z",
        "[No Retrieval]y[Utility:5][Utility:5]",
        f"[Retrieval]{P}y[Utility:5]",
        f"[Retrieval]{P}[Relevant]y[Utility:5]",
        f"[Retrieval]{P}[Irrelevant]y[Fully supported][Utility:5]",
        "[Retrieval]<paragraph>t[Relevant]y[Fully supported][Utility:5]",
        f"[No Retrieval]{P}[Relevant]y[Fully supported][Utility:5]",
        f"[Retrieval]{P}[Relevant][Fully supported]y[Utility:5]",
    ],
)
def test_orders_that_are_wrong(output: str) -> None:
    assert order_faults(output)[0].startswith("tokens are out of order")


@pytest.mark.parametrize(
    ("output", "faults"),
    [
        ("x[No Retrieval]y[Utility:5]", ["text before the first token"]),
        ("x[Utility:5]", ["text before the first token"]),
        (
            f"[No Retrieval]x[Continue to Use Evidence]y[Retrieval]{P}[Irrelevant]z[Utility:5]",
            ["[Continue to Use Evidence] before any passage"],
        ),
        (
            "x[Continue to Use Evidence]y[Utility:5]",
            ["text before the first token", "[Continue to Use Evidence] before any passage"],
        ),
    ],
)
def test_what_is_in_order_and_wrong_all_the_same(output: str, faults: list[str]) -> None:
    assert order_faults(output) == faults


def test_tokens_and_texts_are_the_whole_output() -> None:
    parts = list(tokens_and_texts("[No Retrieval]a[b][Utility:4]"))
    assert parts == [("[No Retrieval]", True), ("a[b]", False), ("[Utility:4]", True)]


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_keys_that_may_be_absent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows",
        {"instruction": "i", "output": " o\n", "topic": "more"},
        {"instruction": "i", "output": "o", "input": None, "id": 7, "dataset_name": "d"},
    )
    assert read_generator_rows(path) == [
        GeneratorRow("i", " o\n", "", "", ""),
        GeneratorRow("i", "o", "", "7", "d"),
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "i"},
        {"instruction": " ", "output": "o"},
        [],
        3,
        {"instruction": "i", "output": ["o"]},
        {"instruction": "i", "output": "o", "id": {}},
    ],
)
def test_rows_that_cannot_be_read_are_named(tmp_path: Path, row: object) -> None:
    path = write(tmp_path / "rows", {"instruction": "i", "output": "o"}, row)
    needed = 'not {"instruction": ..., "output": ...}, with or without input, id, dataset_name'
    with pytest.raises(BadTrainingData, match=f"^{re.escape(f'{path}:2: {needed}')}$"):
        read_generator_rows(path)
    with pytest.raises(BadTrainingData, match="holds no rows"):
        read_generator_rows(write(tmp_path / "none"))


@pytest.mark.parametrize(
    ("row", "slot"),
    [
        (GeneratorRow("Who?", "y"), "Who?"),
        (GeneratorRow("Is it true?", "y", "It is."), "Is it true?## Input:\n\nIt is."),
    ],
)
def test_the_question_is_the_slot_of_inference(row: GeneratorRow, slot: str) -> None:
    assert row.question == slot


def test_a_digest_tells_rows_apart_and_is_the_same_in_any_run() -> None:
    rows = [GeneratorRow("a", "b"), GeneratorRow("ab", ""), GeneratorRow("a", "b", id="1")]
    assert len({row.digest for row in rows}) == 3
    assert rows[0].digest == "c59fbf769846168ca9ae8e5261230e5c"
    assert GeneratorRow("é", "b", "c", "d", "e").digest == "45bdd1974af0746cb4b2113c64ccb60d"


def test_what_splits_sentences_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(MissingExtra, match=r'pip install "selfcorrect-rag\[train\]"'):
        segments("It is so.", "en")


def test_sentences_as_a_library_splits_them() -> None:
    assert segments("Dr. No was made in the U.S. in 1962. It won.\n\n1. Yes it did.", "en") == [
        "Dr. No was made in the U.S. in 1962. ",
        "It won.\n\n",
        "1. Yes it did.",
    ]


def test_blank_lines_end_the_sentence_before_them() -> None:
    sentences = ["It is so. ", "It was so. ", "It will be so.\n\n \n"]
    assert segments("".join(sentences), "en") == sentences
    assert segments("\n\nIt is so. It was so.", "en") == ["\n\nIt is so. ", "It was so."]


def test_a_single_word_is_no_sentence_of_its_own() -> None:
    assert segments("It is so. Yes.\nIt was so. No.\n", "en") == [
        "It is so. ",
        "Yes.\nIt was so. No.\n",
    ]
    assert segments("Paris", "en") == ["Paris"]
    assert segments("Paris.\nRome.", "en") == ["Paris.\nRome."]
    for output in ("1\u2028?A\n\n", "It is so.\nYes.\n\n"):
        assert "".join(segments(output, "en")) == output


@given(st.text(alphabet="ab .!?\n\t\"'()[]A。1é\u2028\ud83d\U0001f600", min_size=1))
def test_segments_are_the_whole_output(output: str) -> None:
    found = segments(output, "en")
    assert "".join(found) == output
    assert all(len(segment.split()) >= 2 for segment in found) or len(found) == 1
