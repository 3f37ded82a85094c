"""A worker in this process, on a real PostgreSQL: what happens to runs when something fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from httpx import ASGITransport
from langchain_core.runnables import RunnableLambda
from pydantic import Field

from integrations.workers import runs, worker
from integrations.workers.server import application
from integrations.workers.worker import Worker
from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.models.engines.engine import EngineFailed, EngineUnavailable
from tests.crag_runs import INCORRECT, PagesWebSearch, WordEvaluator
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment

SOON = 20.0
"""Seconds that a run may take to end."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LONGEST_WAIT", 0.2)
    monkeypatch.setattr(worker, "IDLE_SECONDS", 0.1)


class FailingLLM(ScriptedReflectionLLM):
    """Fails at the calls that ``faults`` names by number, as an engine that is away does."""

    faults: dict[int, Exception] = Field(default_factory=dict)

    async def _asegments(self, prompts: Any, **options: Any) -> Any:
        written = self._segments(prompts, **options)
        if error := self.faults.get(len(self._calls)):
            raise error
        return written


def failing(**faults: Exception) -> FailingLLM:
    """``_2=error`` fails the second call."""
    numbered = {int(name[1:]): error for name, error in faults.items()}
    return FailingLLM(
        write=lambda prompt: segment("Eliot.", RELEVANT, FULL, USEFUL), faults=numbered
    )


def self_rag(llm: FailingLLM) -> Any:
    return create_self_rag(llm, lambda query: [document("Gold")])


class Front:
    """Asks for runs, and waits for them, as the server does."""

    def __init__(self, session: runs.Connection) -> None:
        self.session = session

    async def ask(self, graph: str = "self_rag", thread: str = "", **request: Any) -> str:
        name = str(uuid4())
        given = request or {"input": {"question": "Who?"}}
        assert await runs.submit(self.session, name, graph, thread or name, given)
        return name

    async def end(self, name: str) -> dict[str, Any]:
        for _ in range(int(SOON / 0.05)):
            shown = await runs.show(self.session, name)
            assert shown is not None
            if shown["status"] not in ("queued", "running"):
                return shown
            await asyncio.sleep(0.05)
        raise AssertionError(shown)


@asynccontextmanager
async def working(
    address: str, open_graphs: Callable[[], dict[str, Any]], **options: Any
) -> AsyncIterator[Front]:
    one = Worker(address, open_graphs, **options)
    async with await runs.connect(address) as session:
        await runs.set_up(session)
        task = asyncio.create_task(one.work())
        yield Front(session)
        one.stop()
        await asyncio.wait_for(task, SOON)


def front_alone(address: str) -> httpx.AsyncClient:
    """A client of a front that takes no runs."""
    app = application(address, Worker("", dict, slots=0), hosts=["front"])
    return httpx.AsyncClient(transport=ASGITransport(app), base_url="http://front")


async def test_a_model_that_is_away_in_the_middle(database: str) -> None:
    """The run waits and goes on: what the model was asked before, it is not asked again."""
    llm = failing(_2=EngineFailed("no vLLM server answers"), _3=EngineFailed("still none"))
    async with working(database, lambda: {"self_rag": self_rag(llm)}) as front:
        run = await front.end(await front.ask())
    assert (run["status"], run["output"]["answer"], run["attempts"]) == ("done", "Eliot.", 3)
    assert [bool(options.get("choose")) for options in llm._options] == [True, *3 * [False]]


