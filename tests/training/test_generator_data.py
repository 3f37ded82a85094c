"""Runs of generator data: resumed after a kill, refused in a foreign place, by any critic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import BadRun, RetrievalFailed
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.models.critic import Critic, CriticInput
from selfcorrect_rag.training import ENTRYPOINTS, generator
from selfcorrect_rag.training.generator import GeneratorDataOptions, make_generator_data
from tests.conftest import byte_level_tokenizer, random_model
from tests.training.toys import Teacher, lines, options, row

ROWS = [
    row(f"What is thing {i}?", f"It is {i}. That is what the books say. I like it.", id=str(i))
    for i in range(10)
]


class ScriptedCritic(Critic):
    """Answers by the judged text, until it is interrupted."""

    def __init__(self, limit: int = 10_000) -> None:
        self.asked: list[CriticInput] = []
        self._limit = limit

    def judge(self, inputs: Sequence[CriticInput]) -> list[str]:
        for each in inputs:
            if len(self.asked) >= self._limit:
                raise KeyboardInterrupt
            self.asked.append(each)
        return [each.tokens[crc32(each.input.encode()) % len(each.tokens)] for each in inputs]


def find(query: str) -> list[Document]:
    return [Document(f"On {query}.", metadata={"title": f"T\n{i}"}) for i in range(3)]


def make(folder: Path, critic: Critic, shelf: Teacher, **given: Any) -> dict[str, Any]:
    made = options(GeneratorDataOptions, folder, [*ROWS, ROWS[0]], **{"top_k": 3, **given})
    return make_generator_data(made, critic, shelf.model)


def test_a_killed_run_asks_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "CHUNK", 4)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    report = make(whole, critic := ScriptedCritic(), shelf := Teacher(find))
    assert report["rows"] == 11
    assert sum(n for token, n in report["tokens"].items() if "Utility" in token) == 11
    first, second = ScriptedCritic(40), ScriptedCritic()
    with pytest.raises(KeyboardInterrupt):
        make(cut, first, Teacher(find))
    make(cut, second, again := Teacher(find))
    assert (cut / "out").read_bytes() == (whole / "out").read_bytes()
    assert len(second.asked) < len(critic.asked), "decided rows are not asked about again"
    assert len(again.asked) < len(shelf.asked)
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        make(cut, second, again, seed=1)
    decision = lines(run_folder(cut / "out") / "decisions.jsonl")[0]
    assert decision["row"]["instruction"] == ROWS[0].instruction
    rows = lines(whole / "out")
    assert rows[0] == rows[10], "equal rows are judged once"
    assert list(rows[0]) == ["instruction", "output", "input", "id", "dataset_name", "wrong"]
    passages = [one["output"].split("<paragraph>")[1:] for one in rows]
    assert {passage[:4] for some in passages for passage in some} <= {"T 0\n", "T 1\n", "T 2\n"}


def test_a_retriever_that_fails_ends_the_run(tmp_path: Path) -> None:
    shelf = Teacher(lambda query: find(query) if len(shelf.asked) < 3 else 1 / 0)
    with pytest.raises(RetrievalFailed, match=r"the retriever .*division by zero"):
        make(tmp_path, ScriptedCritic(), shelf)


@pytest.mark.slow
def test_a_critic_on_an_index_by_the_entrypoint(tmp_path: Path) -> None:
    from selfcorrect_rag.search import Index

    words = byte_level_tokenizer()
    random_model(len(words), 400).save_pretrained(tmp_path / "critic")
    words.save_pretrained(tmp_path / "critic")
    things = [Document(f"Thing {i} is {i}.", metadata={"title": f"{i}"}) for i in range(8)]
    Index(tmp_path / "index").add(things)
    entrypoint = ENTRYPOINTS["generator-data"]
    places = {name: str(tmp_path / name) for name in ("critic", "index")}
    given = options(entrypoint.options, tmp_path, ROWS[:3], top_k=2, **places)
    assert entrypoint.run(given)["rows"] == len(lines(given.out)) == 3
