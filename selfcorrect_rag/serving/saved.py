"""A result as it is saved: as JSON values, with what made it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from langgraph.types import Interrupt

from selfcorrect_rag.render.made import versions
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import Settings

SECRET = ("key", "password", "secret", "token")
"""An engine's option with one of these in its name is not saved."""


def made_by(graph: str, settings: Settings, parts: Parts) -> dict[str, Any]:
    """The graph, every setting, the configuration, the names of model and index, versions and the
    date in UTC, as JSON values; without passwords.

    ``graph`` is the name that ``--graph`` takes.
    """
    config = parts.config.model_dump(mode="json")
    scheme, mark, place = parts.config.base_url.partition("://")
    config["base_url"] = scheme + mark + place.rpartition("@")[2]
    config["engine_option"] = [
        given
        for given in parts.config.engine_option
        if not any(word in given.partition("=")[0].lower() for word in SECRET)
    ]
    return {
        "graph": graph,
        "model": parts.answers,
        "index": parts.source,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.model_dump(mode="json"),
        "config": config,
        "versions": versions(),
    }


def saved(result: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A result without its messages, and with the seconds that it took."""
    rest = {key: value for key, value in result.items() if key != "messages"}
    return {**rest, "seconds": round(seconds, 3)}


def json_object(given: Any) -> dict[str, Any]:
    """A JSON object for what is none in a result, as ``json.dumps`` takes it by ``default``:
    documents have id, text and metadata, and what a paused run waits for has value and id."""
    if isinstance(given, Interrupt):
        return {"value": given.value, "id": given.id}
    return {"id": given.id, "text": given.page_content, "metadata": given.metadata}
