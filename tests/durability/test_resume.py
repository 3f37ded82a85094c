"""Runs killed between two nodes go on where they were, with no model asked twice."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.durability.runs import RUNS, Calls, built
from tests.scripted import timeless

ROOT = Path(__file__).parents[2]
LONGEST = ["again", "ambiguous", "corrected", "demonstrations"]


def killed(saver: str, address: str, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Every run killed between any two of its nodes, beside itself left alone."""
    # Whatever a checkpoint cannot be sure to load again, LangGraph warns about.
    command = [sys.executable, "-W", "error", "-m", "tests.durability.killing", saver, address]
    run = subprocess.run(
        [*command, str(folder), *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["run"] for line in lines] == names
    return lines


def check(line: dict[str, Any]) -> None:
    left_alone, resumed = line["calls"]
    assert sorted(resumed) == sorted(left_alone), line["run"]  # no model was asked twice
    left, gone_on = map(timeless, line["results"])
    assert left == gone_on, line["run"]
    *kills, end = line["statuses"]
    assert set(kills) == {-9}
    assert end == 0
    # Two nodes side by side may both have ended when they are killed.
    beside = {"refine_strips", "web_search"} <= set(line["nodes"])
    assert len(line["nodes"]) - 1 - beside <= len(kills) <= len(line["nodes"]) - 1


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
def test_killed_between_any_two_nodes(graph: str, tmp_path: Path) -> None:
    names = [name for name, run in RUNS.items() if run.graph == graph]
    lines = killed("sqlite", str(tmp_path / "threads"), tmp_path, names)
    between = set()
    for line in lines:
        check(line)
        between |= set(pairwise(line["nodes"]))
    drawn = built(RUNS[names[0]], Calls(tmp_path / "unused"), None).get_graph().edges
    edges = {(e.source, e.target) for e in drawn}
    edges = {edge for edge in edges if not {"__start__", "__end__"} & set(edge)}
    # Of nodes side by side, either may be the first to start, and the other is next.
    beside = {
        ("rewrite_query", "refine_strips"),
        ("rewrite_query", "web_search"),
        ("web_search", "select_web_strips"),
        ("refine_strips", "recompose_knowledge"),
    }
    # A search that a fork asks to approve begins again (tests/test_approval.py).
    assert edges - between <= beside | {("web_search", "web_search")}


def test_async_on_sqlite(tmp_path: Path) -> None:
    for line in killed("async-sqlite", str(tmp_path / "threads"), tmp_path, LONGEST):
        check(line)


@pytest.mark.parametrize("saver", ["postgres", "async-postgres"])
def test_on_postgres(saver: str, postgres_address: str, tmp_path: Path) -> None:
    for line in killed(saver, postgres_address, tmp_path, LONGEST):
        check(line)


def test_what_exit_saves(tmp_path: Path) -> None:
    """Durability exit keeps nothing of a run that was killed: it begins again."""
    run, saver = RUNS["again"], InMemorySaver()
    counted = []
    for durability in ("sync", "exit"):
        config: Any = {"configurable": {"thread_id": durability}}
        graph = built(run, Calls(tmp_path / durability), saver)
        graph.invoke({"question": "Who?"}, config, context=run.context, durability=durability)
        counted.append(len(list(saver.list(config))))
    nodes = 11
    assert counted == [nodes + 2, 1]  # the input and what it starts, and one for each node
