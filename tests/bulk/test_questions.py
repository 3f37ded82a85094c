"""Questions read from files of every kind, broken rows included."""

import gzip
import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from selfcorrect_rag.bulk import questions as module
from selfcorrect_rag.bulk.question_files import BadQuestions, find_files
from selfcorrect_rag.bulk.questions import (
    Columns,
    Line,
    check_columns,
    read_questions,
)
from selfcorrect_rag.settings import LONGEST_TEXT


def read(path: Path | str, columns: Columns = Columns(), run: str = "run") -> list[Line]:  # noqa: B008
    return list(read_questions(find_files([str(path)]), columns, run, lambda _: True))


def asked(lines: list[Line]) -> list[str]:
    return [json.loads(line.asked)["question"] if line.asked else line.error for line in lines]


def test_jsonl_csv_and_parquet_give_the_same_lines(tmp_path: Path) -> None:
    rows = [{"question": 'Who said "no",\nand when?', "n": "1"}, {"question": "Où?", "n": "2"}]
    jsonl, csv, parquet = (tmp_path / f"q.{kind}" for kind in ("jsonl", "csv", "parquet"))
    text = "\n".join(json.dumps(row) for row in rows)
    jsonl.write_text(text, encoding="utf-8")
    csv.write_text('\ufeffn,question\n1,"Who said ""no"",\nand when?"\n2,Où?\n', encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    zipped = tmp_path / "z.jsonl.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    keep = Columns(keep=("n",))
    first = read(jsonl, keep)
    assert asked(first) == [row["question"] for row in rows]
    assert [line.kept for line in first] == ['{"n": "1"}', '{"n": "2"}']
    assert first == read(csv, keep) == read(parquet, keep) == read(zipped, keep)
    assert first == read(f"file://{jsonl}", keep) == read(f"file://{parquet}", keep)
    assert first == read(f"file://{zipped}", keep)


def test_ids_are_of_the_content_what_is_kept_and_the_run(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "a", "n": 1}\n{"question": "a", "n": 2}\n', encoding="utf-8")
    one, other = read(path)
    assert one.id == other.id
    assert len(one.id) == 32
    assert len({line.id for line in read(path, Columns(keep=("n",)))}) == 2
    assert read(path, run="another")[0].id != one.id


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{broken", "no JSON"),
        ('{"question": "a"', "no JSON"),
        ("[1]", "no JSON object"),
        ('"text"', "no JSON object"),
        ("[" * 100_000, "no JSON"),
        ("{}", "no column question"),
        ('{"question": null}', "no question"),
        ('{"question": 7}', "question is no text"),
        ('{"question": " "}', "the question is empty"),
        (json.dumps({"question": "a" * (LONGEST_TEXT + 1)}), "longer than 1,000,000 characters"),
    ],
)
def test_a_broken_row_says_why_and_where(row: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(f'{{"question": "a"}}\n{row}\n{{"question": "b"}}\n', encoding="utf-8")
    lines = read(path)
    assert [line.asked != "" for line in lines] == [True, False, True]
    assert lines[1].error.startswith("q.jsonl:2: ")
    assert why in lines[1].error


def test_bytes_that_are_no_text_break_their_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"question": "\xff\xfe"}\n{"question": "\\ud800 b"}\n')
    broken, lone = read(path)
    assert "no JSON" in broken.error
    assert asked([lone]) == ["\ufffd b"]


def test_a_line_without_an_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 100)
    path = tmp_path / "q.jsonl"
    path.write_text("x" * 1000 + '\n{"question": "b"}\n', encoding="utf-8")
    long, after = read(path)
    assert "a line longer than" in long.error
    assert asked([after]) == ["b"]


