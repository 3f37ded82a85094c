"""One node alone in a graph: its update, its events and what it streams, sync and async alike."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.graph import StateGraph

from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import Beam, Candidate
from tests.scripted import timeless


class Ran(NamedTuple):
    update: dict[str, Any]
    """Without the costs of the node."""
    events: list[Any]
    said: list[str]
    """The chunks of the reply that it streamed."""
    cost: Any


def run_node(
    node: Any, schema: Any, state: Mapping[str, Any], settings: Settings, **config: Any
) -> Ran:
    """What the node does in a run, whose context gives ``settings``; its two forms must agree.

    Settings that the node was made with are the factory's: pass others here, to see it use these.
    """
    builder = StateGraph(schema, context_schema=type(settings))
    builder.add_node("node", node)
    builder.set_entry_point("node")
    graph: Any = builder.compile()
    options: Any = {
        "config": config,
        "context": settings,
        "stream_mode": ["updates", "custom", "messages"],
    }

    async def arun() -> list[Any]:
        return [part async for part in graph.astream(state, **options)]

    seen = list(graph.stream(state, **options))
    ran, again = _read(seen), _read(asyncio.run(arun()))
    assert timeless(ran) == timeless(again)
    return ran


def _read(seen: Sequence[tuple[str, Any]]) -> Ran:
    (update,) = (part["node"] for mode, part in seen if mode == "updates")
    update = dict(update)
    (cost,) = update.pop("costs").values()
    update.pop("route")
    messages = [part[0] for mode, part in seen if mode == "messages"]
    assert {message.id for message in messages} <= {"reply"}, "all under the state's reply_id"
    return Ran(
        update,
        [part for mode, part in seen if mode == "custom"],
        [message.text for message in messages],
        cost,
    )


def costs(model_calls: int = 0, tokens: int = 0) -> dict[str, Any]:
    """What a run has cost before the node."""
    cost = {"model_calls": model_calls, "prompt_tokens": tokens, "generated_tokens": 0}
    return {"before": {**cost, "seconds": 0.0}}


def candidate(text: str, **fields: Any) -> Candidate:
    """The first segment from the first passage, relevant, and the end of the answer."""
    given: Any = {
        "depth": 0,
        "beam": 0,
        "parent": None,
        "step": "retrieve",
        "passage": 0,
        "text": text,
        "pieces": [{"kind": "text", "text": text}],
        "judgements": {},
        "critique": {"ISREL": 1.0, "ISSUP": 1.0, "ISUSE": None},
        "sequence_probability": 1.0,
        "hard": [],
        "score": 3.0,
        "terms": [],
        "path_score": 3.0,
        "path_rule": "mean",
        "path_terms": [3.0],
        "next": None,
        "finish_reason": "end",
        "dropped": None,
        "chosen": False,
    }
    given["critique"] |= {k: fields.pop(k) for k in given["critique"].keys() & fields.keys()}
    assert fields.keys() <= given.keys()
    return {**given, **fields}  # type: ignore[return-value]


def beam(*segments: Candidate, **fields: Any) -> Beam:
    """A partial answer that wants a passage for its next segment."""
    given: Any = {"score": 3.0, "next": "retrieve", "cut": None, "retrieved": []}
    assert fields.keys() <= given.keys()
    return {"segments": list(segments), **given, **fields}  # type: ignore[typeddict-item]
