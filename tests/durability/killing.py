"""Run graphs one node a process: each is killed before its second node, and the next resumes.

    python -m tests.durability.killing SAVER ADDRESS FOLDER RUN...

Prints one line of JSON for each run, beside the same run left alone. Processes are forked
from this one, which has imported everything and started nothing.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.durability.runs import DYING, RUNS, Calls, Run, built

QUESTION = {"question": "Who wrote Middlemarch?"}
SURVIVES_THE_PROCESS = "PRAGMA synchronous = OFF"
"""What is written outlives a killed process, though not the machine's power; and is fast."""
PAUSE = 0.5
"""Seconds from the start of a node beside another until both are killed."""


class Nodes(BaseCallbackHandler):
    """Writes down each node as it starts; kills the process before the second of them runs."""

    run_inline = True

    def __init__(self, path: Path, *, fatal: bool) -> None:
        self._path, self._fatal = path, fatal
        self._steps: list[int] = []
        self._lock = threading.Lock()

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, name: str = "", **kwargs: Any
    ) -> None:
        metadata = kwargs.get("metadata") or {}
        if metadata.get("langgraph_node") != name:
            return
        with self._lock:
            self._steps.append(metadata["langgraph_step"])
            if self._fatal and len(self._steps) == 2:
                if self._steps[0] != self._steps[1]:
                    _die()
                # The node beside it ends, and what it found is saved, while the search waits.
                DYING.set()
                threading.Timer(PAUSE, _die).start()
            with self._path.open("a") as file:
                file.write(name + "\n")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sync_run(saver: str, address: str, run: Run, calls: Calls, given: Any, config: Any) -> Any:
    with ExitStack() as stack:
        checkpointer: Any
        if saver == "sqlite":
            checkpointer = stack.enter_context(SqliteSaver.from_conn_string(address))
        else:
            checkpointer = stack.enter_context(PostgresSaver.from_conn_string(address))
        checkpointer.setup()
        if saver == "sqlite":
            checkpointer.conn.execute(SURVIVES_THE_PROCESS)
        graph = built(run, calls, checkpointer)
        return graph.invoke(given, config, context=run.context, durability="sync")


async def async_run(
    saver: str, address: str, run: Run, calls: Calls, given: Any, config: Any
) -> Any:
    async with AsyncExitStack() as stack:
        checkpointer: Any
        if saver == "async-sqlite":
            opened: Any = AsyncSqliteSaver.from_conn_string(address)
        else:
            opened = AsyncPostgresSaver.from_conn_string(address)
        checkpointer = await stack.enter_async_context(opened)
        await checkpointer.setup()
        if saver == "async-sqlite":
            await checkpointer.conn.execute(SURVIVES_THE_PROCESS)
        graph = built(run, calls, checkpointer)
        return await graph.ainvoke(given, config, context=run.context, durability="sync")


def forked(saver: str, address: str, run: Run, place: Path, *, fatal: bool) -> int:
    """Run or resume a thread in a process of its own; the signal that ended it as -9, or 0.

    ``place`` names the thread and gets the result, the calls and the nodes. A thread that was
    begun is resumed.
    """
    begun = place.exists()
    place.mkdir(exist_ok=True)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        calls, given = Calls(place / "calls"), None if begun else QUESTION
        config = {
            "configurable": {"thread_id": place.name},
            "callbacks": [Nodes(place / "nodes", fatal=fatal)],
        }
        if saver.startswith("async"):
            result = asyncio.run(async_run(saver, address, run, calls, given, config))
        else:
            result = sync_run(saver, address, run, calls, given, config)
        (place / "result").write_text(json.dumps(result, default=_plain, sort_keys=True))
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def _plain(document: Document) -> Any:
    return document.model_dump()


def main(saver: str, address: str, folder: Path, names: list[str]) -> None:
    for name in names:
        run, whole, place = RUNS[name], folder / name, folder / f"{name}, killed"
        assert forked(saver, address, run, whole, fatal=False) == 0
        statuses = []
        while 0 not in statuses:
            statuses.append(forked(saver, address, run, place, fatal=True))
        line = {
            "run": name,
            "nodes": (whole / "nodes").read_text().split(),
            "statuses": statuses,
            "calls": [(p / "calls").read_text().splitlines() for p in (whole, place)],
            "results": [json.loads((p / "result").read_text()) for p in (whole, place)],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
