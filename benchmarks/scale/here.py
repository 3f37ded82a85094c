"""Self-RAG with the nano generator on this machine: alone, in one Ray actor, and in several.

CPU time is measured, which other programs on the machine change little; of actors the questions a
second too, beside the cores that other programs used meanwhile.
"""

import asyncio
import gc
import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from langchain_core.runnables import Runnable, RunnableLambda

from benchmarks.scale.simulate import Call, Cpu, Model, Question, System, linear, simulate
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.bulk.graph_actor import GraphActor
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from selfcorrect_rag.nano import demo_index, demo_questions, load_generator

FOLDER = Path(__file__).resolve().parents[2] / "build" / "scale"
NOTES = FOLDER / "notes"
IN_FLIGHT, BLOCK = 8, 29
"""Questions that an actor asks at a time, and of a block of Ray Data's, which an actor ends before
it begins another: a quarter of the demo's questions of fact."""
BLOCKS = 3
"""For each actor."""
SETTLE = 5
"""Seconds in which Ray starts, and as many in which what it takes by itself is measured."""
CORES = os.cpu_count() or 1
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # a core each: threads of several processes only wait for each other
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_worker_niceness": "0",  # by default other programs come first
}


def questions(count: int) -> list[str]:
    """As many of the demo's questions of fact, again from the first where they run out."""
    facts = [row["question"] for row in demo_questions() if row["kind"] == "fact"]
    return [facts[i % len(facts)] for i in range(count)]


def make_graph() -> Any:
    """Self-RAG on the demo's documents, with all that is loaded once loaded."""
    import torch

    torch.set_num_threads(1)
    graph = create_self_rag(load_generator(), demo_index(FOLDER / "demo").as_retriever())
    graph.invoke({"question": "Who wrote Emma?"})
    gc.collect()
    gc.freeze()
    return graph


class Spent(NamedTuple):
    """CPU seconds of a process so far."""

    all: float
    model: float
    """Of the thread that decodes."""

    @classmethod
    def here(cls) -> "Spent":
        """Of this process."""
        decoding = {t.native_id for t in threading.enumerate() if t.name == "reflection-llm"}
        threads = psutil.Process().threads()
        model = sum(t.user_time + t.system_time for t in threads if t.id in decoding)
        return cls(time.process_time(), model)


class Batch(NamedTuple):
    """What the model's thread decoded together."""

    prefill: int
    """Prompt tokens computed, without those that the prefix cache had."""
    lengths: tuple[int, ...]
    """Tokens generated for each row; the first comes with the prefill."""
    seconds: float
    """Of CPU."""

    @property
    def work(self) -> tuple[int, int, int]:
        """Passes, prompt tokens, and tokens that a row decoded in a pass after its first."""
        return max(self.lengths), self.prefill, sum(self.lengths) - len(self.lengths)


@contextmanager
def watched() -> Iterator[list[Batch]]:
    """What the transformers engine decodes meanwhile."""
    from selfcorrect_rag.models.local.decoding import Decoder

    plain, batches = Decoder.__call__, list[Batch]()

    def call(decoder: Any, rows: Any) -> None:
        tokens, before = [0], [len(row.generated) for row in rows]

        def count(model: Any, args: Any, given: Any) -> None:
            tokens[0] += given["input_ids"].numel()

        hook = decoder.model.register_forward_pre_hook(count, with_kwargs=True)
        started = time.thread_time()
        plain(decoder, rows)
        seconds = time.thread_time() - started
        hook.remove()
        lengths = [len(row.generated) - n for row, n in zip(rows, before, strict=True)]
        prefill = tokens[0] - sum(lengths) + len(lengths)
        batches.append(Batch(prefill, tuple(lengths), seconds))

    Decoder.__call__ = call  # type: ignore[method-assign, assignment]
    try:
        yield batches
    finally:
        Decoder.__call__ = plain  # type: ignore[method-assign]


def alone(count: int = 2 * BLOCK) -> dict[str, Any]:
    """One process without Ray: the model's cost, what each question asks of it, and the rest."""
    graph, asked = make_graph(), questions(count)
    batches: list[Batch] = []
    calls: list[list[Any]] = []
    with watched() as of_one:
        for question in asked:
            of_one.clear()
            graph.invoke({"question": question})
            calls.append([[batch.prefill, batch.lengths] for batch in of_one])
            batches += of_one
    before = Spent.here()
    loop = -time.thread_time()
    with watched() as together:
        asyncio.run(graph.abatch([{"question": q} for q in asked], {"max_concurrency": IN_FLIGHT}))
    loop += time.thread_time()
    spent = Spent.here()
    batches += together
    work = np.array([batch.work for batch in batches], dtype=float)
    seconds = np.array([batch.seconds for batch in batches])
    cost, *_ = np.linalg.lstsq(work, seconds, rcond=None)
    rest = spent.all - before.all - (spent.model - before.model)
    return {
        "questions": count,
        "cost_s": dict(zip(("step", "prefill", "decode"), map(float, cost), strict=True)),
        "cost_error": float(np.abs(work @ cost - seconds).sum() / seconds.sum()),
        "loop_s": loop / count,
        "tools_s": (rest - loop) / count,
        "model_s": (spent.model - before.model) / count,
        "calls": calls,
    }


