"""Bad rows and bad files: named by line and skipped, or refused, and never hiding good ones."""

import gzip
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadTask
from selfcorrect_rag.evaluation import task_rows
from selfcorrect_rag.evaluation.task_formats import FORMATS, question_of
from selfcorrect_rag.evaluation.task_rows import BadRow
from selfcorrect_rag.evaluation.tasks import Skipped, read_task

GOOD = [b'{"id": "a", "question": "A?"}', b'{"id": "z", "question": "Z?"}']
BAD = [
    (b'{"id": "b"}', "has no question"),
    (b'{"question": ""}', "has no question"),
    (b'{"question": "  "}', "has a blank question"),
    (b'{"question": 5}', "has a number as its question"),
    (b'{"question": ["A?"]}', "has a list as its question"),
    (b'["question"]', "is a list, not an object with fields"),
    (b"null", "is null, not an object with fields"),
    (b'{"question": "A?"', "is not JSON (Expecting ',' delimiter"),
    (b"\x00", "holds NUL"),
    (b'{"question": "A\\u0000?"}', "holds NUL or half of a surrogate pair"),
    (b'{"question": "A\\ud83d?"}', "holds NUL or half of a surrogate pair"),
    (b'{"question": "A?", "x": [{"\\udc00": 1}]}', "holds NUL or half of a surrogate pair"),
    (b'{"question": "A\xff?"}', "is not UTF-8"),
    (b'{"id": "a", "question": "B?"}', "has the id 'a' of "),
    (b'{"id": true, "question": "B?"}', "has a boolean as its id"),
    (b'{"question": "A?", "answers": [{"a": 1}]}', "has an object as an answer"),
    (b'{"question": "A?", "answers": [true]}', "has a boolean as an answer"),
    (b'{"question": "A?", "answer": NaN}', "has a number as an answer"),
    (b'{"question": "A?", "ctxs": "x", "title": 5}', "has a passage whose title"),
    (b'{"question": "A?", "ctxs": [5]}', "has a number among its passages"),
    (b'{"question": "A?", "ctxs": [{"title": "t"}]}', "has a passage without text"),
    (b'{"question": "A?", "ctxs": 5}', "has a number as its passages"),
    (b'{"question": "A?", "choices": ["a", "b"], "answer": "c"}', "has the answer 'c', which is"),
    (b'{"question": "A?", "choices": ["a", "b"], "answer": -1}', "has the answer '-1', which is"),
    (b'{"question": "A?", "choices": ["a"]}', "has fewer than two choices"),
    (b'{"question": "A?", "choices": [{}, 5]}', "has choices that are no options"),
    (b'{"claim": "A.", "label": "mixture"}', "has the label 'mixture', neither true nor false"),
    (b'{"question": "A?", "qa_pairs": 5}', "has no list of qa_pairs"),
    (b'{"question": "' + b"A" * 2000 + b'"}', "is longer than 1,000 characters"),
]


@pytest.fixture(autouse=True)
def _short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_rows, "MAX_ROW", 1000)
    monkeypatch.setattr(task_rows, "_BLOCK", 7)


def saved(folder: Path, content: bytes, name: str = "task.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("row", "reason"), BAD)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_bad_line_is_named_and_skipped(
    tmp_path: Path, row: bytes, reason: str, end: bytes
) -> None:
    path = saved(tmp_path, end.join([b"\xef\xbb\xbf" + GOOD[0], b"", row, GOOD[1]]))
    task = read_task(path)
    assert [question.id for question in task.questions] == ["a", "z"]
    (skipped,) = task.skipped
    assert skipped.place == f"{path}:3"
    assert skipped.reason.startswith(reason)
    with pytest.raises(BadTask) as refused:
        read_task(path, strict=True)
    assert str(refused.value) == f"{path}:3 {skipped.reason}"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_element_of_a_list_is_named_and_skipped(
    tmp_path: Path, row: bytes, reason: str
) -> None:
    if row == b'{"question": "A?"':
        row, reason = b'{"question": A?}', "is not JSON"
    path = saved(tmp_path, b"[\n" + b",\n".join([GOOD[0], row, GOOD[1]]) + b"\n]\n", "task.json")
    task = read_task(path)
    assert [question.id for question in task.questions] == ["a", "z"]
    (skipped,) = task.skipped
    assert skipped.place == f"{path}:3"
    assert skipped.reason.startswith(reason)


