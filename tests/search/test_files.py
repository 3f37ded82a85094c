"""Which files are found, and that no link leads a reader astray."""

import os
import socket
from pathlib import Path

import pytest

from selfcorrect_rag.search import Problem
from selfcorrect_rag.search.files import KINDS, FoundFile, UnreadableFile, find_files

Names = dict[str, str]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


def found(*paths: Path, follow_links: bool = False) -> tuple[list[Path], Names]:
    """What is found, and the problems by the names of their files."""
    files, problems = [], {}
    for item in find_files(paths, follow_links=follow_links):
        if isinstance(item, Problem):
            assert Path(item.path).name not in problems, "named twice"
            problems[Path(item.path).name] = item.reason
        else:
            files.append(item.path)
    return files, problems


def test_no_link_leads_out_of_the_folder(docs: Path, secret: Path) -> None:
    (docs / "sub").mkdir()
    (docs / "good.txt").write_text("good")
    (docs / "file.txt").symlink_to(secret / "secret.txt")
    (docs / "folder").symlink_to(secret)
    (docs / "sub" / "again.txt").symlink_to(docs / "file.txt")
    (docs / "sub" / "middle.txt").symlink_to("../folder/secret.txt")
    (docs / "sub" / "up.md").symlink_to(os.path.relpath(secret / "secret.txt", docs / "sub"))
    (docs / "program").symlink_to("/bin/sh")
    files, problems = found(docs, docs / "sub")
    assert files == [docs / "good.txt"]
    assert problems.keys() == {"file.txt", "folder", "again.txt", "middle.txt", "up.md"}
    leads = f"leads out of the folder, to {secret}"
    assert all(reason.startswith(leads) for reason in problems.values())
    assert all("--follow-links" in reason for reason in problems.values())
    files, problems = found(docs, follow_links=True)
    assert {path.resolve() for path in files} == {docs / "good.txt", secret / "secret.txt"}
    assert not problems


def test_links_that_stay_inside_are_followed_once_and_circles_end(docs: Path) -> None:
    (docs / ".data" / "sub").mkdir(parents=True)
    (docs / ".data" / "sub" / "a.txt").write_text("x")
    (docs / ".data" / "sub" / "up").symlink_to(docs)
    (docs / "link").symlink_to(".data")
    (docs / "z").symlink_to("link/sub")
    assert found(docs) == ([docs / "link" / "sub" / "a.txt"], {})
    (docs / "self.txt").symlink_to(docs / "self.txt")
    (docs / "gone.txt").symlink_to(docs / "nowhere")
    assert found(docs)[1].keys() == {"self.txt", "gone.txt"}


def test_what_is_named_itself_may_be_a_link_and_links_between_named_folders_are_inside(
    docs: Path, secret: Path
) -> None:
    (docs / "link.txt").symlink_to(secret / "secret.txt")
    for paths in ([docs / "link.txt"], [docs, secret]):
        files, problems = found(*paths)
        assert (files, problems) == ([docs / "link.txt"], {})
    (docs / "link.txt").rename(secret / "other.txt")
    (docs / "folder").symlink_to(secret)
    assert found(docs / "folder")[0] == [docs / "folder" / "other.txt"]


@pytest.mark.parametrize("what", ["file", "folder", "above"])
def test_what_becomes_a_link_after_it_was_found_is_not_read(
    docs: Path, secret: Path, what: str
) -> None:
    (docs / "sub" / "sub").mkdir(parents=True)
    path = docs / "sub" / "sub" / "secret.txt"
    path.write_text("mine")
    (file,) = find_files([docs])
    assert isinstance(file, FoundFile)
    with file.open() as opened:
        assert opened.read() == b"mine"
    swapped = {"file": path, "folder": path.parent, "above": docs}[what]
    swapped.rename(secret.parent / "aside")
    swapped.symlink_to({"file": secret / "secret.txt", "folder": secret, "above": secret}[what])
    (secret / "sub" / "sub").mkdir(parents=True)
    (secret / "sub" / "sub" / "secret.txt").write_text("secret")
    with pytest.raises(UnreadableFile, match="leads out of the folder"):
        file.open()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_becomes_a_link_while_it_is_opened_is_not_read(
    docs: Path, secret: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link comes after the look and before the opening: the narrowest race there is."""
    (docs / "sub").mkdir()
    path = docs / "sub" / "secret.txt"
    path.write_text("mine")
    (file,) = find_files([docs])
    assert isinstance(file, FoundFile)
    look = os.path.realpath

    def look_and_lose(name: Path, *, strict: bool = False) -> str:
        real = look(name, strict=strict)
        swapped = path if what == "file" else path.parent
        swapped.rename(secret.parent / "aside")
        swapped.symlink_to(secret / "secret.txt" if what == "file" else secret)
        return real

    monkeypatch.setattr(os.path, "realpath", look_and_lose)
    with pytest.raises(UnreadableFile, match=r"symbolic links|Not a directory"):
        file.open()


def test_paths_that_are_no_files(docs: Path) -> None:
    assert found(docs / "missing.txt")[1] == {"missing.txt": "No such file or directory"}
    os.mkfifo(docs / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(docs / "socket.md"))
        for file in find_files([docs]):
            assert isinstance(file, FoundFile)
            with pytest.raises(UnreadableFile, match=r"not a regular file|No such device"):
                file.open()


def test_other_kinds_are_named_only_if_asked_for(docs: Path) -> None:
    (docs / "a.csv").write_text("x")
    assert found(docs) == ([], {})
    reason = f"not one of {', '.join(KINDS)} (or .gz of them)"
    assert found(docs / "a.csv")[1] == {"a.csv": reason}
