"""Caches a node's results in a LangGraph cache.

LangGraph's own cache policy keys on a node's input but not on the run's settings, so a run with
another threshold would get a stale result.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, ensure_config
from langgraph.cache.base import BaseCache, FullKey

from selfcorrect_rag.errors import describe_error
from selfcorrect_rag.events import Cached
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit, work
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, reply
from selfcorrect_rag.reflection import registered_groups
from selfcorrect_rag.settings import Settings

NAMESPACE = ("__pregel_ns_writes", "__dynamic__")
"""LangGraph's namespace for node writes, so that ``graph.clear_cache()`` clears ours too."""
SPENT = ("costs", "usage", "route")
"""State keys for what a run has cost so far; only results cut short by a limit depend on them."""
TALK = ("messages", "human_message_id", "reply_id")
"""State keys about messages, on which no result depends."""


def cached(node: Node, cache: BaseCache[Any] | None, model: object, settings: Settings) -> Node:
    """The node; with a cache, one that looks its result up first.

    The key is the model, all settings of the run, and the state without ``messages`` and costs.
    Models and evaluators are keyed by :func:`~selfcorrect_rag.models.identity.identity`, evaluators
    by their thresholds too. A cache hit emits the event ``cached`` instead of the node's events,
    and adds no calls or tokens to the costs. Errors and results cut short by a limit are never
    cached. Where the cache raises, the run goes on without it, and a note says so.

    Args:
        node: a node whose result depends only on state, settings and ``model``.
        cache: keeps results without expiry; None caches nothing.
        model: the model that the node calls.
        settings: the factory's.
    """
    if cache is None:
        return node
    store, asks = cache, identity(model)

    def key(state: Mapping[str, Any]) -> FullKey:
        rest = {name: value for name, value in state.items() if name not in (*SPENT, *TALK)}
        chosen = current(settings).model_dump(mode="json", exclude={"step_timeout"})
        parts = [asks, _read_with(model), chosen, rest]
        text = json.dumps(parts, default=_plain, sort_keys=True)
        return (*NAMESPACE, _name()), hashlib.sha256(text.encode()).hexdigest()

    def run(state: Mapping[str, Any]) -> Work:
        place, broken = key(state), _Broken()
        found = yield from call(store.get, store.aget, [place], within=broken)
        if found and place in found:
            return _found(state, found[place], model)
        update = yield from work(node.step, state)
        if "stopped" not in update:
            kept = {place: (_kept(update), None)}
            yield from call(store.set, store.aset, kept, within=broken)
        return broken.noted(state, update)

    return Node(node.get_name(), run, node.settings, node.failed)


class _Broken(AbstractContextManager[None]):
    """Suppresses errors of a cache, which a run can do without, and keeps the last one."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, *_: Any) -> bool:
        self._error = error or self._error
        return isinstance(error, Exception)

    def noted(self, state: Mapping[str, Any], update: Update) -> Update:
        """The update, with a note if the cache failed."""
        if self._error is None:
            return update
        reason = describe_error(self._error)
        note = f"the cache raised {reason}: the result was not taken from there, or kept"
        return {**update, "notes": [*update.get("notes", state["notes"]), note]}


def _name() -> str:
    return str(ensure_config()["metadata"]["langgraph_node"])


def _found(state: Mapping[str, Any], update: Update, model: object) -> Update:
    emit(Cached(event="cached", node=_name()))
    for key in {"cited_answer", "written"} & update.keys():
        text, citations = update[key] or NO_ANSWER, update.get("citations", [])
        update = {**update, **reply(state, text, citations, model)}
    return update


def _kept(update: Update) -> Update:
    """An update to be cached: without costs, and without the reply, which is another run's."""
    return {name: value for name, value in update.items() if name not in (*SPENT, *TALK)}


def _read_with(model: object) -> tuple[object, dict[str, Any]]:
    """A model's identity, and everything else that its results depend on."""
    if isinstance(model, RetrievalEvaluator):
        return model.thresholds, {}
    if not isinstance(model, Runnable):
        return None, {}
    given = ensure_config().get("configurable", {})
    own = [group for group in registered_groups() if group.name in getattr(model, "groups", ())]
    return own or None, {spec.id: given.get(spec.id) for spec in model.config_specs}


def _plain(value: object) -> Any:
    if isinstance(value, Document):
        return [value.id, value.page_content, _keyed(value.metadata)]
    return repr(value)


def _keyed(value: object) -> object:
    """Metadata whose keys may be of any type, which JSON can neither hold nor sort."""
    if isinstance(value, Mapping):
        items = [[repr(key), _keyed(inner)] for key, inner in value.items()]
        return {"items": sorted(items, key=lambda item: str(item[0]))}
    return [_keyed(inner) for inner in value] if isinstance(value, list | tuple) else value
