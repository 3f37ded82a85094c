"""A sync stream of any graph is its async twin."""

from typing import Any

import pytest

from tests.four_graphs import PLAIN, build
from tests.scripted import timeless


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
async def test_stream_and_astream(graph: str) -> None:
    made = build(graph)
    options: Any = {"stream_mode": ["updates", "custom", "values"], "context": {"passages": 2}}
    now = list(made.stream(PLAIN, **options))
    later = [chunk async for chunk in made.astream(PLAIN, **options)]
    assert timeless(now) == timeless(later)
