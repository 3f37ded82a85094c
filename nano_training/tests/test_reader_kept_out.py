"""Files as plain text: manual pages of every section, with their tables."""

import gzip
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from nano_training.reader import kept_out
from nano_training.reader.kept_out import README, Place, text_of, write_texts

PAGE = r""".TH COPYIT 5 2024
.SH NAME
copyit \- copies
.SH KEYS
Keys are these:
.TS
allbox;
l l.
Key	Meaning
retries	how often it is tried
.TE
"""
WITHOUT_TABLE = PAGE.partition(".TS")[0]


def page(folder: Path, name: str, roff: str = PAGE) -> Place:
    content = roff.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Place(str(folder / name))


@pytest.fixture
def no_groff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_out.shutil, "which", lambda name: None)


@pytest.mark.parametrize("section", range(1, 9))
@pytest.mark.parametrize("end", ["", ".gz"])
def test_manual_pages_of_sections_1_to_8_are_shown(
    tmp_path: Path, no_groff: None, section: int, end: str
) -> None:
    text, suffix = text_of(page(tmp_path, f"copyit.{section}{end}", WITHOUT_TABLE))
    assert suffix == ".txt"
    assert "copyit - copies" in text
    assert ".SH" not in text


@pytest.mark.parametrize("name", ["copyit.9", "copyit.txt", "copyit.1x", "copyit.md.gz"])
def test_other_files_are_text_as_they_are(tmp_path: Path, name: str) -> None:
    assert text_of(page(tmp_path, name)) == (PAGE, ".md" if ".md" in name else ".txt")


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
@pytest.mark.parametrize("name", ["copyit.1", "copyit.5.gz", "copyit.8"])
def test_tables_are_shown(tmp_path: Path, name: str) -> None:
    text, _ = text_of(page(tmp_path, name))
    lines = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    assert "retries how often it is tried" in lines
    assert not [mark for mark in (".TS", ".TE", "allbox", "l l.") if mark in text]


def test_a_text_is_here_or_not(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        text_of(Place(str(tmp_path / "none.1")))
    with pytest.raises(FileNotFoundError):
        text_of(Place("no/such/file.md", "pytest"))
    with pytest.raises(PackageNotFoundError):
        text_of(Place(README, "no-such-package"))
    assert text_of(Place(README, "pytest"))[0].startswith("Name: pytest\nVersion: ")


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.md").write_text("# Here")
    files = {
        "here": Place(str(tmp_path / "here.md")),
        "gone": Place(str(tmp_path / "gone.md")),
        "package": Place(README, "no-such-package"),
    }
    monkeypatch.setattr(kept_out, "FILES", files)
    (tmp_path / "out").mkdir()
    assert write_texts(tmp_path / "out") == ["gone", "package"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["here.md"]
    assert (tmp_path / "out" / "here.md").read_text() == "# Here"
