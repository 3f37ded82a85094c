"""Run every graph with its threads in Postgres and its nodes' results in Redis.

    python integrations/langgraph_server/check.py [--postgres URL] [--redis URL]

Servers that are not given are started from installed packages, and end with the check. The
models are those that the server would open.
"""

import argparse
from contextlib import ExitStack
from typing import Any

import redis
from langgraph.cache.redis import RedisCache
from langgraph.checkpoint.postgres import PostgresSaver
from services import NotInstalled
from services import postgres as postgres_of_our_own
from services import redis as redis_of_our_own

from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import GRAPHS

QUESTION = "Who discovered penicillin?"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--redis", metavar="URL")
    args = parser.parse_args()
    with ExitStack() as stack:
        try:
            address = args.postgres or stack.enter_context(postgres_of_our_own())
            url = args.redis or stack.enter_context(redis_of_our_own())
        except NotInstalled as error:
            raise SystemExit(f"{error}: install it, or give --postgres and --redis") from error
        client = redis.Redis.from_url(url)
        checkpointer = stack.enter_context(PostgresSaver.from_conn_string(address))
        checkpointer.setup()
        for name, graph in _graphs(checkpointer=checkpointer, cache=RedisCache(client)).items():
            first, second = (_run(graph, f"{name} {turn}") for turn in range(2))
            kept = len(list(graph.get_state_history(_config(f"{name} 0"))))
            if first["answer"] != second["answer"] or "cached" in first["events"]:
                raise SystemExit(f"{name}: the second run differs: {first} {second}")
            cached = second["events"].count("cached")
            print(f"{name}: {first['answer']} ({kept} checkpoints, {cached} results from Redis)")


def _graphs(**kept: Any) -> dict[str, Any]:
    """The served graphs again: those that a server loads keep nothing, because it does."""
    parts = Parts(ServingConfig.from_environment())
    return {name: parts.graph(name, **kept) for name in GRAPHS}


def _run(graph: Any, thread: str) -> dict[str, Any]:
    events, answer = [], ""
    for mode, part in graph.stream(
        {"question": QUESTION}, _config(thread), stream_mode=["custom", "values"]
    ):
        if mode == "custom":
            events.append(part["event"])
        else:
            answer = part.get("answer", "")
    return {"answer": answer, "events": events}


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


if __name__ == "__main__":
    main()
