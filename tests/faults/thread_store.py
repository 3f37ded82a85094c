"""Faults of what keeps threads: real files of SQLite, a real PostgreSQL, a cache."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from langgraph.cache.base import BaseCache
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.faults.cases import Seen, fault
from tests.faults.graphs import QUESTION, Parts, seen

CONFIG: Any = {"configurable": {"thread_id": "1"}}
LONG = "w" * 20_000
"""A question that fills many pages of a file."""


def _kept(path: Path, graph: str) -> None:
    """A file with a thread in it."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        built = Parts().build(graph, checkpointer=SqliteSaver(connection))
        built.invoke({"question": f"Who? {LONG}"}, CONFIG)


def _on(form: str, connect: Callable[[], str], use: Callable[[Any, str], Any], graph: str) -> Seen:
    """The error of what is done with a thread on a file that ``connect`` says how to open."""

    async def run() -> Any:
        import aiosqlite

        async with aiosqlite.connect(connect(), uri=True, timeout=0.1) as connection:
            saver = AsyncSqliteSaver(connection)
            return await use(Parts().build(graph, checkpointer=saver), "a")

    try:
        if form == "async":
            asyncio.run(run())
        else:
            with closing(
                sqlite3.connect(connect(), uri=True, check_same_thread=False, timeout=0.1)
            ) as connection:
                use(Parts().build(graph, checkpointer=SqliteSaver(connection)), "")
    except Exception as error:
        return Seen(error)
    raise AssertionError("the store worked")


def _asking(graph: Any, form: str) -> Any:
    return getattr(graph, f"{form}invoke")(QUESTION, CONFIG)


def _reading(graph: Any, form: str) -> Any:
    return getattr(graph, f"{form}get_state")(CONFIG)


def _editing(graph: Any, form: str) -> Any:
    return getattr(graph, f"{form}update_state")(CONFIG, {"answer": "Another."})


@fault("Thread store", "file is cut short")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    _kept(path, graph)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return _on(form, lambda: f"file:{path}", _asking, graph)


@fault("Thread store", "file is cut short, and a thread is read")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    _kept(path, graph)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return _on(form, lambda: f"file:{path}", _reading, graph)


@fault("Thread store", "file is something else")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    path.write_text("Dear diary, " * 1000, encoding="utf-8")
    return _on(form, lambda: f"file:{path}", _asking, graph)


@fault("Thread store", "file may only be read")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    _kept(path, graph)
    return _on(form, lambda: f"file:{path}?mode=ro", _asking, graph)


@fault("Thread store", "file may only be read, and a thread is edited")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    _kept(path, graph)
    return _on(form, lambda: f"file:{path}?mode=ro", _editing, graph)


@fault("Thread store", "file is locked by another process")
def _(graph: str, form: str, tmp_path: Path) -> Seen:
    path = tmp_path / "threads.sqlite"
    _kept(path, graph)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        return _on(form, lambda: f"file:{path}", _asking, graph)


class _Down(BaseCache[Any]):
    """A cache whose server is away."""

    def get(self, keys: Any) -> Any:
        raise ConnectionError("Error 111 connecting to localhost:6379")

    def set(self, pairs: Any) -> None:
        self.get(pairs)

    async def aget(self, keys: Any) -> Any:
        self.get(keys)

    async def aset(self, pairs: Any) -> None:
        self.get(pairs)

    def clear(self, namespaces: Any = None) -> None: ...

    async def aclear(self, namespaces: Any = None) -> None: ...


@fault("Thread store", "cache raises")
def _(graph: str, form: str) -> Seen:
    return seen(graph, form, lambda parts: None, cache=_Down())


@fault("Thread store", "PostgreSQL ends the connection in mid-run")
def _(graph: str, form: str, postgres_address: str) -> Seen:
    parts, thread = Parts(), {"configurable": {"thread_id": f"{graph} {form}"}}

    def ended(*given: Any) -> Any:
        with psycopg.connect(postgres_address, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        return "Austen."

    async def arun(given: Any) -> Any:
        async with AsyncPostgresSaver.from_conn_string(postgres_address) as saver:
            await saver.setup()
            built = parts.build(graph, checkpointer=saver)
            return await built.ainvoke(given, thread, durability="sync")

    def run(given: Any) -> Any:
        if form == "async":
            return asyncio.run(arun(given))
        with PostgresSaver.from_conn_string(postgres_address) as saver:
            saver.setup()
            built = parts.build(graph, checkpointer=saver)
            return built.invoke(given, thread, durability="sync")

    parts.model.breaks(ended, after=int(graph.startswith("self")))
    try:
        run(QUESTION)
    except Exception as error:
        done = Counter(parts.done)
        parts.mend()
        result = run(None)
        again = [what for what in done if parts.done[what] > done[what]]
        return Seen(error, result["notes"], "from its thread", result["stopped"], again)
    raise AssertionError("the store worked")
