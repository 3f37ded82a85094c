import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.search import ChromaIndex, Index, IndexProgress, index_paths

from .conftest import MakeIndex
from .stand_ins import WordHash, pdf


def write_rows(path: Path, texts: list[str]) -> None:
    path.write_text("\n".join(json.dumps({"title": f"T {t}", "text": t}) for t in texts))


def contents(index: Index) -> dict[str, tuple[str, dict[str, Any]]]:
    """All passages by id, as a search gives them but for the score."""
    found = {}
    for document in index.search("passage", k=10_000):
        document.metadata.pop("score", None)
        found[str(document.id)] = (document.page_content, document.metadata)
    assert found.keys() == index.ids()
    return found


def texts(index: Index) -> set[str]:
    return {text for text, _ in contents(index).values()}


def test_every_kind_of_file_goes_in(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text("passage one")
    (docs / "b.md").write_text("# Title\npassage two")
    (docs / "c.pdf").write_bytes(pdf("passage three", title="Paper"))
    (docs / "sub").mkdir()
    write_rows(docs / "sub" / "d.jsonl", ["passage four", "passage five"])
    report = index_paths([docs], index)
    assert (report.files, report.added, report.passages) == (4, 5, 5)
    assert not report.problems
    (paper,) = (m for text, m in contents(index).values() if text == "passage three")
    assert paper == {"source": str(docs / "c.pdf"), "title": "Paper", "page": 1, "chunk": 0}


def test_long_files_are_cut(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text("One passage of six words here. " * 100)
    index_paths([docs], index, chunk_words=60, chunk_overlap=0)
    assert all(len(text.split()) == 60 for text in texts(index))
    (docs / "b.txt").write_text(" ".join(f"passage {i}." for i in range(100)))
    index_paths([docs / "b.txt"], index, chunk_words=50, chunk_overlap=0)
    places = {m["chunk"]: text for text, m in contents(index).values() if m["title"] == "b"}
    assert places[0].startswith("passage 0.")
    assert places[3].endswith("passage 99.")


def test_running_again_adds_nothing_and_embeds_nothing(tmp_path: Path, docs: Path) -> None:
    for i in range(5):
        (docs / f"{i}.txt").write_text(f"passage {i}")
    embeddings = WordHash()
    with ChromaIndex(tmp_path / "index", embeddings) as index:
        first = index_paths([docs], index)
        again = index_paths([docs, docs / "1.txt"], index)
    assert (first.files, first.unchanged, first.added) == (5, 0, 5)
    assert (again.files, again.unchanged, again.added, again.passages) == (0, 5, 0, 5)
    assert embeddings.embedded == 5


def test_the_same_passage_in_two_files_goes_in_once(index: Index, docs: Path) -> None:
    write_rows(docs / "a.jsonl", ["passage x", "passage y", "passage x"])
    write_rows(docs / "b.jsonl", ["passage y", "passage z"])
    report = index_paths([docs], index, batch_size=2)
    assert (report.added, report.passages) == (3, 3)


def test_a_changed_file_is_replaced(index: Index, docs: Path) -> None:
    write_rows(docs / "a.jsonl", ["passage old", "passage same", "passage shared"])
    write_rows(docs / "b.jsonl", ["passage shared"])
    index_paths([docs], index)
    write_rows(docs / "a.jsonl", ["passage new", "passage first", "passage same"])
    report = index_paths([docs], index)
    assert (report.files, report.unchanged, report.added, report.removed) == (1, 1, 2, 1)
    assert texts(index) == {"passage new", "passage first", "passage same", "passage shared"}
    (same,) = (m for text, m in contents(index).values() if text == "passage same")
    assert same["chunk"] == 2


def test_what_two_files_drop_together_is_gone(index: Index, docs: Path) -> None:
    for name in "ab":
        write_rows(docs / f"{name}.jsonl", ["passage shared", f"passage {name}"])
    index_paths([docs], index)
    for name in "ab":
        write_rows(docs / f"{name}.jsonl", [f"passage {name}"])
    assert index_paths([docs], index).removed == 1
    assert texts(index) == {"passage a", "passage b"}


def test_a_file_that_no_longer_can_be_read_keeps_its_passages(index: Index, docs: Path) -> None:
    write_rows(docs / "a.jsonl", ["passage"])
    index_paths([docs], index)
    (docs / "a.jsonl").write_text("{")
    report = index_paths([docs], index)
    assert (report.files, report.removed, len(report.problems)) == (0, 0, 1)
    assert texts(index) == {"passage"}


def test_a_file_that_is_emptied_loses_its_passages(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text("passage")
    index_paths([docs], index)
    (docs / "a.txt").write_text("")
    report = index_paths([docs], index)
    assert (report.removed, report.passages) == (1, 0)
    assert report.problems[0].reason == "no text in it"


def test_other_chunks_replace_the_old_ones(index: Index, docs: Path) -> None:
    (docs / "a.txt").write_text("passage of four words. " * 20 + "The end.")
    index_paths([docs], index, chunk_words=40, chunk_overlap=0)
    report = index_paths([docs], index, chunk_words=60, chunk_overlap=0)
    assert report.removed > 0
    assert all(len(text.split()) > 20 for text in texts(index))


def test_a_vanished_file_stays_until_pruned(index: Index, docs: Path) -> None:
    write_rows(docs / "a.jsonl", ["passage a", "passage shared"])
    write_rows(docs / "b.jsonl", ["passage b", "passage shared"])
    index_paths([docs], index)
    (docs / "a.jsonl").unlink()
    assert index_paths([docs / "b.jsonl"], index, prune=True).vanished == ()
    report = index_paths([docs], index)
    assert (report.vanished, report.removed, report.passages) == ((str(docs / "a.jsonl"),), 0, 3)
    report = index_paths([docs], index, prune=True)
    assert (report.vanished, report.removed, report.passages) == ((str(docs / "a.jsonl"),), 1, 2)
    assert index_paths([docs], index).vanished == ()


def test_what_cannot_be_read_is_named_each_time(index: Index, docs: Path) -> None:
    (docs / "a.jsonl").write_text('{"text": "passage"}\n{')
    (docs / "b.txt").write_bytes(b"\0")
    (docs / "c.txt").write_text("passage c")
    first = index_paths([docs, docs / "missing.txt"], index)
    again = index_paths([docs, docs / "missing.txt"], index)
    assert (first.files, first.added, again.unchanged) == (2, 2, 2)
    assert first.problems == again.problems
    assert [(Path(p.path).name, p.partly) for p in first.problems] == [
        ("missing.txt", False),
        ("a.jsonl", True),
        ("b.txt", False),
    ]


def test_an_index_among_the_documents_is_not_indexed(make_index: MakeIndex, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("passage")
    index = make_index()
    for _ in range(2):
        assert index_paths([tmp_path], index).passages == 1


def test_progress_rises_to_the_end(index: Index, docs: Path) -> None:
    write_rows(docs / "a.jsonl", [f"passage {i}" for i in range(20)])
    (docs / "b.txt").write_text("passage")
    steps: list[IndexProgress] = []
    index_paths([docs], index, batch_size=5, on_progress=steps.append)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert [step.passages for step in steps] == [5, 10, 15, 20, 21]
    assert steps[2].added == 15
    assert steps[-1].done == pytest.approx(1)
    steps.clear()
    index_paths([docs], index, on_progress=steps.append)
    assert [step.passages for step in steps] == [0, 0]
    assert steps[-1].done == pytest.approx(1)


def test_bad_sizes_are_refused_before_anything_is_read(index: Index) -> None:
    with pytest.raises(ValueError, match="overlap"):
        index_paths(["missing"], index, chunk_words=10, chunk_overlap=10)


@pytest.mark.parametrize("batch", range(1, 6))
def test_an_error_in_the_middle_loses_nothing(
    make_index: MakeIndex, docs: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    write_rows(docs / "a.jsonl", [f"passage {i}" for i in range(7)])
    write_rows(docs / "b.jsonl", [f"passage {i}" for i in range(5, 13)])
    whole, broken = make_index("whole"), make_index("broken")
    index_paths([docs], whole, batch_size=3)
    write, calls = broken._write, []

    def fail(passages: dict[str, Document]) -> int:
        calls.append(passages)
        if len(calls) == batch:
            raise RuntimeError("the embedder went away")
        return write(passages)

    monkeypatch.setattr(broken, "_write", fail)
    with pytest.raises(RuntimeError, match="went away"):
        index_paths([docs], broken, batch_size=3)
    monkeypatch.setattr(broken, "_write", write)
    report = index_paths([docs], broken, batch_size=3)
    assert report.added == 13 - len({id_ for done in calls[:-1] for id_ in done})
    assert contents(broken) == contents(whole)


def test_a_file_that_goes_back_after_a_broken_run_goes_back_whole(index: Index, docs: Path) -> None:
    def fail(progress: IndexProgress) -> None:
        raise RuntimeError("stopped")

    write_rows(docs / "a.jsonl", ["passage 0", "passage 1"])
    index_paths([docs], index)
    before = contents(index)
    write_rows(docs / "a.jsonl", ["passage 2", "passage 3", "passage 4"])
    with pytest.raises(RuntimeError, match="stopped"):
        index_paths([docs], index, batch_size=2, on_progress=fail)
    assert len(index) == 4
    write_rows(docs / "a.jsonl", ["passage 0", "passage 1"])
    assert index_paths([docs], index).removed == 2
    assert contents(index) == before
