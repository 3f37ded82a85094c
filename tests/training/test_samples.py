"""Reading training samples: our rows, the official files, and rows that are neither."""

import json
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training.samples import Sample, read_samples

ROW = {
    "question": "Who wrote Emma?",
    "answers": ["Jane Austen", "Austen"],
    "documents": [{"title": "Emma", "text": "By Austen."}, {"title": "Bath", "text": "A town."}],
}


def texts(sample: Sample) -> list[str]:
    return [document.page_content for document in sample.documents]


def read(path: Path, *rows: Any, **options: Any) -> list[Sample]:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return read_samples(path, **options)


def test_rows_one_a_line(tmp_path: Path) -> None:
    (sample,) = read(tmp_path / "rows.jsonl", ROW)
    assert sample.question == "Who wrote Emma?"
    assert sample.answers == ("Jane Austen", "Austen")
    assert texts(sample) == ["By Austen.", "A town."]
    assert sample.documents[0].metadata["title"] == "Emma"


def official(*scores: Any) -> dict[str, Any]:
    ctxs = [{"title": f"t{s}", "text": f"x{s}", "score": s, "hasanswer": True} for s in scores]
    return {"question": "Q?", "answers": ["A"], "ctxs": ctxs, "rationale": "older"}


@pytest.mark.parametrize("indent", [None, 2])
def test_the_official_files(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "train.json").write_text(json.dumps([official(1.5, 1.2), ROW], indent=indent))
    first, second = read_samples(tmp_path / "train.json")
    assert texts(first) == ["x1.5", "x1.2"]
    assert second.question == "Who wrote Emma?"


def test_documents_stand_best_first_by_score(tmp_path: Path) -> None:
    """The official code compares the first two scores only, and text scores as text."""
    rows = [official("9.5", "10.5"), official(1, 3, 2), official(1, "none"), official()]
    found = [texts(sample) for sample in read(tmp_path / "rows", *rows)]
    assert found == [["x10.5", "x9.5"], ["x3", "x2", "x1"], ["x1", "xnone"], []]


def test_asqas_answers_may_be_in_pairs(tmp_path: Path) -> None:
    pairs = [{"answers": ["1990", "in 1990"]}, {"answers": ["1991"]}, {"answers": ["1990"]}]
    row = {"question": "When?", "qa_pairs": pairs, "ctxs": []}
    (sample,) = read(tmp_path / "rows", row)
    assert sample.answers == ("1990", "in 1990", "1991")


def test_answers_are_wanted_unless_said_otherwise(tmp_path: Path) -> None:
    row = {"question": "Who?", "documents": []}
    with pytest.raises(BadTrainingData, match=r"rows:1: no answers"):
        read(tmp_path / "rows", row)
    assert read(tmp_path / "rows", row, answered=False) == [Sample("Who?", (), ())]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"answers": ["A"], "documents": []}, "no question"),
        ({"question": " ", "answers": ["A"], "documents": []}, "no question"),
        ({"question": "Q", "answers": [1], "documents": []}, "not a list of texts"),
        ({"question": "Q", "answers": [" "], "documents": []}, "no answers"),
        ({"question": "Q", "answers": ["A"]}, "no list of documents"),
        ({"question": "Q", "answers": ["A"], "documents": ["x", {"txt": 1}]}, "document 2 has no"),
        ({"question": "Q", "answers": ["A"], "documents": [{"text": " "}]}, "document 1 has no"),
        (["Q"], "not {"),
        ("Q", "not {"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, bad: Any, why: str) -> None:
    """A file of rows names the line; a list of them also the row."""
    path = tmp_path / "rows.json"
    with pytest.raises(BadTrainingData, match=rf"rows\.json:2: .*{why}"):
        read(path, ROW, bad)
    path.write_text(json.dumps([ROW, ROW, bad], indent=1))
    with pytest.raises(BadTrainingData, match=rf"rows\.json:\d+: row 3: .*{why}") as error:
        read_samples(path)
    line = int(str(error.value).split(":")[1])
    rest = "\n".join(path.read_text().split("\n")[line - 1 :])
    assert json.JSONDecoder().raw_decode(rest.strip())[0] == bad


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"question": ', r"rows:1: not JSON"),
        ('\n[{"question": "Q", "answers": ["A"], "documents": []},\n{"q]', r"rows:3: row 2 is not"),
        ('[{"question": "Q", "answers": ["A"], "documents": []}', r"does not end"),
        ("[]", "no rows"),
        ("", "no rows"),
        ("[" * 100_000, r"row 1 is not JSON"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "rows").write_text(text)
    with pytest.raises(BadTrainingData, match=why):
        read_samples(tmp_path / "rows")
    with pytest.raises(BadTrainingData, match="cannot read"):
        read_samples(tmp_path / "none")


def test_a_line_ends_where_json_says(tmp_path: Path) -> None:
    row = {**ROW, "question": "One\u2028two\x85?"}
    (tmp_path / "rows").write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    assert read_samples(tmp_path / "rows")[0].question == "One\u2028two\x85?"


def test_a_digest_tells_samples_apart(tmp_path: Path) -> None:
    other = {**ROW, "documents": ROW["documents"][::-1]}
    rows = read(tmp_path / "rows", ROW, other, {**ROW, "answers": ["Austen"]}, ROW)
    digests = [sample.digest for sample in rows]
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]