async def test_a_run_waits_for_an_engine_that_cannot_be_reached(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM's server is while it restarts: that counts as no attempt, for a while."""
    llm = failing(**{f"_{n}": EngineUnavailable("no vLLM server answers") for n in range(2, 7)})
    async with working(database, lambda: {"self_rag": self_rag(llm)}, tries=2) as front:
        run = await front.end(await front.ask())
        assert (run["status"], run["attempts"], len(llm.calls)) == ("done", 1, 7)

        monkeypatch.setattr(worker, "PATIENCE", 0.3)
        llm.faults = {n: EngineUnavailable("no vLLM server answers") for n in range(9, 99)}
        name = await front.ask()
        run = await front.end(name)
        assert (run["status"], run["attempts"]) == ("failed", 1)
        assert run["error"].startswith("EngineUnavailable: no vLLM server answers")
        assert len(llm.calls) >= 10
        llm.faults = {len(llm.calls) + 1: EngineUnavailable("no vLLM server answers")}
        assert await runs.retry(front.session, name, name)
        assert (await front.end(name))["status"] == "done"


async def test_a_model_that_is_away_at_the_start(database: str) -> None:
    tried: list[int] = []

    def open_graphs() -> dict[str, Any]:
        tried.append(1)
        if len(tried) < 3:
            raise EngineFailed("no vLLM server answers")
        return {"self_rag": self_rag(failing())}

    async with working(database, open_graphs) as front:
        run = await front.end(await front.ask())
    assert run["status"] == "done"
    assert len(tried) == 3


async def test_a_run_that_never_succeeds_fails_and_can_be_retried(database: str) -> None:
    llm = failing(**{f"_{n}": EngineFailed("away for good") for n in (2, 3)})
    async with working(database, lambda: {"self_rag": self_rag(llm)}, tries=2) as front:
        name = await front.ask()
        run = await front.end(name)
        assert (run["status"], run["attempts"], run["output"]) == ("failed", 2, None)
        assert "away for good" in run["error"]
        assert await runs.retry(front.session, name, name)
        assert (await front.end(name))["output"]["answer"] == "Eliot."
        assert not await runs.retry(front.session, name, name)
    assert len(llm.calls) == 4  # the decision of the first attempt still counts


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"input": {}}, "NoQuestion"),
        ({"input": {"query": "Who?"}}, "BadInput"),
        ({"input": {"question": "Who?"}, "context": {"depth": -1}}, "BadSettings"),
    ],
)
async def test_a_wrong_request_fails_at_once(
    database: str, request_: dict[str, Any], error: str
) -> None:
    async with working(database, lambda: {"self_rag": self_rag(failing())}) as front:
        run = await front.end(await front.ask(**request_))
    assert (run["status"], run["attempts"]) == ("failed", 1)
    assert run["error"].startswith(error)


async def test_a_run_that_kills_its_workers_ends(database: str) -> None:
    async with working(database, lambda: {"self_rag": self_rag(failing())}, tries=3) as front:
        await front.session.execute("ALTER TABLE runs ALTER attempts SET DEFAULT 3")
        run = await front.end(await front.ask())
    assert (run["status"], run["error"]) == ("failed", "not ended after 3 attempts")


async def test_texts_that_json_and_postgres_have_no_word_for(database: str) -> None:
    class Odd:
        """A graph whose output and whose errors hold them."""

        def copy(self, update: Any) -> Any:
            return self

        async def aget_state(self, config: Any) -> Any:
            return type("State", (), {"metadata": None})()

        async def ainvoke(self, given: Any, config: Any, **options: Any) -> Any:
            if "fail" in given:
                raise RuntimeError("a\0b\ud800")
            return {"score": float("nan"), "of": {1, 2}, "text": "a\0b\ud800"}

    async with (
        working(database, lambda: {"odd": Odd()}, tries=1) as front,
        front_alone(database) as client,
    ):
        done, failed = await front.ask("odd"), await front.ask("odd", input={"fail": True})
        for name in (done, failed):
            await front.end(name)
        output = (await client.get(f"/runs/{done}")).json()["output"]
        assert output == {"score": None, "of": [1, 2], "text": "a\0b\ud800"}
        error = (await client.get(f"/runs/{failed}")).json()["error"]
        assert error == r"RuntimeError: a\0b\ud800"


