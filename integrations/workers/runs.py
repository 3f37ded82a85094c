"""The runs in Postgres: who asked what, who works on it, and how it ended.

A worker holds a run by an advisory lock of its database session, and writes the run's checkpoints
through that same session. When a worker dies, Postgres ends its session and frees the lock, and
the run is for the next worker to take. A worker that lost its session can write nothing more, and
of a thread only the oldest open run is taken, so that no two workers ever write to one thread.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Json

Connection = AsyncConnection[dict[str, Any]]

LOCKS = 0x5E1F
"""The first key of this package's advisory locks; the second is a run's number, 0 for the setup."""
REQUESTS = LOCKS + 1
"""The first key of the locks that put the requests of a thread in order; the second is its hash."""
VANISHED = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""When Postgres gives up a session whose machine is gone: by probes (seconds, seconds and how
many) where nothing is under way, and milliseconds after data that nobody acknowledged."""
CONNECT_SECONDS = 5

TABLES: LiteralString = """
CREATE TABLE IF NOT EXISTS runs (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    graph text NOT NULL,
    thread text NOT NULL,
    request json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    not_before timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    waiting_since timestamptz,
    worker text,
    ended_at timestamptz,
    status text,
    output json,
    error text
);
CREATE TABLE IF NOT EXISTS graphs (name text PRIMARY KEY);
CREATE INDEX IF NOT EXISTS runs_open ON runs (number) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS runs_open_of_thread ON runs (thread, number) WHERE ended_at IS NULL;
"""

HELD: LiteralString = """EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND classid = %(locks)s AND objid = runs.number
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
FREE: LiteralString = (
    """
SELECT number FROM runs
WHERE ended_at IS NULL AND not_before <= now() AND graph = ANY(%(graphs)s)
AND NOT EXISTS (
    SELECT FROM runs AS earlier
    WHERE earlier.thread = runs.thread AND earlier.number < runs.number
    AND earlier.ended_at IS NULL)
AND NOT """
    + HELD
    + "ORDER BY number LIMIT 1"
)
TAKE: LiteralString = """
UPDATE runs SET attempts = attempts + 1, worker = %s
WHERE number = %s AND ended_at IS NULL AND not_before <= now()
RETURNING number, id, graph, thread, request, attempts,
    coalesce(extract(epoch FROM now() - waiting_since), 0)::float AS waited
"""
SUBMIT: LiteralString = """
WITH added AS (
    INSERT INTO runs (id, graph, thread, request) VALUES (%s, %s, %s, %s)
    ON CONFLICT (id) DO NOTHING RETURNING id)
SELECT pg_notify('runs', '') FROM added
"""
RETRY: LiteralString = """
WITH opened AS (
    UPDATE runs SET status = NULL, ended_at = NULL, error = NULL, attempts = 0,
        waiting_since = NULL, not_before = now()
    WHERE id = %s AND status = 'failed' AND NOT EXISTS (
        SELECT FROM runs AS later WHERE later.thread = runs.thread AND later.number > runs.number)
    RETURNING id)
SELECT pg_notify('runs', '') FROM opened
"""
SHOW: LiteralString = (
    """
SELECT id, graph, thread, request, attempts, worker, output, error,
    coalesce(status, CASE WHEN """
    + HELD
    + """ THEN 'running' ELSE 'queued' END) AS status
FROM runs WHERE id = %(id)s
"""
)


@dataclass(frozen=True)
class Run:
    """A run that this worker holds."""

    number: int
    id: str
    graph: str
    thread: str
    request: dict[str, Any]
    attempts: int
    """How often it was taken, this time included; not those after which it waited."""
    waited: float
    """Seconds since the first of the latest attempts after which it waited; 0 if none."""


async def connect(address: str) -> Connection:
    """A session whose end either side notices, also if the other's machine vanishes.

    Raises:
        psycopg.OperationalError: Postgres does not answer, or refuses.
    """
    return await AsyncConnection.connect(
        address,
        autocommit=True,
        row_factory=dict_row,
        connect_timeout=CONNECT_SECONDS,
        options=" ".join(f"-c {name}={value}" for name, value in VANISHED.items()),
        **{name.replace("tcp_keepalives", "keepalives"): n for name, n in VANISHED.items()},
    )


async def set_up(connection: Connection) -> None:
    """Make the tables of the runs and of LangGraph's checkpoints, once for all workers."""
    # Nobody waits inside a query here: an index that is made concurrently would wait for that.
    while not await _locked(connection, 0):
        await asyncio.sleep(0.2)
    try:
        await connection.execute(TABLES, prepare=False)
        await AsyncPostgresSaver(connection).setup()
    finally:
        await _unlock(connection, 0)


