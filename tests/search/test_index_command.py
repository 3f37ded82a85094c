import argparse
import json
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands import index as command
from selfcorrect_rag.search import open_index


def run(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(lambda **_: parser)
    args = parser.parse_args([str(argument) for argument in arguments])
    code: int = args.run(args)
    return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_says_what_it_did(docs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (docs / "a.txt").write_text("passage")
    (docs / "b.json").write_text("{")
    (docs / "c.jsonl").write_text('{"text": "x y"}\n{')
    assert run(docs, "--index", folder, "--embeddings", "bm25") == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == (f"2 files read, 0 unchanged. 2 passages added, 0 removed; 2 in {folder}.")
    assert rest[0] == "Not read:"
    assert rest[1].startswith(f"  {docs / 'b.json'}: not JSON")
    assert rest[2] == "Read in part:"
    assert rest[3].startswith(f"  {docs / 'c.jsonl'}: line 2 is not JSON")
    (docs / "a.txt").unlink()
    assert run(docs, "--index", folder) == 0
    assert "1 indexed files no longer exist (--prune drops them):" in capsys.readouterr().out
    assert run(docs, "--index", folder, "--prune") == 0
    assert "0 files read, 1 unchanged. 0 passages added, 1 removed; 1 in" in capsys.readouterr().out


def test_reports_as_json(docs: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (docs / "a.txt").write_text("passage")
    (docs / "b.txt").write_bytes(b"\0")
    assert run(docs, "--index", folder, "--embeddings", "bm25", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "files": 1,
        "unchanged": 0,
        "added": 1,
        "removed": 0,
        "passages": 1,
        "problems": [{"path": str(docs / "b.txt"), "reason": "binary, not text", "partly": False}],
        "vanished": [],
    }


@pytest.mark.parametrize("embeddings", [[], ["--embeddings", "bm25"]], ids=["minilm", "bm25"])
@pytest.mark.parametrize("report", [[], ["--json"]], ids=["words", "json"])
def test_where_there_is_nothing_to_index_no_index_is_made(
    docs: Path,
    tmp_path: Path,
    embeddings: list[str],
    report: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (docs / "a.odt").write_text("of no kind that is read")
    before = sorted(tmp_path.rglob("*"))
    folder = tmp_path / "new" / "index"
    for paths in ([docs / "missing"], [docs], [docs / "a.odt", docs / "missing"]):
        assert run(*paths, "--index", folder, *embeddings, *report) == 1
        shown = capsys.readouterr().out
        problems = [str(path) for path in paths if path != docs]
        if report:
            said = json.loads(shown)
            assert [problem["path"] for problem in said["problems"]] == problems
            assert said["passages"] == 0
        else:
            assert f"Nothing to index was found: no index was made in {folder}." in shown
            assert all(problem in shown for problem in problems)
        assert sorted(tmp_path.rglob("*")) == before


def test_reading_nothing_into_an_index_is_a_failure(
    docs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (docs / "a.txt").write_text("passage")
    assert run(docs / "a.txt", "--index", folder, "--embeddings", "bm25") == 0
    assert run(docs / "missing", "--index", folder) == 1
    assert f"0 removed; 1 in {folder}." in capsys.readouterr().out
    (docs / "b.txt").write_bytes(b"\0")
    assert run(docs / "b.txt", docs / "missing", "--index", folder) == 1
    (docs / "a.txt").unlink()
    assert run(docs / "a.txt", "--index", folder, "--prune") == 1
    with open_index(folder) as index:
        assert len(index) == 0


def test_sizes_reach_the_index(docs: Path, folder: Path) -> None:
    (docs / "a.txt").write_text("word. " * 100)
    (docs / "large.txt").write_text("x" * 2**21)
    options = ["--chunk-words", "10", "--chunk-overlap", "0", "--max-mib", "1"]
    run(docs, "--index", folder, "--embeddings", "bm25", *options)
    with open_index(folder) as index:
        assert index.search("word")[0].page_content == "word. " * 9 + "word."


def test_a_bar_on_a_terminal_shows_names_as_text(
    docs: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    (docs / "[red]\x1b[2Ja.txt").write_text("passage")
    (docs / "b\n.txt").write_bytes(b"\0")
    assert run(docs, "--index", folder, "--embeddings", "bm25") == 0
    out, err = capsys.readouterr()
    assert "100%" in err
    assert "\x1b[2J" not in out + err
    assert "b\\n.txt: binary" in out


def test_lines_elsewhere(
    docs: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcorrect_rag.commands.terminal.SECONDS_BETWEEN_LINES", 0)
    (docs / "a.txt").write_text("passage")
    run(docs, "--index", folder, "--embeddings", "bm25")
    assert capsys.readouterr().err == "100%  1 passages, 1 new  a.txt\n"


def test_stopping_says_how_to_go_on(
    docs: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    (docs / "a.txt").write_text("passage")
    monkeypatch.setattr(command, "index_paths", interrupt)
    assert run(docs, "--index", folder, "--embeddings", "bm25") == 130
    assert "run it again to go on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--chunk-words", "0"], "--chunk-words 0"),
        (["--chunk-words", "-5"], "--chunk-words -5"),
        (["--chunk-overlap", "-1"], "--chunk-overlap -1"),
        (["--chunk-words", "20", "--chunk-overlap", "20"], "--chunk-overlap 20"),
        (["--max-mib", "0"], "--max-mib 0"),
    ],
)
def test_sizes_that_are_none_make_no_index(
    options: list[str],
    names: str,
    docs: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (docs / "a.txt").write_text("passage")
    command_line = ["index", str(docs), "--index", str(folder), "--embeddings", "bm25", *options]
    assert main(command_line) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert names in error
    assert "give" in error
    assert not folder.exists()
