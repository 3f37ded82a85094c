"""What a killed run leaves behind: rows that are read back, settings, and who may write."""

import json
import threading
from pathlib import Path

import pytest
from safetensors import SafetensorError

from selfcorrect_rag.errors import BadRun, DiskFull, disk
from selfcorrect_rag.journal import (
    Journal,
    keep_settings,
    newest_checkpoint,
    only_run,
    refuse_foreign,
    refuse_other_settings,
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
        for i in range(50):
            journal.append(f"{name}{i}", {"text": name * 500})

    threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Journal(journal.path).rows) == 200


def test_rows_are_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for key in "abcd":
        journal.append(key, {"x": key})
    journal.keep({"a", "d", "e"})
    assert Journal(journal.path).rows == {"a": {"x": "a"}, "d": {"x": "d"}}
    journal.keep(())
    assert not journal.path.exists()
    journal.append("a", {"x": "b"})
    assert Journal(journal.path).rows == {"a": {"x": "b"}}


def test_half_a_last_row_is_none_wherever_it_ends(tmp_path: Path) -> None:
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
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "journal"
    file.write_text(text)
    with pytest.raises(BadRun, match=r"journal(:[12]:| ends in) no row of a run"):
        Journal(file)
    assert file.read_text() == text
    with pytest.raises(BadRun, match="cannot read"):
        Journal(tmp_path)


def test_text_that_no_encoding_holds_is_written_all_the_same(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [{"text": "é \ud800 \\"}])
    text = (tmp_path / "rows").read_text(encoding="utf-8")
    assert "é" in text
    assert json.loads(text) == {"text": "é \ud800 \\"}


def test_rows_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [{"x": 1}])
    with pytest.raises(TypeError):
        write_rows(tmp_path / "rows", [{"x": 2}, {"x": object()}])
    assert (tmp_path / "rows").read_text() == '{"x": 1}\n'


def test_what_is_not_of_a_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuse_foreign(out, "journal")
    out.touch()
    refuse_foreign(out, "journal")
    out.write_text("words")
    run_folder(out).mkdir()
    with pytest.raises(BadRun, match="out is not of this command's making"):
        refuse_foreign(out, "journal")
    (run_folder(out) / "journal").touch()
    refuse_foreign(out, "journal")
    with pytest.raises(BadRun, match="is a folder: write to a file"):
        refuse_foreign(tmp_path, "journal")


def test_settings(tmp_path: Path) -> None:
    refuse_other_settings(tmp_path / "run", {"model": "m"})
    assert not (tmp_path / "run").exists(), "asking keeps nothing"
    for _ in range(2):
        keep_settings(tmp_path / "run", {"model": "m", "seed": 0, "rate": 0.1})
    for check in (refuse_other_settings, keep_settings):
        with pytest.raises(BadRun, match=r"other settings \(seed, new\): give another"):
            check(tmp_path / "run", {"model": "m", "seed": 1, "rate": 0.1, "new": 3})
    refuse_other_settings(tmp_path / "run", {"model": "m", "seed": 0, "rate": 0.1})


def test_a_folder_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    with only_run(tmp_path / "a" / "run"):
        with (
            pytest.raises(BadRun, match="another run works in"),
            only_run(tmp_path / "a" / "run"),
        ):
            raise AssertionError
        with only_run(tmp_path / "other"):
            pass
    with only_run(tmp_path / "a" / "run"):
        pass


def test_a_small_disk_is_not_blamed_for_other_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_free", lambda folder: 0)
    for error in (KeyError("label"), RuntimeError("CUDA error: out of memory"), OSError("odd")):
        with pytest.raises(type(error)) as raised, only_run(tmp_path):
            raise error
        assert raised.value is error
    for failed in (
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
        SafetensorError("Error while serializing: I/O error"),
    ):
        with pytest.raises(DiskFull), only_run(tmp_path):
            raise failed


def test_the_newest_checkpoint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") is None
    assert newest_checkpoint(tmp_path) is None
    for step, state in ((9, "{}"), (10, "{}"), (11, '{"step": '), (12, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10"), "others are torn"