def noted_graph() -> Runnable[Any, Any]:
    """The graph for a ``GraphActor``: it notes when a question was done, and the CPU so far."""
    graph, log = make_graph(), NOTES / f"{os.getpid()}.jsonl"

    async def ask(given: dict[str, Any]) -> Any:
        started = time.time()
        result = await graph.ainvoke(given)
        row = {"started": started, "ended": time.time(), **Spent.here()._asdict()}
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return result

    return RunnableLambda(ask)


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds of a process and of all that it has started, ended ones included."""
    seconds = 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(each.cpu_times()[:4])
    return seconds


class Look(NamedTuple):
    """What the machine has done so far."""

    at: float
    """Seconds."""
    whole: float
    """CPU seconds of all programs."""
    ours: float
    """Of this process and of all that it has started."""

    @classmethod
    def now(cls) -> "Look":
        """Until now."""
        times = psutil.cpu_times()
        whole = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return cls(time.time(), whole, cpu_of(psutil.Process()))

    def since(self, before: "Look") -> "Look":
        """The difference."""
        return Look(*(now - then for now, then in zip(self, before, strict=True)))


def actors(count: int) -> dict[str, Any]:
    """So many actors of Ray Data, in the time in which all of them work."""
    shutil.rmtree(NOTES, ignore_errors=True)
    NOTES.mkdir(parents=True)
    blocks = BLOCKS * count
    asked = [{"question": question} for question in questions(blocks * BLOCK)]
    looks: list[Look] = []
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(looks, ended))
    # One slot more than actors: Ray reads the questions by tasks.
    with ray_cluster("local", cpus=count + 1) as ray:
        time.sleep(SETTLE)
        idle = Look.now()
        time.sleep(SETTLE)
        idle = Look.now().since(idle)
        answered = ray.data.from_items(asked, override_num_blocks=blocks).map_batches(
            GraphActor,
            fn_constructor_args=[f"{__name__}:{noted_graph.__name__}"],
            fn_constructor_kwargs={"in_flight": IN_FLIGHT},
            batch_size=BLOCK,
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=1,
        )
        watcher.start()
        try:
            rows = list(answered.iter_rows())
        finally:
            ended.set()
            watcher.join()
    failed = [row["error"] for row in rows if row["error"]]
    assert len(rows) == len(asked), f"{len(rows)} answers to {len(asked)} questions"
    assert not failed, f"{len(failed)} questions failed: {failed[0]}"
    return {**_figures(looks, count), "idle_cores": idle.ours / idle.at}


def _watch(looks: list[Look], ended: threading.Event) -> None:
    while not ended.wait(1):
        looks.append(Look.now())


def _figures(looks: Sequence[Look], count: int) -> dict[str, Any]:
    """Of the time from when all actors have begun until the first has nothing left."""
    by_actor = [
        [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        for log in NOTES.iterdir()
    ]
    assert len(by_actor) == count, f"{len(by_actor)} of {count} actors had work"
    begin = max(found[IN_FLIGHT]["ended"] for found in by_actor)
    end = min(found[-1]["ended"] for found in by_actor)
    within = [[r for r in found if begin <= r["ended"] <= end] for found in by_actor]
    number = sum(len(found) - 1 for found in within)
    spent = {
        name: sum(found[-1][name] - found[0][name] for found in within) / number
        for name in Spent._fields
    }
    seen = [look for look in looks if begin <= look.at <= end]
    passed = seen[-1].since(seen[0])
    rate = sum(len(found) for found in within) / (end - begin)
    latencies = sorted(row["ended"] - row["started"] for found in within for row in found)
    return {
        "questions": number,
        "rate": rate,
        "latency_s": [statistics.median(latencies), latencies[int(0.95 * len(latencies))]],
        "actor_s": spent["all"],
        "model_s": spent["model"],
        "rest_cores": passed.ours / passed.at - spent["all"] * rate,
        "others_cores": (passed.whole - passed.ours) / passed.at,
        "load": os.getloadavg()[0],
    }


def system(constants: dict[str, Any], count: int, others: float) -> System:
    """So many actors as the simulator takes them."""
    cost_s, pace = constants["alone"]["cost_s"], _pace(constants)
    cost = linear(*(pace * cost_s[name] for name in ("step", "prefill", "decode")))
    one = constants["one_actor"]
    return System(
        actors=count,
        in_flight=IN_FLIGHT,
        batch=BLOCK,
        cores=CORES,
        others=others + one["idle_cores"],
        model=Model(cost, most_tokens=10**6, continuous=False, on_cores=True, shared=False),
        driver=max(one["rest_cores"] - one["idle_cores"], 0.0) / one["rate"],
    )


def steps(constants: dict[str, Any], count: int) -> list[Question]:
    """Questions as the simulator takes them."""
    alone, pace = constants["alone"], _pace(constants)
    traces = alone["calls"]
    return [
        _steps(traces[i % len(traces)], pace * alone["loop_s"], pace * alone["tools_s"])
        for i in range(count)
    ]


def _pace(constants: dict[str, Any]) -> float:
    """CPU time of a question in one actor, over that of a question alone: a core that other
    machines share is not as fast in one minute as in the next."""
    alone = constants["alone"]
    by_itself: float = alone["loop_s"] + alone["tools_s"] + alone["model_s"]
    in_actor: float = constants["one_actor"]["actor_s"]
    return in_actor / by_itself


def _steps(calls: Sequence[tuple[int, list[int]]], loop: float, tools: float) -> Question:
    """The event loop works before and after each call of the model; the first is the decision,
    after which evidence is looked for."""
    turn = Cpu("loop", loop / (len(calls) + 1))
    asked = [step for prefill, lengths in calls for step in (Call(prefill, tuple(lengths)), turn)]
    return [turn, *asked[:1], Cpu("tools", tools), *asked[1:]]


def predicted(constants: dict[str, Any], count: int, others: float = 0.0) -> dict[str, Any]:
    """What so many actors do while other programs use so many cores."""
    outcome = simulate(system(constants, count, others), steps(constants, 4 * count * BLOCK))
    return {
        "rate": outcome.rate,
        "latency_s": [outcome.percentile(0.5), outcome.percentile(0.95)],
        "saturated": outcome.saturated,
    }