async def offer(connection: Connection, graphs: Iterable[str]) -> None:
    """Make known which graphs there are workers for."""
    await connection.execute(
        "INSERT INTO graphs SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (list(graphs),)
    )


async def offered(connection: Connection) -> list[str]:
    """The graphs that any worker ever ran, by name."""
    cursor = await connection.execute("SELECT name FROM graphs ORDER BY name")
    return [row["name"] for row in await cursor.fetchall()]


async def submit(
    connection: Connection, run: str, graph: str, thread: str, request: dict[str, Any]
) -> bool:
    """Queue a run; False if there was one with this id, which stays as it is."""
    async with _in_order(connection, thread):
        cursor = await connection.execute(SUBMIT, (run, graph, thread, Json(request)))
        return cursor.rowcount == 1


async def show(connection: Connection, run: str) -> dict[str, Any] | None:
    """A run as clients see it, or None."""
    cursor = await connection.execute(SHOW, {"id": run, "locks": LOCKS})
    return await cursor.fetchone()


async def retry(connection: Connection, run: str, thread: str) -> bool:
    """Queue a failed run of a thread again, to go on from its checkpoint.

    False if it did not fail, or if the thread has a later run: the checkpoint is then that one's.
    """
    async with _in_order(connection, thread):
        cursor = await connection.execute(RETRY, (run,))
        return cursor.rowcount == 1


@asynccontextmanager
async def _in_order(connection: Connection, thread: str) -> AsyncIterator[None]:
    """A transaction that opens a run of a thread, while no other does.

    Otherwise a run could appear before one that was taken already: numbers are given out before
    transactions end.
    """
    async with connection.transaction():
        await connection.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (REQUESTS, thread)
        )
        yield


async def take(connection: Connection, graphs: Iterable[str], worker: str) -> Run | None:
    """Take the oldest free run of these graphs, and hold it until :func:`release`.

    Runs of one thread are taken one after another. ``worker`` is the name that the run shows.
    """
    values = {"locks": LOCKS, "graphs": list(graphs)}
    while found := await (await connection.execute(FREE, values)).fetchone():
        number = found["number"]
        if not await _locked(connection, number):
            continue  # another worker was faster
        # It may have ended between the question and the lock.
        row = await (await connection.execute(TAKE, (worker, number))).fetchone()
        if row is not None:
            return Run(**row)
        await _unlock(connection, number)
    return None


async def end(
    connection: Connection, run: Run, status: str, output: Any = None, error: str | None = None
) -> None:
    """Write how a run ended: ``done``, ``paused`` or ``failed``."""
    await connection.execute(
        """UPDATE runs SET status = %s, output = %s, error = %s, ended_at = now()
        WHERE number = %s AND ended_at IS NULL""",
        (status, Json(output), error, run.number),
    )


async def put_back(
    connection: Connection, run: Run, error: str, seconds: float, *, counts: bool = True
) -> None:
    """Leave a run for another attempt, ``seconds`` from now at the earliest.

    Where this attempt does not count, the run waits for something.
    """
    await connection.execute(
        """UPDATE runs SET error = %(error)s,
        not_before = now() + make_interval(secs => %(seconds)s),
        attempts = attempts - CASE WHEN %(counts)s THEN 0 ELSE 1 END,
        waiting_since = CASE WHEN %(counts)s THEN NULL ELSE coalesce(waiting_since, now()) END
        WHERE number = %(number)s""",
        {"error": error, "seconds": seconds, "counts": counts, "number": run.number},
    )


async def release(connection: Connection, run: Run) -> None:
    """Let go of a run; whoever waits for the next of its thread is told."""
    await _unlock(connection, run.number)
    await connection.execute("NOTIFY runs")


async def _locked(connection: Connection, number: int) -> bool:
    cursor = await connection.execute(
        "SELECT pg_try_advisory_lock(%s, %s) AS locked", (LOCKS, number)
    )
    row = await cursor.fetchone()
    return row is not None and bool(row["locked"])


async def _unlock(connection: Connection, number: int) -> None:
    await connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCKS, number))