def test_csv_with_more_fields_than_columns(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("question,n\na,1,2\nb\n", encoding="utf-8")
    first, second = read(path)
    assert first.error == "q.csv:1: more fields than columns"
    assert asked([second]) == ["b"]


def test_conversations(tmp_path: Path) -> None:
    good = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    good.append({"role": "user", "content": "c"})
    rows = [good, json.dumps(good), good[:2], [], [{"role": "user", "content": [1]}], 7, None]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps({"chat": row}) for row in rows), encoding="utf-8")
    lines = read(path, Columns(messages="chat"))
    assert [bool(line.asked) for line in lines] == [True, True, *[False] * 5]
    assert json.loads(lines[0].asked) == {"messages": good}
    assert "do not end with a question" in lines[2].error


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("", ["a.csv", "b.jsonl", "sub/c.parquet"]),
        ("/*", ["a.csv", "b.jsonl"]),
        ("/[ab].*", ["a.csv", "b.jsonl"]),
        ("/*.csv", ["a.csv"]),
        ("/*/*", ["sub/c.parquet"]),
        ("/**/c.*", ["sub/c.parquet"]),
        ("/**", ["a.csv", "b.jsonl", "sub/c.parquet"]),
        ("/_*", ["_draft.jsonl"]),
        ("/.h/*", [".h/d.jsonl"]),
        ("/_draft.jsonl", ["_draft.jsonl"]),
    ],
)
def test_folders_globs_and_what_is_hidden(
    scheme: str, place: str, found: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "a b"
    hidden = ("_draft.jsonl", ".x.jsonl", ".h/d.jsonl", "sub/.e.csv", "note.txt")
    for name in ("b.jsonl", "a.csv", "sub/c.parquet", *hidden):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    (folder / "z.jsonl").mkdir()
    spelled = quote(str(folder)) if scheme else str(folder)
    files = find_files([f"{scheme}{spelled}{place}"])
    assert [file.path for file in files] == [str(folder / name) for name in found]


def test_a_file_is_read_once_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "[q].jsonl"
    path.touch()
    (tmp_path / "link.jsonl").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    places = ["[q].jsonl", "./[q].jsonl", str(path), f"file://{quote(str(path))}", "*", "."]
    assert [file.path for file in find_files(places)] == ["[q].jsonl"]


def test_what_a_uri_may_hold_of_secrets_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("broken\n", encoding="utf-8")
    query = "?account=hunter/22"
    for place in (f"file://{tmp_path}", f"file://{tmp_path}/q.jsonl", f"file://{tmp_path}/*.jsonl"):
        (line,) = read(place + query)
        assert line.error == "q.jsonl:1: no JSON"
        assert line == read(tmp_path)[0]
    for place in ("file:///nowhere", "bad://ann:hunter22@x", "file:///no where", "s3:///"):
        with pytest.raises(BadQuestions) as raised:
            find_files([place + query])
        assert "hunter" not in str(raised.value)


@pytest.mark.parametrize("place", ["nowhere.jsonl", "no/*.csv", "file:///nowhere", "bad://x/y"])
def test_nothing_there_is_an_error(place: str) -> None:
    with pytest.raises(BadQuestions, match=r"no questions at|cannot be read"):
        find_files([place])


def test_another_kind_of_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("a")
    with pytest.raises(BadQuestions, match=r"is none of \.jsonl"):
        find_files([str(tmp_path / "q.txt")])
    (tmp_path / "q.parquet").write_text("a")


TEXT = b'{"question": "a"}\n' * 1000


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("q.jsonl.gz", gzip.compress(TEXT)[:-9], "EOFError|OSError"),
        ("q.csv.gz", b"question\na\n", "BadGzipFile|OSError"),
        ("q.jsonl.gz", gzip.compress(TEXT)[:10] + b"\xff" * 90, "error|OSError"),
        ("q.csv", b"question," + b"x" * 200 + b"\na,b\n", "Error: field larger than"),
        ("q.parquet", b"a", "ArrowInvalid"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_that_cannot_be_read_is_one_error(
    scheme: str,
    name: str,
    content: bytes,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 100)
    (tmp_path / name).write_bytes(content)
    said = rf"/{name} cannot be read \(({why})"
    with pytest.raises(BadQuestions, match=said):
        read(f"{scheme}{tmp_path / name}")
    with pytest.raises(BadQuestions, match=said):
        check_columns(find_files([f"{scheme}{tmp_path / name}"]), Columns("other"))


def test_a_parquet_file_that_is_damaged_inside_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    pq.write_table(pa.table({"question": [f"question {n}" for n in range(1000)]}), path)
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)
    with pytest.raises(BadQuestions, match=r"q\.parquet cannot be read"):
        read(path)


def test_a_file_that_goes_away_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").touch()
    files = find_files([str(tmp_path)])
    (tmp_path / "q.jsonl").unlink()
    with pytest.raises(BadQuestions, match=r"cannot be read \(FileNotFoundError"):
        check_columns(files, Columns())


def test_a_column_that_no_row_has_is_an_error(tmp_path: Path) -> None:
    jsonl, csv, parquet = (str(tmp_path / f"q.{kind}") for kind in ("jsonl", "csv", "parquet"))
    Path(jsonl).write_text('{"a": 1}\n{"late": 2}\n', encoding="utf-8")
    Path(csv).write_text("q,n\n1,2\n", encoding="utf-8")
    pq.write_table(pa.table({"text": ["x"]}), parquet)
    files = find_files([jsonl, csv, parquet])
    with pytest.raises(BadQuestions, match="no row has the column question; there are: a, late, q"):
        check_columns(files, Columns())
    for name in ("late", "q", "text"):
        check_columns(files, Columns(name, keep=("n",)))
    with pytest.raises(BadQuestions, match="no row has the column m"):
        check_columns(files, Columns("q", keep=("n", "m")))
