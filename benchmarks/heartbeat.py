"""How long one turn of the event loop is, with many runs at once over long documents.

    python -m benchmarks.heartbeat [--runs 64] [--characters 200000] [--models scripted] [--cut]

A server answers nobody else while one turn of its loop lasts. Measured is each turn: the processor
time of the loop's own thread in it, so that neither other programs nor waiting for other threads
count. For each graph all runs start at once, with real BM25 and Chroma indexes of passages that are
as long as said. Prints one line of JSON; of each graph the longest turn, the 99.9th percentile and
the mean of turns in milliseconds, how many there were, the seconds in all, and where in the code
the longest was. Garbage collection, which falls into any turn, counts apart: ``collecting_ms`` is
its longest.

--models    scripted: they answer at once. chat: chat models that do, asked by prompts for critiques
            and grades. nano: the nano generator and rationale model, and the reader as evaluator
--cut       leave the settings as they are, which cut documents; else they are read whole
--thaw      do not take what was loaded out of garbage collection, as servers should (gc.freeze)
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import threading
import time
from asyncio import events
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel

from benchmarks.graph import FreeReflectionLLM
from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM, RetrievalEvaluator
from selfcorrect_rag.nano import load_generator, load_rationale_model
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.search import BM25Index, ChromaIndex, RetrieverWebSearch

PASSAGES = 5
WATCH = 0.005
"""Seconds between looks at where a turn is."""
RATIONALE = (
    "Document [1] says that the harbour was built in 1871 [1]. Documents 2 and 3 are about the "
    "town and do not mention it. The answer is 1871. "
) * 10


class Turn(NamedTuple):
    """One turn of the loop."""

    seconds: float
    """Of processor time of the loop's thread, without what garbage collection took of it."""
    collecting: float
    """What that took."""
    seen: list[str]
    """Where in the code it was, whenever somebody looked."""


class Heartbeat:
    """Measures each turn of the event loop of the thread that it is used in."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._seen: list[str] = []
        self._thread = threading.get_ident()
        self._ended = threading.Event()
        self._collecting = self._begun = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure what the loop does meanwhile."""
        run = events.Handle._run

        def measured(handle: events.Handle) -> None:
            if threading.get_ident() != self._thread:
                return run(handle)
            seen: list[str] = []
            self._seen = seen
            self._collecting = 0.0
            begun = time.thread_time()
            try:
                return run(handle)
            finally:
                seconds = time.thread_time() - begun
                own = seconds - self._collecting
                self.turns.append(Turn(own, self._collecting, seen))

        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        events.Handle._run = measured  # type: ignore[method-assign, assignment]
        gc.callbacks.append(self._collect)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collect)
            events.Handle._run = run  # type: ignore[method-assign]
            self._ended.set()
            watcher.join()

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() == self._thread:
            if phase == "start":
                self._begun = time.thread_time()
            else:
                self._collecting += time.thread_time() - self._begun

    def _watch(self) -> None:
        while not self._ended.wait(WATCH):
            frame = sys._current_frames().get(self._thread)
            self._seen.append(_where(frame))

    def figures(self) -> dict[str, Any]:
        """What was measured, in milliseconds."""
        turns = sorted(self.turns)
        worst = turns[-1]
        return {
            "worst_ms": round(1000 * worst.seconds, 1),
            "p999_ms": round(1000 * turns[int(len(turns) * 0.999)].seconds, 1),
            "mean_ms": round(1000 * sum(turn.seconds for turn in turns) / len(turns), 3),
            "collecting_ms": round(1000 * max(turn.collecting for turn in turns), 1),
            "turns": len(turns),
            "over_50_ms": sum(turn.seconds > 0.05 for turn in turns),
            "where": next((where for where, _ in Counter(worst.seen).most_common(1)), ""),
        }


def _where(frame: FrameType | None) -> str:
    """The innermost functions of a stack, ours or not."""
    names: list[str] = []
    while frame is not None and len(names) < 4:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back
    return " < ".join(names)


class Relevant(RetrievalEvaluator):
    """Finds everything somewhat relevant, at once."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [0.5] * len(passages)


def passages(characters: int) -> list[Document]:
    """As many as are retrieved, each different, in sentences of ten words."""
    return [
        Document(
            "".join(
                f"The harbour of town {i} has {place} ships in the year {1000 + place % 900}. "
                for place in range(characters // 52 + 1)
            )[:characters],
            metadata={"title": f"Town {i}", "source": f"https://example.org/{i}"},
        )
        for i in range(PASSAGES)
    ]


def graphs(folder: Path, characters: int, models: str) -> dict[str, Any]:
    """The four graphs; those that correct find by BM25, the others by Chroma."""
    found = passages(characters)
    bm25 = BM25Index(folder / "bm25")
    chroma = ChromaIndex(folder / "chroma", DeterministicFakeEmbedding(size=64))
    for index in (bm25, chroma):
        index.add(found)
    by_words, by_vectors = bm25.as_retriever(PASSAGES), chroma.as_retriever(PASSAGES)
    web = RetrieverWebSearch(by_words)
    chat: Any = FakeListChatModel(responses=[RATIONALE])
    reflecting: Any = FreeReflectionLLM()
    writing: Any = chat
    evaluator: RetrievalEvaluator = Relevant()
    if models == "chat":
        reflecting, evaluator = PromptedReflectionLLM(chat), ChatEvaluator(chat)
    elif models == "nano":
        reflecting, evaluator = load_generator(), ReaderEvaluator(Reader.load())
        chat, writing = reflecting, load_rationale_model()
    return {
        "self_rag": create_self_rag(reflecting, by_vectors),
        "crag": create_crag(chat, by_words, evaluator, web),
        "self_crag": create_self_crag(reflecting, by_words, evaluator, web),
        "instruct_rag": create_instruct_rag(writing, by_vectors),
    }


async def beat(graph: Any, runs: int, context: dict[str, Any]) -> dict[str, Any]:
    """The figures of ``runs`` runs that start at once."""
    asked = [{"question": f"How many ships has the harbour of town {i}?"} for i in range(runs)]
    await graph.ainvoke(asked[0], context=context)  # what is done once
    heartbeat, started = Heartbeat(), time.perf_counter()
    with heartbeat.measured():
        results = await asyncio.gather(*(graph.ainvoke(each, context=context) for each in asked))
    assert all(result["answer"] for result in results)
    return {**heartbeat.figures(), "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--characters", type=int, default=200_000)
    parser.add_argument("--models", choices=["scripted", "chat", "nano"], default="scripted")
    parser.add_argument("--graphs", default="self_rag,crag,self_crag,instruct_rag")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--thaw", action="store_true")
    given = parser.parse_args()
    context = {} if given.cut else {"document_characters": given.characters}
    with tempfile.TemporaryDirectory() as folder:
        made = graphs(Path(folder), given.characters, given.models)
        if not given.thaw:
            gc.collect()
            gc.freeze()
        figures = {
            name: asyncio.run(beat(made[name], given.runs, context))
            for name in given.graphs.split(",")
        }
    print(json.dumps({"benchmark": "heartbeat", **vars(given), **figures}))


if __name__ == "__main__":
    main()
