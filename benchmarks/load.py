"""Whether a thousand runs keep apart, end, and leave nothing behind.

    python -m benchmarks.load [--runs 1000] [--in-flight 64] [--engine local]

Runs of Self-RAG, and on the local models of CRAG in turn with it, over a hundred questions with
documents of their own, whose answers are all different. Each question is first answered alone. Then
all runs are made with so many in flight, and once more with every other one cancelled while it
runs. Prints one line of JSON:

mixed       runs that gave the answer of another question; 0 is what must be
other       runs that gave neither that nor the answer which the question has alone: of a batch of
            another size, numbers are rounded otherwise
lost        runs that gave no answer
growth      of the memory of all processes from the hundredth run to the last, as a share
cancelled   runs that were cancelled in mid-run; those that were done before are no such
left        what was there after these: tasks, threads more than before, calls in the engine or in
            the evaluator's queue; all 0

--engine    local: the nano generator on transformers, and the reader as evaluator; vllm: the nano
            generator on vLLM, in the environment of ``make test-vllm``
"""

import argparse
import asyncio
import gc
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.nano import generator_path, load_generator
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.search import RetrieverWebSearch

QUESTIONS = 100
SETTLED = 100
"""Runs after which memory is measured: what is loaded once, and kept, is there by then."""
SELF_RAG: dict[str, Any] = {"mode": "always", "form": "short", "segment_tokens": 40}
GIVE_UP = 60.0
"""Seconds to wait for what a cancelled run leaves."""

Ask = Callable[[dict[str, Any]], Any]


def local() -> tuple[list[Ask], Callable[[], dict[str, int]], Callable[[], None]]:
    """Both graphs on the local models, what is at work in these, and their end."""
    llm, reader = load_generator(), Reader.load()
    scheduler = llm._runner.engine.scheduler  # type: ignore[attr-defined]

    def busy() -> dict[str, int]:
        return {
            "calls": len(scheduler._calls) + scheduler._waiting.qsize(),
            "pairs": len(reader._batcher._waiting),
        }

    return [_self_rag(llm), _crag(llm, ReaderEvaluator(reader))], busy, llm.close


def vllm() -> tuple[list[Ask], Callable[[], dict[str, int]], Callable[[], None]]:
    """Self-RAG on vLLM."""
    from selfcorrect_rag.models import VLLMReflectionLLM

    llm = VLLMReflectionLLM(model=str(generator_path()))
    engine: Any = llm._runner.engine
    return [_self_rag(llm)], lambda: {"requests": engine.unfinished}, llm.close


def _self_rag(llm: ReflectionLLM) -> Ask:
    graph: Any = create_self_rag(llm, lambda query: [])
    return lambda asked: graph.ainvoke(asked, context=SELF_RAG)


def _crag(llm: ReflectionLLM, evaluator: Any) -> Ask:
    graph: Any = create_crag(llm, lambda query: [], evaluator, RetrieverWebSearch(lambda query: []))
    return lambda asked: graph.ainvoke(asked)


async def questions(asks: list[Ask]) -> list[tuple[Ask, dict[str, Any], str]]:
    """Who is asked what, and the answer: all of them different."""
    world, found = World("load"), list[tuple[Ask, dict[str, Any], str]]()
    while len(found) < QUESTIONS:
        case = new_question(world, 4)
        asked = {"question": case.question, "documents": case.documents(2)}
        ask = asks[len(found) % len(asks)]
        answer = (await ask(asked))["answer"]
        if answer not in {known for *_, known in found}:
            found.append((ask, asked, answer))
    return found


async def whole(
    rows: list[tuple[Ask, dict[str, Any], str]], runs: int, most: int
) -> dict[str, Any]:
    """All runs, each to its end."""
    places, answers = asyncio.Semaphore(most), {answer for *_, answer in rows}
    counts = {"mixed": 0, "other": 0, "lost": 0}
    memory: list[int] = []

    async def one(number: int) -> None:
        ask, asked, expected = rows[number % len(rows)]
        async with places:
            given = (await ask(asked))["answer"]
        counts["lost"] += not given
        counts["mixed"] += given != expected and given in answers
        counts["other"] += bool(given) and given != expected and given not in answers
        memory.append(resident())

    begun = time.perf_counter()
    ended = await asyncio.gather(*map(one, range(runs)), return_exceptions=True)
    counts["lost"] += sum(isinstance(end, BaseException) for end in ended)
    settled = max(memory[: SETTLED + 1])
    return {
        **counts,
        "growth": round(max(memory) / settled - 1, 4),
        "megabytes": [settled >> 20, max(memory) >> 20],
        "seconds": round(time.perf_counter() - begun, 1),
    }


async def half(
    rows: list[tuple[Ask, dict[str, Any], str]],
    runs: int,
    most: int,
    seconds: float,
    busy: Callable[[], dict[str, int]],
) -> dict[str, Any]:
    """All runs, every other one cancelled at a random time of the ``seconds`` that one takes."""
    places, chance = asyncio.Semaphore(most), random.Random(0)
    threads = threading.active_count()
    counts = {"cancelled": 0, "wrong": 0}

    async def one(number: int) -> None:
        ask, asked, expected = rows[number % len(rows)]
        async with places:
            task = asyncio.ensure_future(ask(asked))
            if number % 2:
                await asyncio.wait([task], timeout=chance.uniform(0, seconds))
                task.cancel()
            with suppress(asyncio.CancelledError):
                counts["wrong"] += (await task)["answer"] != expected
            counts["cancelled"] += task.cancelled()

    await asyncio.gather(*map(one, range(runs)))
    until = time.monotonic() + GIVE_UP

    def left() -> dict[str, int]:
        gc.collect()  # what only cycles hold is not left
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return {
            "tasks": len(tasks),
            "threads": max(threading.active_count() - threads, 0),
            **busy(),
        }

    while any(left().values()) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return {**counts, "left": left()}


def resident() -> int:
    """Bytes of memory of this process and of all that it has started."""
    process, total = psutil.Process(), 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total


async def load(asks: list[Ask], busy: Callable[[], dict[str, int]], runs: int, most: int) -> Any:
    """The figures of both rounds."""
    rows = await questions(asks)
    figures = await whole(rows, runs, most)
    one = figures["seconds"] / runs * most
    return {**figures, **await half(rows, runs, most, one, busy)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--engine", choices=["local", "vllm"], default="local")
    given = parser.parse_args()
    asks, busy, close = {"local": local, "vllm": vllm}[given.engine]()
    try:
        figures = asyncio.run(load(asks, busy, given.runs, given.in_flight))
    finally:
        close()
    print(json.dumps({"benchmark": "load", **vars(given), **figures}))


if __name__ == "__main__":
    main()
