"""The graphs that a worker runs unless it is given others: those of Studio, by its variables."""

import os
from typing import Any

from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import GRAPHS

REDIS_SECONDS = 0.5
"""How long a run waits for a Redis that does not answer; it then goes on without cached results."""


def served() -> dict[str, Any]:
    """Open the models and documents that ``SELFCORRECT_...`` name; the graphs by name.

    With ``REDIS_URI`` the workers share the results of nodes.
    """
    kept = {}
    if address := os.environ.get("REDIS_URI"):
        from langgraph.cache.redis import RedisCache
        from redis import Redis

        client = Redis.from_url(
            address, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS
        )
        kept["cache"] = RedisCache(client)
    parts = Parts(ServingConfig.from_environment())
    return {name: parts.graph(name, **kept) for name in GRAPHS}