async def test_a_pause_is_resumed_by_a_run_of_the_same_thread(database: str) -> None:
    graph = create_crag(
        RunnableLambda(lambda messages: "Gold."),
        lambda query: [document(text, text) for text in INCORRECT],
        WordEvaluator(),
        PagesWebSearch(),
    )
    context = {"approve_search": True}
    async with working(database, lambda: {"crag": graph}) as front:
        given = {"input": {"question": "Who?"}, "context": context}
        paused = await front.end(await front.ask("crag", "talk", **given))
        assert paused["status"] == "paused"
        assert "__interrupt__" in paused["output"]
        done = await front.end(await front.ask("crag", "talk", resume="no", context=context))
    assert done["status"] == "done"
    assert done["output"]["web_failure"] == "the search was not approved"


async def test_notifications_do_not_pile_up(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is always a next run, nobody waits for one; psycopg keeps what is not read."""
    sessions: list[Any] = []
    kept: list[int] = []

    async def connect(address: str) -> runs.Connection:
        sessions.append(await runs.connect(address))
        return sessions[-1]

    class Counting(FailingLLM):
        async def _asegments(self, prompts: Any, **options: Any) -> Any:
            kept.append(len(sessions[-1]._notifies_backlog))
            return self._segments(prompts, **options)

    monkeypatch.setattr(worker, "connect", connect)
    llm = Counting(write=lambda prompt: segment("Eliot.", RELEVANT, FULL, USEFUL))
    async with await runs.connect(database) as session:
        await runs.set_up(session)
        names = [await Front(session).ask() for _ in range(5)]
    async with working(database, lambda: {"self_rag": self_rag(llm)}, slots=1) as front:
        for name in names:
            await front.end(name)
    assert kept == [0] * 10


async def test_runs_of_a_thread_take_turns(database: str) -> None:
    together, most = 0, 0

    class Slow(FailingLLM):
        async def _asegments(self, prompts: Any, **options: Any) -> Any:
            nonlocal together, most
            together += 1
            most = max(most, together)
            await asyncio.sleep(0.1)
            together -= 1
            return self._segments(prompts, **options)

    llm = Slow(write=lambda prompt: segment("Eliot.", RELEVANT, FULL, USEFUL))
    async with working(database, lambda: {"self_rag": self_rag(llm)}) as front:
        names = [await front.ask(thread="talk") for _ in range(3)]
        ends = [await front.end(name) for name in names]
        assert most == 1
        assert [end["status"] for end in ends] == ["done"] * 3
        names = [await front.ask() for _ in range(3)]
        await asyncio.gather(*map(front.end, names))
        assert most > 1


async def test_a_lost_session_leaves_its_run_to_another_and_writes_nothing_more(
    database: str,
) -> None:
    """As when Postgres restarts, or the network between ends: the run is taken again at once."""
    held, goes_on = asyncio.Event(), asyncio.Event()

    class Holding(FailingLLM):
        async def _asegments(self, prompts: Any, **options: Any) -> Any:
            written = self._segments(prompts, **options)
            if len(self._calls) == 2:
                held.set()
                await goes_on.wait()
            return written

    llm = Holding(write=lambda prompt: segment("Eliot.", RELEVANT, FULL, USEFUL))
    async with working(database, lambda: {"self_rag": self_rag(llm)}, slots=2) as front:
        name = await front.ask()
        await asyncio.wait_for(held.wait(), SOON)
        cursor = await front.session.execute(  # the one that holds the run
            "SELECT count(pg_terminate_backend(pid)) AS ended FROM pg_locks"
            " WHERE locktype = 'advisory'"
        )
        assert await cursor.fetchone() == {"ended": 1}
        run = await front.end(name)
        goes_on.set()
    async with await runs.connect(database) as session:
        cursor = await session.execute(
            "SELECT count(*) AS n FROM checkpoints GROUP BY metadata->>'step'"
        )
        assert {row["n"] for row in await cursor.fetchall()} == {1}
    assert (run["status"], run["attempts"]) == ("done", 2)
    # The call that was under way is made again, the decision before it is not.
    assert [bool(options.get("choose")) for options in llm._options] == [True, False, False]


async def test_two_sessions_never_hold_one_run(database: str) -> None:
    async with await runs.connect(database) as one, await runs.connect(database) as other:
        await asyncio.gather(runs.set_up(one), runs.set_up(other))
        here = one.info.get_parameters()
        for name, value in [
            ("keepalives_idle", "10"),
            ("keepalives_interval", "5"),
            ("keepalives_count", "3"),
            ("tcp_user_timeout", "25000"),
        ]:
            assert here[name] == value
            there = name if name.startswith("tcp") else f"tcp_{name}"
            shown = await (await one.execute(f"SHOW {there}")).fetchone()
            assert shown == {there: value}
        assert await runs.submit(one, "a", "g", "t", {"input": {}})
        assert not await runs.submit(other, "a", "g", "t", {"input": {}})
        taken = await asyncio.gather(runs.take(one, ["g"], "1"), runs.take(other, ["g"], "2"))
        (run,) = [run for run in taken if run is not None]
        holder = one if taken[0] else other
        assert await runs.take(other if holder is one else one, ["g"], "3") is None
        assert (await runs.show(one, "a") or {})["status"] == "running"
        await runs.end(holder, run, "done", {"answer": "x"})
        await runs.end(holder, run, "failed", error="a second end changes nothing")
        await runs.release(holder, run)
        assert await runs.take(other, ["g"], "4") is None
        assert (await runs.show(one, "a") or {})["status"] == "done"


async def test_two_runs_of_a_thread_are_never_held(database: str) -> None:
    async with (
        await runs.connect(database) as one,
        await runs.connect(database) as other,
        await runs.connect(database) as front,
    ):
        await runs.set_up(one)

        async def taken(session: runs.Connection) -> runs.Run | None:
            return await runs.take(session, ["g"], "worker")

        async def fail(session: runs.Connection, run: runs.Run) -> None:
            await runs.end(session, run, "failed", error="away")
            await runs.release(session, run)

        # Of two requests at once the second waits for the first, whose commit takes long.
        async with front.transaction():
            assert await runs.submit(front, "a", "g", "t", {"input": {}})
            second = asyncio.create_task(runs.submit(other, "b", "g", "t", {"input": {}}))
            await asyncio.sleep(0.1)
            assert await taken(one) is None
        assert await second
        run = await taken(one)
        assert run is not None
        assert run.id == "a"
        assert await taken(other) is None

        # A failed run stays failed once its thread has a later one, at work or at an end.
        await fail(one, run)
        assert not await runs.retry(front, "a", "t")
        run = await taken(other)
        assert run is not None
        assert run.id == "b"
        assert not await runs.retry(front, "a", "t")
        assert await taken(one) is None
        await fail(other, run)
        async with front_alone(database) as client:
            refused = await client.post("/runs/a/retry")
        assert refused.status_code == 409
        assert refused.json() == {"error": "a: its thread t has a later run"}

        # The last one is opened again, and what is asked for meanwhile comes after it.
        async with front.transaction():
            assert await runs.retry(front, "b", "t")
            second = asyncio.create_task(runs.submit(other, "c", "g", "t", {"input": {}}))
            await asyncio.sleep(0.1)
            assert await taken(one) is None
        assert await second
        run = await taken(one)
        assert run is not None
        assert run.id == "b"
        assert await taken(other) is None


async def test_postgres_away_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    one = Worker("postgresql://postgres@127.0.0.1:1/none", lambda: {"self_rag": None})
    task = asyncio.create_task(one.work())
    while caplog.text.count("waiting") < 3:
        await asyncio.sleep(0.05)
    assert one.waits_for.startswith("Postgres: OperationalError: ")
    one.stop()
    await asyncio.wait_for(task, SOON)
