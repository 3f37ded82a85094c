"""Files into an index: updates, resumed runs, and reports."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from selfcorrect_rag.search import Index, index_paths, open_index

from .stand_ins import WordHash, texts


def test_a_run_again_does_nothing_and_a_change_replaces(index: Index, docs: Path) -> None:
    (docs / "door.md").write_text("The door is red.")
    (docs / "roof.md").write_text("The roof is flat.")
    report = index_paths([docs], index)
    assert (report.files, report.added, report.passages, report.problems) == (2, 2, 2, ())
    report = index_paths([docs], index)
    assert (report.files, report.unchanged, report.added) == (0, 2, 0)
    (docs / "door.md").write_text("The door is green.")
    report = index_paths([docs], index)
    assert (report.files, report.unchanged, report.added, report.removed) == (1, 1, 1, 1)
    assert "The door is green." in texts(index.search("door", 50))
    assert "The door is red." not in texts(index.search("door red", 50))
    (docs / "roof.md").write_text("")
    assert index_paths([docs], index).removed == 1
    (docs / "door.md").write_bytes(b"PK\0")  # what cannot be read keeps what it had
    assert (index_paths([docs], index).removed, len(index)) == (0, 1)


def test_vanished_files_stay_until_pruned(index: Index, docs: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (docs / name).write_text(f"File {name}.")
    index_paths([docs], index)
    (docs / "a.txt").unlink()
    report = index_paths([docs], index)
    assert (report.vanished, report.passages) == ((str(docs / "a.txt"),), 2)
    assert index_paths([docs / "b.txt"], index, prune=True).removed == 0  # not under these paths
    report = index_paths([docs / ".." / docs.name], index, prune=True)
    assert (report.removed, report.passages) == (1, 1)
    assert index_paths([docs], index).vanished == ()
    (docs / "a.txt").symlink_to(docs / "b.txt")
    assert index_paths([docs], index).vanished == (str(docs / "b.txt"),), "found as a.txt"
    (docs / "a.txt").rename(docs / "a.pdf")  # which cannot be read
    assert index_paths([docs], index).vanished == (str(docs / "a.txt"),)
    (docs / "b.txt").unlink()
    (docs / "b.txt").mkdir()
    assert index_paths([docs], index).vanished == tuple(
        str(docs / name) for name in ("a.txt", "b.txt")
    )


def test_a_name_that_is_not_utf8_is_not_taken_for_a_vanished_file(index: Index, docs: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(docs) + b"/caf\xe9.md")).write_text("The door is red.")
    except OSError:
        pytest.skip("this file system refuses such names")
    report = index_paths([docs], index, prune=True)
    assert (report.passages, report.removed, report.vanished) == (1, 0, ())


def test_problems_are_reported_in_each_run(index: Index, docs: Path) -> None:
    (docs / "western.txt").write_bytes("café".encode("cp1252"))
    (docs / "picture.png").write_bytes(b"\x89PNG\0")
    (docs / "gone.txt").symlink_to(docs / "nowhere")
    for _ in range(2):
        report = index_paths([docs], index)
        problems = {Path(p.path).name: (p.partly, p.reason) for p in report.problems}
        assert problems["gone.txt"] == (False, "No such file or directory")
        assert problems["picture.png"][0] is False
        assert problems["western.txt"][0] is True
        assert report.passages == 1


def test_another_length_or_encoding_reads_files_again(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text("One two three four. " * 20)
    index_paths([docs], index)
    report = index_paths([docs], index, chunk_words=20, chunk_overlap=0)
    assert (report.files, report.unchanged) == (1, 0)
    assert index_paths([docs], index, chunk_words=20, chunk_overlap=0).unchanged == 1
    with pytest.raises(ValueError, match="cannot overlap"):
        index_paths([docs], index, chunk_words=20, chunk_overlap=20)


def test_progress_ends_at_one(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text(" ".join(map(str, range(50_000))))
    (docs / "b.txt").write_text("The end.")
    seen: list[tuple[float, int, str]] = []
    report = index_paths([docs], index, on_progress=lambda *progress: seen.append(progress))
    assert seen == sorted(seen)
    assert seen[-1] == (1.0, report.added, str(docs / "b.txt"))


SLOW_RUN = """
import sys, time
from selfcorrect_rag.search import Index, index_paths
from tests.search.stand_ins import WordHash
class Slow(WordHash):
    name = "slow"
    def embed_documents(self, texts):
        if self.embedded:  # the second batch: wait to be killed
            time.sleep(600)
        return super().embed_documents(texts)
index_paths([sys.argv[1]], Index(sys.argv[2], Slow()),
            on_progress=lambda done, passages, source: print(passages, flush=True))
"""


@pytest.mark.slow
def test_a_killed_run_loses_nothing(docs: Path, tmp_path: Path) -> None:
    for i in range(5):
        (docs / f"{i}.jsonl").write_text(
            "".join(f'{{"text": "Row {j} of {i}."}}\n' for j in range(300))
        )
    path = tmp_path / "index"
    run = [sys.executable, "-c", SLOW_RUN, str(docs), str(path)]
    for _ in range(3):
        process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    class Named(WordHash):
        name = "slow"

    embeddings = Named()
    index = open_index(path, embeddings)
    before = len(index)
    assert 0 < before < 1500
    report = index_paths([docs], index)
    assert (report.passages, report.added) == (1500, 1500 - before)
    assert embeddings.embedded <= 1500 - before + 128  # at most one batch again
    assert len(index.search("row", 1500)) == 1500
