"""Journals of killed runs: rows that are read back, settings, and who may write."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.journal import (
    Journal,
    check_run,
    digest,
    open_run,
    refuse_foreign,
    replace_file,
    run_folder,
    write_rows,
)


def test_rows_are_read_back_and_the_last_of_a_key_counts(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    assert journal.rows == {}
    assert not file.exists(), "nothing is written before the first row"
    for i in range(3):
        journal.append("a", {"x": i})
    journal.append("b", {"x": "\u2028\ud800 é"})
    assert Journal(file).rows == journal.rows == {"a": {"x": 2}, "b": {"x": "\u2028\ud800 é"}}


def test_rows_of_many_threads(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")

    def append(name: str) -> None:
        for i in range(20):
            journal.append(f"{name}{i}", {"text": name * 500})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, "abcd"))
    assert len(Journal(journal.path).rows) == 80


def test_a_torn_last_line_is_ignored_wherever_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    journal = Journal(file)
    for key in "ab":
        journal.append(key, {"text": "é\u2028"})
    whole = file.read_bytes()
    for cut in range(1, len(whole) // 2 + 1):
        file.write_bytes(whole[:-cut])
        again = Journal(file)
        assert list(again.rows) == ["a"]
        assert file.read_bytes() == whole[:-cut], "reading changes nothing"
        again.append("b", {"text": "é\u2028"})
        assert file.read_bytes() == whole
        again.append("c", {})
        assert file.read_bytes().startswith(whole)


@pytest.mark.parametrize(
    "text",
    ['{"key": "a"}\n{"x": 2}\n', '{"key": "a"}\n[1]\n', "words\n", '{"key": 3}\n', '{"x": 1}'],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "journal"
    file.write_text(text)
    with pytest.raises(BadRun, match=r"journal(:[12]:|) (not|is not) a journal row"):
        Journal(file)
    assert file.read_text() == text
    with pytest.raises(BadRun, match="cannot read"):
        Journal(tmp_path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [{"text": "é \ud800 \\"}])
    assert json.loads((tmp_path / "rows").read_text(encoding="utf-8")) == {"text": "é \ud800 \\"}
    with pytest.raises(TypeError):
        write_rows(tmp_path / "rows", [{"x": 2}, {"x": object()}])
    with pytest.raises(KeyError), replace_file(tmp_path / "rows") as draft:
        raise KeyError(draft.write_text("half"))
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    assert "é" in (tmp_path / "rows").read_text(encoding="utf-8")


def test_a_foreign_output_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuse_foreign(out, "journal")
    out.touch()
    refuse_foreign(out, "journal")
    out.write_text("words")
    run_folder(out).mkdir()
    with pytest.raises(BadRun, match="out was not made by this command; give another file"):
        refuse_foreign(out, "journal")
    (run_folder(out) / "journal").touch()
    refuse_foreign(out, "journal")
    with pytest.raises(BadRun, match="is a folder; give a file"):
        refuse_foreign(tmp_path, "journal")


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    check_run(folder, {"model": "m"})
    assert not folder.exists(), "checking writes nothing"
    for _ in range(2):
        with open_run(folder, {"model": "m", "seed": 0, "sizes": (1, 2)}):
            pass
    other = {"model": "m", "seed": 1, "sizes": (1, 2), "new": 3}
    with pytest.raises(BadRun, match=r"other settings \(new, seed\); give another"):
        check_run(folder, other)
    with pytest.raises(BadRun, match=r"other settings"), open_run(folder, other):
        raise AssertionError


def test_a_folder_of_another_origin_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadRun, match="was not made by this command"), open_run(tmp_path, {}):
        raise AssertionError
    with pytest.raises(BadRun, match="is a file; give a folder"):
        check_run(tmp_path / "thesis.tex", {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "settings.json").write_text("[3]")
    with pytest.raises(BadRun, match=r"cannot read .*settings.json"):
        check_run(tmp_path, {})


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with open_run(run, {}):
        with pytest.raises(BadRun, match="another run is writing to"), open_run(run, {}):
            raise AssertionError
        with open_run(tmp_path / "other", {}):
            pass
    with open_run(run, {}):
        pass


def test_a_digest_tells_lists_apart() -> None:
    assert digest(["a", "b"]) == digest(iter(["a", "b"])) != digest(["b", "a"])
    assert digest(["\ud800"]) != digest([("a", 1)]) != digest(["a1"])
