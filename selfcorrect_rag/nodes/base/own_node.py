"""Custom nodes that replace nodes of a graph."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.errors import (
    BadArgument,
    BadSettings,
    Fault,
    NodeFailed,
    safe_message,
    wrap_errors,
)
from selfcorrect_rag.events import Answered
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.reply import annotated, reply
from selfcorrect_rag.nodes.base.usage import counted_config
from selfcorrect_rag.search.retriever import takes_one
from selfcorrect_rag.settings import CRAGSettings, Settings

OwnNode = Runnable[Any, Any] | Callable[[Any], Any]
"""A Runnable, or a sync or async function, from the state to an update: a dict of some of its keys,
or None. An async function works in async runs only."""

ASK_ELSEWHERE = (
    "approve_search asks before the graph's own web_search, and nodes= replaces that: give the "
    "search as web_search= instead, or leave approve_search out"
)


def own_node(
    name: str, given: OwnNode, node: Node, settings: Settings, keys: Collection[str]
) -> Node:
    """A custom node that replaces ``node``.

    It gets the same ``step_timeout``, counting of model calls in ``costs``, and handling of faults
    as the node that it replaces. One that gives the answer need not give the reply message: that is
    added. Values returned unchanged from the state are no update. A node of this package is used as
    it is.

    Args:
        name: the node's name in the graph.
        given: the custom node.
        node: the node that it replaces.
        settings: the factory's.
        keys: the keys of the graph's state.

    Raises:
        BadArgument: ``given`` is neither a Runnable nor a function of one argument.
        NodeFailed: at a run, if it raises or returns no state update.
        BadSettings: at a run, if it replaces ``web_search`` and ``approve_search`` is set.
    """
    if isinstance(given, Node):
        return given
    if not isinstance(given, Runnable) and not takes_one(given):
        raise BadArgument(
            f"nodes[{name!r}] is a {type(given).__name__}: give a Runnable, or a function from the "
            "state to an update of it"
        )
    own: Runnable[Any, Any] = given if isinstance(given, Runnable) else RunnableLambda(given)

    def step(state: Mapping[str, Any]) -> Work:
        if name == "web_search":
            check_approval(settings, state)
        own_state = {key: value for key, value in state.items() if key in keys}
        errors = wrap_errors(NodeFailed, f"the node {name}", kept=Fault)  # of parts that it calls
        given = yield from call(own.invoke, own.ainvoke, own_state, counted_config(), within=errors)
        if given is not None and not isinstance(given, Mapping):
            raise NodeFailed(
                f"the node {name} gave a {type(given).__name__}", "give a dict of keys of the state"
            )
        given = given or {}
        if unknown := [key for key in given if key not in keys]:
            near = difflib.get_close_matches(str(unknown[0]), keys, n=1)
            meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(keys))}"
            key = safe_message(repr(unknown[0]))  # which a model may have written
            raise NodeFailed(f"the node {name} gave {key}, which no state has", meant)
        return _answered(name, state, _changed(state, given))

    return Node(name, step, settings, node.failed)


def check_approval(settings: Settings, state: Mapping[str, Any]) -> None:
    """Refuse a custom search node where a person has to approve searches.

    Raises:
        BadSettings: the run, or its thread, asks for approval.
    """
    chosen = current(settings)
    asks = isinstance(chosen, CRAGSettings) and chosen.approve_search
    if asks or state.get("approval") == "wanted":
        raise BadSettings(ASK_ELSEWHERE)


def _changed(state: Mapping[str, Any], given: Mapping[str, Any]) -> Update:
    """A node's result without unchanged values, as in ``{**state, "answer": ...}``."""
    return {
        key: value
        for key, value in given.items()
        if key != "costs" and not (key in state and value is state[key])
    }


def _answered(name: str, state: Mapping[str, Any], update: Update) -> Update:
    """The update, with a reply message added if it gives an answer but no reply."""
    if name in ("generate", "write_answer", "judge_sufficiency") and "answer" in update:
        update = {"cited_answer": update["answer"], "citations": [], **update}
        citations = len(update["citations"])
        emit(Answered(event="answered", answer=update["answer"], citations=citations))
        text = update["cited_answer"]
    elif name == "write_rationale" and "written" in update:
        update = {"numbering": list(range(len(state["passages"]))), **update}
        text = update["written"]
    elif name == "read_rationale":
        return {**annotated(state, update.get("citations") or []), **update}
    else:
        return update
    if "messages" in update:
        return update
    return {**update, **reply(state, text, update.get("citations") or [])}
