"""Runs of generator data: resumed after a kill, refused in a foreign place, by any critic."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.errors import BadRun, RetrievalFailed
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.training import ENTRYPOINTS, labelling
from selfcorrect_rag.training.generator import read_generator_rows
from selfcorrect_rag.training.generator_data import GeneratorDataOptions, make_generator_data
from tests.conftest import byte_level_tokenizer, random_model
from tests.training.toys import Teacher, label, lines, row, write

OPTIONS = GeneratorDataOptions(critic="critic", index="index", top_k=3, chunk_size=4)
ROWS = [
    row(f"What is thing {i}?", f"It is {i}. That is what the books say. I like it.", id=str(i))
    for i in range(10)
]


class Shelf:
    """A retriever that finds three passages for anything, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.limit = 10_000
        self.runnable: Any = RunnableLambda(self._find)

    def _find(self, query: str) -> list[Document]:
        if len(self.asked) >= self.limit:
            raise ConnectionError("refused")
        self.asked.append(query)
        return [Document(f"On {query}.", metadata={"title": f"T\n{i}"}) for i in range(3)]


def make(out: Path, critic: Any, retriever: Any, **options: Any) -> dict[str, Any]:
    changed = OPTIONS.model_copy(update=options)
    return make_generator_data(critic, retriever, ROWS, out, changed)


def test_a_killed_run_asks_only_what_is_missing(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    report = make(whole, (teacher := Teacher()).model, (shelf := Shelf()).runnable)
    assert (report["rows"], report["written"], report["failed"]) == (10, 10, 0)
    assert sum(report["labels"]["utility"].values()) == 10
    assert 0 < report["relevant"] <= report["read"] <= report["segments"]
    first, second = Teacher(), Teacher()
    first.limit = 40
    with pytest.raises(KeyboardInterrupt):
        make(cut, first.model, (found := Shelf()).runnable, max_concurrency=1)
    make(cut, second.model, (again := Shelf()).runnable)
    assert cut.read_bytes() == whole.read_bytes()
    assert len(first.asked) + len(second.asked) == len(teacher.asked), "no label is asked twice"
    assert len(found.asked) + len(again.asked) == len(shelf.asked), "nor a query"
    assert sorted(path.name for path in run_folder(cut).iterdir()) == [
        *("decisions.jsonl", "lock", "parts", "settings.json"),
    ]
    decision = lines(run_folder(cut) / "decisions.jsonl")[0]
    assert decision["row"]["instruction"] == ROWS[0].instruction
    assert list(lines(whole)[0]) == ["instruction", "output", "input", "id", "dataset_name"]


def test_rows_that_failed_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)

    def answer(prompt: str) -> str:
        if "thing 3" in prompt:
            raise TimeoutError("no answer")
        return label(prompt, essays="thing 5" in prompt)

    out = tmp_path / "out"
    report = make(out, Teacher(answer).model, Shelf().runnable)
    assert (report["written"], report["failed"]) == (9 - report["malformed"], 1)
    assert "no answer" in str(lines(run_folder(out) / "failures.jsonl"))
    report = make(out, Teacher(label).model, Shelf().runnable)
    assert (report["written"], report["failed"]) == (10 - report["malformed"], 0)


def test_a_retriever_that_fails_ends_the_run(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.limit = 2
    with pytest.raises(RetrievalFailed, match="refused; the same command resumes"):
        make(tmp_path / "out", Teacher().model, shelf.runnable)


def test_a_run_has_one_place_and_one_set_of_options(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("words")
    with pytest.raises(BadRun, match="was not made by this command"):
        make(tmp_path / "foreign", Teacher().model, Shelf().runnable)
    make(tmp_path / "out", Teacher().model, Shelf().runnable)
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        make(tmp_path / "out", Teacher().model, Shelf().runnable, seed=1)


@pytest.mark.slow
def test_a_critic_on_an_index_by_the_entrypoint(tmp_path: Path) -> None:
    from selfcorrect_rag.search import Index

    words = byte_level_tokenizer()
    random_model(len(words), 400).save_pretrained(tmp_path / "critic")
    words.save_pretrained(tmp_path / "critic")
    with Index(tmp_path / "index") as index:
        index.add([Document(f"Thing {i} is {i}.", metadata={"title": f"{i}"}) for i in range(8)])
    entrypoint = ENTRYPOINTS["generator-data"]
    given = {
        "data": write(tmp_path / "rows.jsonl", *(row.model_dump() for row in ROWS[:3])),
        "out": tmp_path / "made.jsonl",
        "critic": str(tmp_path / "critic"),
        "index": str(tmp_path / "index"),
        "top_k": 2,
    }
    cost = entrypoint.run(entrypoint.options(**given, estimate=True))
    assert cost == {"rows": 3, "fewest": 6, "most": 6 + 9 * 5}
    report = entrypoint.run(entrypoint.options(**given))
    assert (report["rows"], report["written"]) == (3, 3)
    assert len(read_generator_rows(tmp_path / "made.jsonl")) == 3
    assert Critic.from_pretrained(tmp_path / "critic").judge([]) == []
    other = random_model(len(words), 400)
    other.lm_head.weight.data += 1
    other.save_pretrained(tmp_path / "critic")
    with pytest.raises(BadRun, match=r"other settings \(critic\)"):
        entrypoint.run(entrypoint.options(**given))
