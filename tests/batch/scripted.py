"""A graph with a model that can be held, and that records each call before it answers."""

import asyncio
import os
from typing import Any

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class Turn(TypedDict, total=False):
    """A question ``FILE|CALLS|NAME``: where the call is recorded, and how many calls are answered
    at once; later ones wait for a file ``FILE.released``. Nothing: all are answered at once."""

    question: str
    answer: str


async def model(state: Turn) -> Turn:
    """Record the process and the name, wait, and answer; a name with ``fails`` fails."""
    path, most, name = state["question"].split("|")
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {name}\n")
    await asyncio.sleep(0)
    with open(path, encoding="utf-8") as file:
        is_held = most and len(file.readlines()) > int(most)
    while is_held and not os.path.exists(f"{path}.released"):
        await asyncio.sleep(0.02)
    if "fails" in name and not os.path.exists(f"{path}.mended"):
        raise ValueError("no answer")
    return {"answer": f"answer to {name}"}


def make_graph() -> Any:
    """The factory."""
    graph = StateGraph(Turn)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile()


def broken_factory() -> Any:
    """A factory that fails."""
    raise RuntimeError("no weights here")


def _echo(given: Any) -> dict[str, str]:
    text = given["question"] if "question" in given else given["messages"][-1]["content"]
    return {"answer": text.upper()}


ECHO: Any = RunnableLambda(_echo)
NO_GRAPH = 7