def test_ids_are_given_or_of_the_rows_position(tmp_path: Path) -> None:
    rows = [b'{"id": 0, "question": "A?"}', b"broken", b'{"question": "B?"}', b"", b'{"query":"C"}']
    task = read_task(saved(tmp_path, b"\n".join(rows)))
    assert [question.id for question in task.questions] == ["0", "row-3", "row-4"]


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf", b"[]", b" [ ]\n"])
@pytest.mark.parametrize("name", ["task.json", "task.csv"])
def test_an_empty_file_is_named(tmp_path: Path, content: bytes, name: str) -> None:
    if name == "task.csv" and content.strip() not in (b"", b"\xef\xbb\xbf"):
        content = b"question,answer\n"
    path = saved(tmp_path, content, name)
    assert read_task(path).skipped == (Skipped(f"{path}:1", "has no rows"),)
    with pytest.raises(BadTask, match="has no rows"):
        read_task(path, strict=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'[{"question": "A?"}] x', "ends the rows, and there is more after it"),
        (b'[{"question": "A?"},', "ends the file within the rows"),
        (b'[{"question": "A?"}, {"question": "B', "ends the file within the rows"),
        (b'[{"question": "A?"},]', "is not JSON"),
    ],
)
def test_a_list_that_does_not_end_well(tmp_path: Path, content: bytes, reason: str) -> None:
    task = read_task(saved(tmp_path, content, "task.json"))
    assert [question.question for question in task.questions] == ["A?"]
    assert [skipped.reason.startswith(reason) for skipped in task.skipped] == [True]


def test_rows_of_one_line_are_told_apart(tmp_path: Path) -> None:
    rows = b'[{"id": "a", "question": "A?"}, {"id": "a", "question": "B?"}, 5]'
    path = saved(tmp_path, rows, "task.json")
    assert read_task(path).skipped == (
        Skipped(f"{path}:1: row 2", f"has the id 'a' of {path}:1"),
        Skipped(f"{path}:1: row 3", "is a number, not an object with fields"),
    )


def test_a_mapping_of_ids_to_rows(tmp_path: Path) -> None:
    rows = {"7": {"question": "A?"}, "8": 5, "9": {"id": "own", "question": "B?"}}
    for content in (json.dumps(rows, indent=2), json.dumps({"7": rows["7"]})):
        task = read_task(saved(tmp_path, content.encode(), "task.json"))
        assert task.questions[0].id == "7"
    task = read_task(saved(tmp_path, json.dumps(rows, indent=2).encode(), "task.json"))
    assert [question.id for question in task.questions] == ["7", "own"]
    assert [skipped.reason for skipped in task.skipped] == ["is 8, which is no row"]


def test_lines_under_the_name_json(tmp_path: Path) -> None:
    task = read_task(saved(tmp_path, b"\n".join(GOOD), "task.json"))
    assert [question.id for question in task.questions] == ["a", "z"]


