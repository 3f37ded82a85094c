"""Runs of generator data that are cut, fail, or go on."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.errors import BadRun, EngineFailed, RetrievalFailed
from selfcorrect_rag.training import labelling
from selfcorrect_rag.training.generator_data import (
    GeneratorDataSettings,
    amake_generator_data,
    generator_data_cost,
    make_generator_data,
)
from tests.training.generator_runs import ROWS, SETTINGS, Shelf, files, make, opinionated
from tests.training.scripted import Model, lines
from tests.training.teacher import asked_about, label


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)


def test_what_was_interrupted_goes_on_with_nothing_twice(tmp_path: Path) -> None:
    whole, shelf = Model(), Shelf()
    report = make(tmp_path / "whole", whole.runnable, shelf.runnable, chunk_size=7)
    for share in (0.02, 0.4, 0.7, 0.95):
        model, searched = Model(), Shelf()
        model.limit = int(share * len(whole.asked))
        out = tmp_path / f"cut at {share}"
        with pytest.raises(KeyboardInterrupt):
            make(out, model.runnable, searched.runnable, chunk_size=7, max_concurrency=1)
        assert not out.exists()
        rest, searched_again = Model(), Shelf()
        again = make(out, rest.runnable, searched_again.runnable, chunk_size=7)
        assert out.read_bytes() == (tmp_path / "whole").read_bytes()
        assert Counter(model.asked + rest.asked) == Counter(whole.asked)
        assert Counter(searched.asked + searched_again.asked) == Counter(shelf.asked)
        assert again.labels == report.labels
        assert again.calls == len(rest.asked) < report.calls
        assert files(out) == {"decisions.jsonl", "settings.json", "lock"}


def test_a_critic_that_was_interrupted_judges_nothing_twice(tmp_path: Path) -> None:
    critic = opinionated(batch=4)
    seen: list[str] = []
    decode, limit = critic._decode, 1000

    def counted(prompts: list[list[int]], choices: Any) -> Any:
        if len(seen) > limit:
            raise KeyboardInterrupt
        seen.extend(critic.tokenizer.decode(ids) for ids in prompts)
        return decode(prompts, choices)

    critic._decode = counted  # type: ignore[method-assign]
    make(tmp_path / "whole", critic, Shelf().runnable, ROWS[:6])
    whole = Counter(seen)
    seen.clear()
    limit = 20
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", critic, Shelf().runnable, ROWS[:6])
    limit = 1000
    make(tmp_path / "cut", critic, Shelf().runnable, ROWS[:6])
    assert Counter(seen) == whole
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_failures_are_named_and_tried_again_and_the_rest_is_not(tmp_path: Path) -> None:
    def broken(prompt: str) -> str:
        if "Middlemarch" in asked_about(prompt) and prompt.endswith("utility:"):
            raise ConnectionError("no route")
        return label(prompt, essays=False)

    out, shelf = tmp_path / "out", Shelf()
    model = Model(broken)
    report = make(out, model.runnable, shelf.runnable)
    assert (report.rows, report.written, report.failed) == (23, 22, 1)
    [failure] = lines(tmp_path / "out.run" / "failures.jsonl")
    assert failure["reason"] == "ConnectionError: no route"
    assert failure["instruction"] == ROWS[0].instruction
    assert len(lines(out)) == 22
    again = Model()
    report = make(out, again.runnable, shelf.runnable)
    assert (report.written, report.failed) == (23, 0)
    assert all("Middlemarch" in prompt for prompt in again.asked)
    [asked_twice] = Counter(again.asked) & Counter(model.asked)
    assert asked_twice.endswith("utility:"), "the one that failed"
    assert lines(out)[0]["instruction"] == ROWS[0].instruction, "rows stand in their order"
    assert files(out) == {"decisions.jsonl", "settings.json", "lock"}


def test_rows_with_malformed_labels_are_discarded_and_settled(tmp_path: Path) -> None:
    def essay(prompt: str) -> str:
        is_one = "Middlemarch" in asked_about(prompt) and prompt.endswith("utility:")
        return "It depends." if is_one else label(prompt, essays=False)

    model = Model(essay)
    report = make(tmp_path / "out", model.runnable, Shelf().runnable)
    assert (report.written, report.failed, report.malformed) == (22, 0, 1)
    assert sum(essay(prompt) == "It depends." for prompt in model.asked) == SETTINGS.max_attempts
    asked = len(model.asked)
    assert make(tmp_path / "out", model.runnable, Shelf().runnable).malformed == 1
    assert len(model.asked) == asked


def test_a_model_that_fails_for_all_ends_the_run(tmp_path: Path) -> None:
    def broken(prompt: str) -> str:
        raise ConnectionError("no route")

    with pytest.raises(EngineFailed, match="no route"):
        make(tmp_path / "out", Model(broken).runnable, Shelf().runnable)


def test_a_retriever_that_fails_ends_the_run_and_keeps_what_came_before(tmp_path: Path) -> None:
    def broken(query: str) -> list[Document]:
        raise OSError("disk")

    model = Model()
    for run in (
        lambda: make(tmp_path / "out", model.runnable, RunnableLambda(broken)),
        lambda: asyncio.run(
            amake_generator_data(
                model.runnable, RunnableLambda(broken), ROWS, tmp_path / "out", SETTINGS
            )
        ),
    ):
        with pytest.raises(RetrievalFailed, match="disk"):
            run()
    make(tmp_path / "out", model.runnable, Shelf().runnable)
    assert max(Counter(model.asked).values()) == 1


def test_a_file_is_of_one_run_with_one_setting(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out, Model().runnable, Shelf().runnable, ROWS[:2])
    others = GeneratorDataSettings("another", "index", top_k=3)
    for refused in (
        lambda: generator_data_cost(ROWS, out, others),
        lambda: make_generator_data(Model().runnable, Shelf().runnable, ROWS, out, others),
    ):
        with pytest.raises(BadRun, match=r"other settings \(critic\)"):
            refused()

    def second(prompt: str) -> str:
        with pytest.raises(BadRun, match="another run"):
            make(out, Model().runnable, Shelf().runnable)
        return label(prompt, essays=False)

    make(out, Model(second).runnable, Shelf().runnable, ROWS[:3], max_concurrency=1)


def test_a_place_that_cannot_be_written_is_refused_before_the_first_call(tmp_path: Path) -> None:
    folder, file, model = tmp_path / "folder", tmp_path / "file", Model()
    folder.mkdir()
    file.write_text("mine")
    before = set(tmp_path.iterdir())
    for out, reason in ((folder, "is a folder"), (file, "not of this command's making")):
        for refused in (
            lambda out=out: generator_data_cost(ROWS, out, SETTINGS),
            lambda out=out: make(out, model.runnable, Shelf().runnable),
            lambda out=out: asyncio.run(
                amake_generator_data(model.runnable, Shelf().runnable, ROWS, out, SETTINGS)
            ),
        ):
            with pytest.raises(BadRun, match=reason):
                refused()
    assert model.asked == []
    assert file.read_text() == "mine"
    assert set(tmp_path.iterdir()) == before


def test_where_nothing_is_made_the_same_call_goes_on(tmp_path: Path) -> None:
    for _ in range(2):
        essays = Model(lambda prompt: "It depends.").runnable
        assert make(tmp_path / "out", essays, Shelf().runnable, ROWS[:3]).written == 0
        assert (tmp_path / "out").read_bytes() == b""


def test_more_rows_are_added_to_a_file(tmp_path: Path) -> None:
    make(tmp_path / "whole", Model().runnable, Shelf().runnable)
    make(tmp_path / "out", Model().runnable, Shelf().runnable, ROWS[:10])
    report = make(tmp_path / "out", (model := Model()).runnable, Shelf().runnable)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert report.calls == len(model.asked)
    assert sum(prompt.endswith("utility:") for prompt in model.asked) == 13
