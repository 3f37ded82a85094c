"""Training data of the evaluator: reading, splitting, hard negatives."""

import json
from pathlib import Path

import pytest

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training.evaluator import (
    GradedRow,
    mine_negatives,
    parted,
    read_corpus,
    read_graded,
)


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


def test_rows_of_one_question_are_put_together(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        {"question": "Who?", "positives": ["a"], "negatives": ["b"]},
        "",
        {"question": "Who? ", "negatives": ["b", "c"]},
        {"question": "When?", "positives": ["d"]},
    )
    assert read_graded(file) == [GradedRow("Who?", ("a",), ("b", "c")), GradedRow("When?", ("d",))]


@pytest.mark.parametrize(
    "row",
    [
        "{not json",
        "[]",
        {"question": ""},
        {"question": "Who?"},
        {"positives": ["a"]},
        {"question": 3},
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, row: object) -> None:
    file = write(tmp_path / "rows.jsonl", {"question": "A?", "positives": ["a"]}, row)
    with pytest.raises(BadTrainingData, match=r"rows\.jsonl:2: not"):
        read_graded(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for read in (read_graded, read_corpus):
        with pytest.raises(BadTrainingData, match="cannot read"):
            read(tmp_path / "missing.jsonl")


def test_a_corpus_of_strings_or_objects(tmp_path: Path) -> None:
    file = write(tmp_path / "corpus.jsonl", '"a"', {"text": "c", "title": "B"}, {"text": "d"})
    assert read_corpus(file) == ["a", "B // c", "d"], "as an evaluator reads them"
    for row in ({"title": "B"}, {"text": None}, 7):
        with pytest.raises(BadTrainingData, match=r"corpus\.jsonl:1"):
            read_corpus(write(tmp_path / "corpus.jsonl", row))


def test_passages_are_lists_of_texts(tmp_path: Path) -> None:
    row = {"question": "A?", "positives": [{"title": "B", "text": "c"}], "negatives": ["d"]}
    assert read_graded(write(tmp_path / "a.jsonl", row)) == [GradedRow("A?", ("B // c",), ("d",))]
    for passages in ("Emma", [7], [{"title": "B"}], {"text": "c"}):
        with pytest.raises(BadTrainingData, match=r"a\.jsonl:1: not"):
            read_graded(write(tmp_path / "a.jsonl", {"question": "A?", "positives": passages}))


@pytest.mark.parametrize("blank", ["", " \n", {"title": "B", "text": " "}])
@pytest.mark.parametrize("kind", ["positives", "negatives"])
def test_a_blank_passage_is_refused(tmp_path: Path, kind: str, blank: object) -> None:
    good = {"question": "A?", "positives": ["a"], "negatives": ["b"]}
    file = write(tmp_path / "a.jsonl", good, {**good, kind: ["c", blank]})
    with pytest.raises(BadTrainingData, match=r"a\.jsonl:2: a passage is blank"):
        read_graded(file)


def test_a_passage_is_either_positive_or_negative(tmp_path: Path) -> None:
    row = {"question": "A?", "positives": ["a", "B // c"], "negatives": ["d"]}
    both = {**row, "negatives": ["d", {"title": "B", "text": "c"}]}
    with pytest.raises(BadTrainingData, match=r"a\.jsonl:2: a passage is both"):
        read_graded(write(tmp_path / "a.jsonl", row, both))
    before = {"question": "A?", "positives": [], "negatives": ["a", "e"]}
    after = {"question": "A?", "positives": ["f"], "negatives": ["B // c"]}
    read = read_graded(write(tmp_path / "a.jsonl", before, row, after))
    assert read == [GradedRow("A?", ("a", "B // c", "f"), ("e", "d"))], "positive in any row"


def test_half_a_surrogate_pair_has_its_part() -> None:
    assert GradedRow("Who \ud83d?").part == GradedRow("who \ud83d?").part


def test_a_question_is_always_in_the_same_part() -> None:
    parts = [GradedRow(f"Question {i}?").part for i in range(2000)]
    assert GradedRow("who  WROTE it?").part == GradedRow("Who wrote it?").part
    assert 0.66 < parts.count("train") / 2000 < 0.74
    assert 0.17 < parts.count("test") / 2000 < 0.23


def test_hard_negatives_look_right_and_are_not_known_to_be() -> None:
    corpus = [
        "Emma is a novel by Jane Austen.",
        "Emma is a film by Douglas McGrath.",
        "Emma Stone is an actress in film.",
        "Lima is a city in Peru.",
    ]
    rows = [GradedRow("Who wrote the novel Emma?", (corpus[0],), (corpus[3],))]
    (mined,) = mine_negatives(rows, corpus, 2)
    assert set(mined.negatives) == {corpus[3], corpus[1], corpus[2]}
    assert mined.negatives[0] == corpus[3]
    assert mine_negatives(rows, [], 2) == rows
    assert mine_negatives(rows, ["the of", "and"], 2) == rows
    (contained,) = mine_negatives([GradedRow("Emma novel", ("Emma is a novel",))], corpus, 5)
    assert corpus[0] not in contained.negatives


def test_blank_passages_are_no_hard_negatives_and_hide_none() -> None:
    corpus = ["", " ", "Emma is a film.", "Emma is a novel."]
    (mined,) = mine_negatives([GradedRow("Emma?", (corpus[3], "", " "))], corpus, 4)
    assert mined.negatives == ("Emma is a film.",)
    assert mine_negatives([GradedRow("Emma?")], ["", " "], 4) == [GradedRow("Emma?")]


def test_fewer_than_no_hard_negatives_are_refused() -> None:
    rows = [GradedRow(f"Question {i}?", (f"answer {i}",)) for i in range(20)]
    for ask in (mine_negatives, parted):
        with pytest.raises(BadTrainingData, match="hard negatives -1: it must be 0 or more"):
            ask(rows, ["a"], -1)
    with pytest.raises(BadTrainingData):
        mine_negatives([], [], -1)
