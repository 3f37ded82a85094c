"""A sync stream is its async twin."""

from typing import Any

import pytest

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.state import Segment
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    segment,
    timeless,
)

CONTEXTS: list[dict[str, Any]] = [
    {},
    {"mode": "always", "depth": 2},
    {"mode": "never"},
    {"closed_set": True},
    {"hard_constraints": ["[Fully supported]"]},
]


def write(prompt: str) -> Segment:
    going = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}
    if prompt.count("<paragraph>") == 1:
        return segment("One.", RELEVANT, FULL, next=going)
    return segment("Two.", RELEVANT, FULL, USEFUL)


def build() -> Any:
    documents = [document("A"), document("B")]
    return create_self_rag(ScriptedReflectionLLM(write=write), lambda query: documents)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_stream_and_astream(context: dict[str, Any]) -> None:
    graph = build()
    modes = ["updates", "custom", "values"]
    options: dict[str, Any] = {"stream_mode": modes, "context": context}
    question = {"question": "Who?"}
    now = list(graph.stream(question, **options))
    later = [chunk async for chunk in graph.astream(question, **options)]
    assert timeless(now) == timeless(later)
