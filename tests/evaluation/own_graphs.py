"""Compiled graphs of a user's, as ``module:attribute`` names them, and the parts of our own."""

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.settings import GRAPHS, Settings
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, passage_of, segment

MODEL = FakeListChatModel(responses=["Lind, I think."])
PAGES = [Document(f"It was {name}.", metadata={"title": name}) for name in ("Berg", "Lind")]


class Chat(TypedDict, total=False):
    """A conversation."""

    messages: list[AnyMessage]


class Asked(TypedDict, total=False):
    """A question, with the caller's documents and an answer."""

    question: str
    documents: list[Document]
    answer: str
    passages: list[Document]


async def _talk(state: Chat) -> Any:
    return {"messages": [*state["messages"], await MODEL.ainvoke(state["messages"])]}


async def _read(state: Asked) -> Any:
    await asyncio.sleep(0.02)
    if "fail" in state["question"]:
        raise ConnectionError("connection refused")
    documents = state.get("documents") or []
    answer = f"{state['question'].upper()} of {len(documents)}"
    return {"answer": answer, "passages": documents}


def _compiled(state: Any, step: Any) -> Any:
    graph = StateGraph(state)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph.compile()


chat = _compiled(Chat, _talk)
"""Takes messages and answers with one."""
reads = _compiled(Asked, _read)
"""Says the question in capitals and counts its documents; fails if it is asked to."""
NUMBER = 3


class ScriptedParts:
    """Our graphs over a scripted reflection model and two pages, of which Lind's is better."""

    chat_model: Any = None

    def __init__(self) -> None:
        self.llm = ScriptedReflectionLLM(write=self._write)
        self.queries: list[str] = []

    @staticmethod
    def _write(prompt: str) -> Any:
        name = passage_of(prompt)
        fully = {"[Fully supported]": 0.6, "[Partially supported]": 0.4}
        judgements = (RELEVANT, FULL if name == "Lind" else fully, USEFUL)
        return segment(f"It was {name}.", *judgements)

    def retriever(self, query: str) -> list[Document]:
        self.queries.append(query)
        return PAGES

    def settings(self, name: str, **given: Any) -> Settings:
        return GRAPHS[name](**given)

    def graph(self, name: str, settings: Settings | None = None) -> Any:
        given: Any = settings
        if name == "self_rag":
            return create_self_rag(self.llm, self.retriever, settings=given)
        if name == "instruct_rag":
            return create_instruct_rag(MODEL, self.retriever, settings=given)
        create: Any = create_crag if name == "crag" else create_self_crag
        return create(self.llm, self.retriever, NameEvaluator(), settings=given)


class NameEvaluator(RetrievalEvaluator):
    """Grades Lind's page as relevant, and others as not."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [0.9 if "Lind" in passage else -0.95 for passage in passages]


def entails(premise: str, hypothesis: str) -> bool:
    """Whether the premise contains the hypothesis."""
    return hypothesis.strip(" .").lower() in premise.lower()
