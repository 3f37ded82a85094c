"""Runs that go on, whatever happens to them: none stays for ever, none takes the pages' threads."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.ui.going import MOST_GOING, Busy, Going, Runs
from selfcorrect_rag.ui.places import Places
from selfcorrect_rag.ui.store import Run, RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs.sqlite")


@pytest.fixture(scope="module")
def places() -> Places:
    """The demo's; asked for an index that is not there, a run fails before it opens a model."""
    return Places(ServingConfig())


def nowhere(runs: Runs) -> Going:
    return runs.start("Who?", "crag", GRAPHS["crag"](), "nowhere")


def in_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 60))  # type: ignore[arg-type]


def test_a_run_that_fails_is_stored(places: Places, store: RunStore) -> None:
    async def work() -> None:
        runs = Runs(places, store)
        run = nowhere(runs)
        assert [entry.kind async for _, entry in run.follow()][-1] == "over"
        assert runs.going == {}
        assert store.find()[0].error.startswith("no index nowhere")

    in_loop(work)


def test_a_run_that_cannot_be_stored_is_over_and_says_why(places: Places, store: RunStore) -> None:
    async def work() -> None:
        runs = Runs(places, store)
        with sqlite3.connect(store.path) as file:
            file.execute("DROP TABLE runs")
        run = nowhere(runs)
        told = [entry async for _, entry in run.follow()]
        assert "no such table" in told[-1].data["error"]
        assert runs.going == {}
        assert "no such table" in runs.lost[run.id]

    in_loop(work)


class Slow(RunStore):
    """Stores once it may."""

    began, may = threading.Event(), threading.Event()

    def add(self, run: Run) -> None:
        self.began.set()
        assert self.may.wait(60)
        super().add(run)


def test_a_run_that_is_stopped_while_it_is_stored_is_stored(
    places: Places, store: RunStore
) -> None:
    async def work() -> None:
        slow = Slow(store.path)
        runs = Runs(places, slow)
        run = nowhere(runs)
        await asyncio.to_thread(slow.began.wait)
        runs.stop(run.id)
        closing = asyncio.create_task(runs.close())
        await asyncio.sleep(0)
        slow.may.set()
        await closing
        assert runs.going == {}
        assert [kept.id for kept in store.find()] == [run.id]
        with pytest.raises(Busy, match="ends"):
            nowhere(runs)

    in_loop(work)


def test_a_run_that_is_stopped_before_it_begins_is_stored(places: Places, store: RunStore) -> None:
    async def work() -> None:
        runs = Runs(places, store)
        run = nowhere(runs)
        runs.stop(run.id)  # no step of the loop between
        assert [entry.kind async for _, entry in run.follow()] == ["over"]
        assert runs.going == {}
        assert store.find()[0].state == "stopped"

    in_loop(work)


def test_questions_that_wait_for_the_models_leave_the_pages_their_threads(
    places: Places, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = threading.Event()
    monkeypatch.setattr(places, "graph", lambda *given: opened.wait(60))  # as slow models open

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        runs = Runs(places, store)
        for _ in range(MOST_GOING):
            nowhere(runs)
        with pytest.raises(Busy, match="16 runs"):
            nowhere(runs)
        try:
            assert await asyncio.wait_for(asyncio.to_thread(store.count), 10) == 0
        finally:
            opened.set()
            await runs.close()
        assert store.count() == MOST_GOING

    in_loop(work)
