"""Files that are found, and the reasons given for the rest."""

import os
from pathlib import Path

import pytest

from selfcorrect_rag.search import Index, Problem
from selfcorrect_rag.search.documents import find_files


def names(*paths: Path) -> list[str]:
    return [found.name for found in find_files(paths) if isinstance(found, Path)]


def problems(*paths: Path) -> dict[str, str]:
    found = [found for found in find_files(paths) if isinstance(found, Problem)]
    return {Path(problem.path).name: problem.reason for problem in found}


def test_files_are_found_once_in_order_at_any_depth(docs: Path) -> None:
    (docs / "b" / "deep").mkdir(parents=True)
    for name in ("z.txt", "a.bin", "b/deep/c.md", "b/.hidden.md", "README"):
        (docs / name).write_text("x")
    (docs / "twice.txt").symlink_to(docs / "z.txt")
    (docs / "circle").symlink_to(docs)
    found = names(docs, docs / "z.txt")
    assert found == ["README", "a.bin", "c.md", "twice.txt"]  # a link and its target are one
    assert names(docs / "z.txt", docs) == ["z.txt", "README", "a.bin", "c.md"]


def test_a_link_out_of_the_folder_is_named(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (docs / "link.txt").symlink_to(tmp_path / "secret.txt")
    (docs / "broken.txt").symlink_to(tmp_path / "nowhere")
    assert names(docs) == []
    found = problems(docs)
    assert found["link.txt"].startswith("leads out of the folder, to ")
    assert found["broken.txt"] == "No such file or directory"
    assert names(docs / "link.txt") == ["link.txt"]  # named by the user


def test_what_cannot_be_read_is_named(docs: Path) -> None:
    os.mkfifo(docs / "pipe.txt")
    assert problems(docs, docs / "gone.txt") == {
        "pipe.txt": "not a regular file",
        "gone.txt": "No such file or directory",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_an_unreadable_folder_is_named(docs: Path) -> None:
    (docs / "closed").mkdir(mode=0o000)
    assert problems(docs) == {"closed": "Permission denied"}


def test_an_index_inside_the_folder_is_not_read(docs: Path) -> None:
    (docs / "note.txt").write_text("x")
    Index(docs / "index", "bm25").add([])
    assert names(docs) == ["note.txt"]
