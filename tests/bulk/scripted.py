"""A graph with a model that is slow on purpose, and writes down each call before it answers."""

import asyncio
import os
from typing import Any

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class Turn(TypedDict, total=False):
    """A question ``FILE|SECONDS|NAME``: where the call is written down, and what it takes."""

    question: str
    answer: str


async def model(state: Turn) -> Turn:
    """Append the process and the name to the file, wait, answer; ``fails`` fails."""
    path, seconds, name = state["question"].split("|")
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {name}\n")
    await asyncio.sleep(float(seconds))
    if "fails" in name and not os.path.exists(f"{path}.mended"):
        raise ValueError(f"no answer to {name.rstrip('0123456789')}")
    return {"answer": f"answer to {name}"}


def make_graph() -> Any:
    """The factory."""
    graph = StateGraph(Turn)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile()


def broken_factory() -> Any:
    """A factory that fails where it is run."""
    raise RuntimeError("no weights here")


def wrong_factory() -> Any:
    """A factory of something else."""
    return 7


class Crowd:
    """A graph that notes how many it answers at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.graph = RunnableLambda(self._answer)

    async def _answer(self, given: dict[str, str]) -> dict[str, str]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return {"answer": given["question"]}


CROWD = Crowd()
crowded = CROWD.graph
NO_GRAPH = 7
RUNNABLE: Any = RunnableLambda(lambda given: {"answer": given["question"].upper()})