def test_a_gzip_that_breaks_off(tmp_path: Path) -> None:
    words = (sha256(str(i).encode()).hexdigest() for i in range(2000))
    whole = gzip.compress("\n".join(f'{{"question": "{word}"}}' for word in words).encode())
    path = saved(tmp_path, whole, "task.jsonl.gz")
    assert len(read_task(path, strict=True).questions) == 2000
    task = read_task(saved(tmp_path, whole[: len(whole) // 2], "task.jsonl.gz"))
    assert 500 < len(task.questions) < 1500
    assert task.skipped[-1].reason.startswith("cannot be read from here on (Compressed file ended")
    with pytest.raises(BadTask, match="cannot read"):
        read_task(saved(tmp_path, b"\x1f\x8bxxxx", "task.jsonl.gz"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("question\nA?".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        (b"PK\x03\x04", "is a zip archive or a spreadsheet"),
        (b"PAR1", "is Parquet"),
        (b"question,answer,answer\n", "has two columns named answer"),
        (b'question,"\n', "the line of columns"),
    ],
)
def test_files_that_hold_no_rows(tmp_path: Path, content: bytes, reason: str) -> None:
    path = saved(tmp_path, content, "task.csv")
    with pytest.raises(BadTask, match=reason):
        read_task(path)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadTask, match=f"cannot read {path}"):
            read_task(path)


def test_bad_rows_of_a_table(tmp_path: Path) -> None:
    rows = [
        b"id,question,answer",
        b"a,A?,x",
        b"b,B?,x,y",
        b'c,"C"?,x',
        b"d,D\x00?,x",
        b"e,E\xff?,x",
        b"f," + b"F" * 2000 + b",x",
        b"g",
        b"z,Z?",
    ]
    path = saved(tmp_path, b"\n".join(rows), "task.csv")
    task = read_task(path)
    assert [question.id for question in task.questions] == ["a", "z"]
    assert [(s.place.rpartition(":")[2], s.reason[:20]) for s in task.skipped] == [
        ("3", "has 4 cells for 3 co"),
        ("4", "is no row of a table"),
        ("5", "holds NUL"),
        ("6", "is not UTF-8"),
        ("7", "is longer than 1,000"),
        ("8", "has no question"),
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "id",
        "question",
        "answers",
        "answer",
        "golden_answers",
        "metadata",
        "ctxs",
        "docs",
        "context",
        "choices",
        "answerKey",
        "claim",
        "label",
        "topic",
        "qa_pairs",
        "claims",
        "final_decision",
        "supporting_facts",
        "answerable",
        "title",
    ]
)


@given(st.dictionaries(NAMES, VALUES), st.sampled_from([None, *FORMATS]))
@settings(max_examples=300, deadline=None)
def test_any_row_is_a_question_or_a_bad_row(row: dict[str, Any], format: str | None) -> None:
    question = fault = None
    try:
        question = question_of(row, 4, format)
    except BadRow as error:
        fault = str(error)
    if question is None:
        assert fault
        assert "\n" not in fault
        return
    assert question.question.strip()
    assert question.id
    assert all(isinstance(answer, str) and answer.strip() for answer in question.answers)
    assert not question.choices or set(question.answers) <= question.choices.keys()
    assert all(isinstance(passage.page_content, str) for passage in question.passages or ())


LINES = st.lists(
    st.binary(max_size=12) | st.sampled_from([*GOOD, *(row for row, _ in BAD), b"[", b"{", b'"']),
    max_size=6,
)


@given(LINES, st.sampled_from(["t.jsonl", "t.json", "t.csv", "t.tsv", "t"]))
@settings(max_examples=300, deadline=None)
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], name: str
) -> None:
    path = saved(tmp_path_factory.getbasetemp(), b"\n".join(lines), name)
    task, fault = None, ""
    try:
        task = read_task(path)
    except BadTask as error:
        fault = str(error)
    if task is None:
        assert "\n" not in fault
        return
    assert task.questions or task.skipped
    assert len({question.id for question in task.questions}) == len(task.questions)
    assert task.fingerprint == read_task(path).fingerprint


@given(st.lists(VALUES.filter(lambda v: v == v), min_size=1, max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_list_is_cut_where_json_cuts_it(values: list[Any], indented: bool) -> None:
    text = json.dumps(values, indent=1 if indented else None, ensure_ascii=indented)
    for size in (1, 3, len(text)):
        blocks = (text[i : i + size] for i in range(0, len(text), size))
        elements = [element for _, element in task_rows._elements(blocks, 1)]
        assert [json.dumps(json.loads(str(e))) for e in elements] == [json.dumps(v) for v in values]
