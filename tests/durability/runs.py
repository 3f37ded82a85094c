"""Runs that between them take every edge of every graph; each call of a model is a line of a file.

What is called has a reason to differ between questions only, so that a resumed run can be compared
with one that was not interrupted.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.prompts import Prompt
from selfcorrect_rag.reflection import CONTINUE, RETRIEVAL
from selfcorrect_rag.state import Segment
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesWebSearch, WordEvaluator
from tests.instruct_runs import DEMONSTRATIONS, RATIONALE, Words
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment


class Calls:
    """What was called, in a file that outlives a killed process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, what: str) -> None:
        with self._path.open("a") as file:
            file.write(what + "\n")


class CountedLLM(ScriptedReflectionLLM):
    count: Callable[[str], None]
    fails_late: bool

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        self.count("decision" if options.get("choose") else f"candidates: {len(prompts)}")
        if self.fails_late and any("Part." in prompt.to_string() for prompt in prompts):
            raise OSError("no more")
        return super()._segments(prompts, **options)


class CountedEvaluator(WordEvaluator):
    def __init__(self, count: Callable[[str], None], fails: str) -> None:
        super().__init__()
        self._count, self._fails = count, fails

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self._count(f"scores: {passages}")
        pages = any("web" in passage for passage in passages)
        if self._fails == ("pages" if pages else "grades"):
            raise OSError("no more")
        return super().score(question, passages)


DYING = threading.Event()
"""The process is about to be killed: a search that began waits for that."""


class CountedWebSearch(PagesWebSearch):
    def __init__(self, count: Callable[[str], None]) -> None:
        super().__init__()
        self._count = count

    def search(self, query: str, k: int) -> list[Document]:
        while DYING.is_set():
            time.sleep(0.1)
        self._count(f"search: {query}")
        return super().search(query, k)

    async def asearch(self, query: str, k: int) -> list[Document]:
        while DYING.is_set():
            await asyncio.sleep(0.1)
        return self.search(query, k)


class CountedEmbeddings(Words):
    def __init__(self, count: Callable[[str], None]) -> None:
        super().__init__()
        self._count = count

    def embed_query(self, text: str) -> list[float]:
        self._count(f"embedding: {text}")
        return super().embed_query(text)


class Run(NamedTuple):
    """One way through a graph."""

    graph: str
    context: dict[str, Any]
    texts: Sequence[str] = ("Gold.",)
    """What is retrieved."""
    retrieval: float = 0.9
    """P(Retrieval) of the decision."""
    after: Sequence[str | None] = (None,)
    """The retrieval token after each segment; None ends the answer."""
    fails_late: str = ""
    """The part that answers once, and then no more."""


RUNS = {
    "again": Run("self_rag", {"depth": 3}, after=(RETRIEVAL, CONTINUE, None)),
    "without evidence": Run("self_rag", {}, retrieval=0.0),
    "failing late": Run("self_rag", {}, after=(RETRIEVAL, None), fails_late="retriever"),
    "no model later": Run("self_rag", {}, after=(RETRIEVAL, None), fails_late="model"),
    "correct": Run("crag", {}, texts=CORRECT),
    "ambiguous": Run("crag", {}, texts=AMBIGUOUS),
    "incorrect": Run("crag", {}, texts=INCORRECT),
    "corrected": Run("self_crag", {"depth": 3}, texts=AMBIGUOUS, after=(RETRIEVAL, CONTINUE, None)),
    "correct and again": Run("self_crag", {}, texts=CORRECT),
    "evidence later": Run("self_crag", {}, retrieval=0.0, after=(RETRIEVAL, None)),
    "no model later, corrected": Run("self_crag", {}, after=(RETRIEVAL, None), fails_late="model"),
    "no grades later": Run(
        "self_crag", {}, retrieval=0.0, after=(RETRIEVAL, None), fails_late="grades"
    ),
    "no pages later": Run(
        "self_crag", {}, INCORRECT, retrieval=0.0, after=(RETRIEVAL, None), fails_late="pages"
    ),
    "demonstrations": Run("instruct_rag", {"mode": "icl", "selection": "nearest"}),
    "instruction": Run("instruct_rag", {"mode": "instruct"}),
    "no retrieval": Run("instruct_rag", {"mode": "no_retrieval"}),
    "judged": Run("self_rag", {"sufficient_context": 0}),
    "judged knowledge": Run("crag", {"sufficient_context": 0}, texts=CORRECT),
    "judged, corrected": Run("self_crag", {"sufficient_context": 0}, texts=CORRECT),
    "judged before the rationale": Run(
        "instruct_rag", {"mode": "instruct", "sufficient_context": 0}
    ),
    "judged before demonstrations": Run(
        "instruct_rag", {"mode": "icl", "selection": "nearest", "sufficient_context": 0}
    ),
}


def built(run: Run, calls: Calls, checkpointer: Any) -> Any:
    """The graph of a run, with models that count."""

    def write(prompt: str) -> Segment:
        answered = prompt.split("### Response:\n")[-1]
        token = run.after[min(answered.count("Part."), len(run.after) - 1)]
        following = None if token is None else {token: 1.0}
        return segment("Part.", RELEVANT, FULL, USEFUL, next=following)

    def chat(messages: Any) -> str:
        calls.add("answer")
        return RATIONALE

    def rewriter(messages: Any) -> str:
        calls.add("rewriting")
        return "gold"

    def retriever(query: str) -> list[Document]:
        calls.add(f"retrieval: {query}")
        if run.fails_late == "retriever" and "Part." in query:
            raise OSError("no more")
        return [document(text, text) for text in run.texts]

    evaluator, web = CountedEvaluator(calls.add, run.fails_late), CountedWebSearch(calls.add)
    llm = CountedLLM(
        write=write, retrieval=run.retrieval, count=calls.add, fails_late=run.fails_late == "model"
    )
    corrected: dict[str, Any] = {
        "rewriter": RunnableLambda(rewriter),
        "checkpointer": checkpointer,
    }
    match run.graph:
        case "self_rag":
            return create_self_rag(llm, retriever, checkpointer=checkpointer)
        case "crag":
            return create_crag(RunnableLambda(chat), retriever, evaluator, web, **corrected)
        case "self_crag":
            return create_self_crag(llm, retriever, evaluator, web, **corrected)
        case _:
            return create_instruct_rag(
                RunnableLambda(chat),
                retriever,
                DEMONSTRATIONS,
                embeddings=CountedEmbeddings(calls.add),
                checkpointer=checkpointer,
            )
