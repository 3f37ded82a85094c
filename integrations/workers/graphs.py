"""The graphs that a worker runs unless it is given others: those of Studio, by its variables."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.cache.base import FullKey
from langgraph.cache.redis import RedisCache

from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import GRAPHS

REDIS_SECONDS = 0.5
"""How long a node waits for a Redis that does not answer; it then goes on without its results."""


class ThreadedRedisCache(RedisCache[Any]):
    """Asks Redis in a thread: LangGraph's own async methods keep the event loop waiting."""

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        return await asyncio.to_thread(self.get, keys)

    async def aset(self, mapping: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        await asyncio.to_thread(self.set, mapping)


def served() -> dict[str, Any]:
    """Open the models and documents that ``SELFCORRECT_...`` name; the graphs by name.

    With ``REDIS_URI`` the workers share the results of nodes.
    """
    kept = {}
    if address := os.environ.get("REDIS_URI"):
        from redis import Redis

        client = Redis.from_url(
            address, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS
        )
        kept["cache"] = ThreadedRedisCache(client)
    parts = Parts(ServingConfig.from_environment())
    return {name: parts.graph(name, **kept) for name in GRAPHS}
