"""Calls that are decoded together: each under its own rules, and none in another's way."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import EngineFailed, PromptTooLong
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.prompts import Part, Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.reflection import Group, critique
from selfcorrect_rag.state import Segment
from tests.conftest import talkative
from tests.scripted import document
from tests.test_transformers_llm import close, isrel_llm

Ask = Callable[[TransformersReflectionLLM], list[Segment]]
PASSAGES = [document(f"Passage {i}", f"Some text of {i}. " * (i + 1)) for i in range(4)]


def evidence(question: str, count: int = 4) -> list[Prompt]:
    return [segment_prompt(question, [], PASSAGES, "retrieve", i) for i in range(count)]


class Held:
    """A model's forward passes, which wait from a chosen one on until they may go on."""

    def __init__(self, llm: TransformersReflectionLLM, at: int = 0) -> None:
        self.rows: list[int] = []
        """How many sequences each forward pass had."""
        self.reached, self.released = threading.Event(), threading.Event()
        self._at = at
        model: Any = llm._model
        plain = model.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.rows.append(len(kwargs["input_ids"]))
            if len(self.rows) > self._at:
                self.reached.set()
                assert self.released.wait(60)
            return plain(*args, **kwargs)

        model.forward = forward


@pytest.fixture
def held() -> Iterator[tuple[TransformersReflectionLLM, Held]]:
    """An LLM that is busy until it is released, so that whatever is asked meanwhile waits."""
    llm = talkative()
    llm.invoke("Who?", max_tokens=1)
    holding = Held(llm)
    yield llm, holding
    holding.released.set()
    llm.close()


def waiting(llm: TransformersReflectionLLM, count: int) -> None:
    """Return once ``count`` calls wait behind the one that the worker is busy with."""
    while llm._runner.engine.scheduler._waiting.qsize() < count:
        threading.Event().wait(0.001)


MIXED: list[Ask] = [
    lambda llm: llm.choose([decision_prompt("Who?")], Group.RETRIEVE),
    lambda llm: llm.generate_segments(evidence("Who wrote it?"), max_tokens=30),
    lambda llm: llm.generate_segments(evidence("Who?", 2), max_tokens=7),
    lambda llm: llm.generate_segments(evidence("In the inn?"), max_tokens=12, prune_below=0.9),
    lambda llm: llm.choose(evidence("Why?"), Group.ISUSE),
    lambda llm: _infos(llm, "Who wrote the other?", max_tokens=30, stop=["e"]),
    lambda llm: _infos(llm, "Who wrote the other?", max_tokens=30),
    lambda llm: _infos(llm, "Who?", max_tokens=9, temperature=2.0, seed=3),
    lambda llm: _infos(llm, "Who?", max_tokens=9, temperature=2.0, seed=4),
    lambda llm: _infos(llm, "Who?", max_tokens=5, choose="ISREL"),
]


def _infos(llm: TransformersReflectionLLM, text: str, **options: Any) -> list[Segment]:
    stop = options.pop("stop", None)
    (generations,) = llm.generate([text], stop=stop, **options).generations
    return [Segment(**g.generation_info) for g in generations]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("cache_tokens", [0, 3, 4096])
@pytest.mark.parametrize("batch_tokens", [1, 300, 16_384])
def test_mixed_calls_give_what_each_gives_alone(cache_tokens: int, batch_tokens: int) -> None:
    alone = [ask(talkative(cache_tokens=0)) for ask in MIXED]
    llm = talkative(cache_tokens=cache_tokens, batch_tokens=batch_tokens)
    for _ in range(2):
        with ThreadPoolExecutor(len(MIXED)) as pool:
            together = list(pool.map(lambda ask: ask(llm), MIXED))
        for mine, its in zip(together, alone, strict=True):
            assert len(mine) == len(its)
            assert all(close(a, b) for a, b in zip(mine, its, strict=True))


def test_calls_that_wait_are_decoded_together(
    held: tuple[TransformersReflectionLLM, Held],
) -> None:
    llm, holding = held
    with ThreadPoolExecutor(9) as pool:
        pool.submit(llm.invoke, "First", max_tokens=1)
        assert holding.reached.wait(60)
        work = [pool.submit(llm.generate_segments, evidence(f"{i}?", 2)) for i in range(4)]
        sampled = pool.submit(llm.invoke, "Who?", temperature=2.0, seed=1, max_tokens=4)
        waiting(llm, 5)
        holding.released.set()
        assert all(len(each.result(60)) == 2 for each in work)
        sampled.result(60)
    steps = holding.rows[2:]  # after the first call, and what the others' prompts begin
    assert max(steps) == 8
    assert steps[-3:] == [1, 1, 1], "what samples is alone"


def test_a_call_is_answered_as_soon_as_its_own_rows_are_done() -> None:
    llm = talkative()
    llm.invoke("Who?", max_tokens=1)
    first = Held(llm)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(llm.invoke, "First", max_tokens=1)
        assert first.reached.wait(60)
        long = pool.submit(llm.generate_segments, evidence("Who wrote it?"), max_tokens=30)
        waiting(llm, 1)
        short = pool.submit(llm.choose, [decision_prompt("Who?")], Group.RETRIEVE)
        waiting(llm, 2)
        later = Held(llm, at=4)
        first.released.set()
        assert later.reached.wait(60)
        assert len(short.result(60)) == 1
        assert not long.done()
        later.released.set()
        assert long.result(60)


def test_one_call_that_cannot_be_is_the_only_one_to_fail(
    held: tuple[TransformersReflectionLLM, Held],
) -> None:
    llm, holding = held
    too_long = Prompt(parts=(Part("long " * 600, "trusted"),))
    with ThreadPoolExecutor(5) as pool:
        good = pool.submit(llm.generate_segments, evidence("Who?"), max_tokens=5)
        assert holding.reached.wait(60)
        bad = [
            pool.submit(llm.generate_segments, [*evidence("Who?"), too_long]),
            pool.submit(llm.invoke, "Who?", max_tokens=0),
            pool.submit(llm.choose, evidence("Who?"), "no group"),  # type: ignore[arg-type]
        ]
        for each, error in zip(bad, (PromptTooLong, ValueError, Exception), strict=True):
            with pytest.raises(error):
                each.result(60)
        holding.released.set()
        assert len(good.result(60)) == 4


def test_where_a_batch_fails_each_of_its_calls_is_tried_alone() -> None:
    llm = talkative()
    expected = llm.generate_segments(evidence("Who?"), max_tokens=5)
    model: Any = llm._model
    plain, poison = model.forward, llm.get_token_ids("~")[-1]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if (kwargs["input_ids"] == poison).any():
            raise RuntimeError("poisoned")
        return plain(*args, **kwargs)

    model.forward = forward
    holding = Held(llm)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(llm.invoke, "First", max_tokens=1)
        assert holding.reached.wait(60)
        good = pool.submit(llm.generate_segments, evidence("Who?"), max_tokens=5)
        bad = pool.submit(llm.invoke, "~", max_tokens=5)
        waiting(llm, 2)
        holding.released.set()
        with pytest.raises(EngineFailed, match="RuntimeError: poisoned"):
            bad.result(60)
        assert all(close(a, b) for a, b in zip(good.result(60), expected, strict=True))


@pytest.mark.parametrize("batch_tokens", [1, 16_384])
def test_each_call_is_pruned_by_itself(batch_tokens: int) -> None:
    """The best row of each goes on, whatever others score and however they are spread."""
    llm = isrel_llm(batch_tokens=batch_tokens)
    asked = [evidence(question) for question in ("Who?", "Who wrote the other book?", "Why?")]
    free = [llm.generate_segments(prompts, max_tokens=9) for prompts in asked]
    holding = Held(llm)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(llm.invoke, "First", max_tokens=1)
        assert holding.reached.wait(60)
        work = [
            pool.submit(llm.generate_segments, prompts, max_tokens=9, prune_below=1.1)
            for prompts in asked
        ]
        waiting(llm, 3)
        holding.released.set()
        pruned = [each.result(60) for each in work]
    for mine, its in zip(pruned, free, strict=True):
        scores = [critique(segment["reflections"])["ISREL"] or 0.0 for segment in its]
        best = scores.index(max(scores))
        for i, segment in enumerate(mine):
            if i == best:
                assert close(segment, its[i])
            else:
                assert (segment["finish_reason"], segment["tokens"]) == ("pruned", 1)


async def test_the_rows_of_a_cancelled_call_leave_the_batch() -> None:
    llm = talkative(bias=0.01)  # which never ends by itself
    llm.invoke("Who?", max_tokens=1)
    first = Held(llm)
    kept = asyncio.ensure_future(llm.ainvoke("Who?", max_tokens=3))
    assert await asyncio.to_thread(first.reached.wait, 60)
    dropped = asyncio.ensure_future(llm.agenerate_segments(evidence("Why?"), max_tokens=200))
    await asyncio.to_thread(waiting, llm, 1)
    later = Held(llm, at=8)
    first.released.set()
    assert await asyncio.to_thread(later.reached.wait, 60)
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    later.released.set()
    await kept
    await llm.ainvoke("Who else?", max_tokens=1)
    assert len(later.rows) < 15


# Ends


def test_a_closed_llm_takes_no_more() -> None:
    with talkative() as llm:
        assert llm.invoke("Who?", max_tokens=2) is not None
    llm.close()
    with pytest.raises(EngineFailed, match="has been closed: make a new one"):
        llm.invoke("Who?")
    with pytest.raises(EngineFailed, match="has been closed: make a new one"):
        asyncio.run(llm.ainvoke("Who?"))


async def test_calls_that_wait_or_run_fail_when_the_llm_is_closed(
    held: tuple[TransformersReflectionLLM, Held],
) -> None:
    llm, holding = held
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(llm.invoke, "Who?", max_tokens=50)
        assert await asyncio.to_thread(holding.reached.wait, 60)
        behind = pool.submit(llm.invoke, "Why?")
        in_loop = asyncio.ensure_future(llm.ainvoke("When?"))
        await asyncio.to_thread(waiting, llm, 2)
        closing = pool.submit(llm.close)
        for each in (running, behind):
            with pytest.raises(EngineFailed):
                await asyncio.wrap_future(each)
        with pytest.raises(EngineFailed):
            await in_loop
        holding.released.set()
        await asyncio.wrap_future(closing)


def test_the_worker_and_the_memory_go_with_the_llm() -> None:
    def workers() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name in ("reflection-llm", "engine")}

    others = workers()
    llm = talkative()
    llm.invoke("Who?", max_tokens=2)
    mine, freed = workers() - others, threading.Event()
    weakref.finalize(llm._model, freed.set)
    gc.collect()
    gc.disable()  # a model's memory is not to wait for a collection
    try:
        del llm
        assert freed.wait(20)
    finally:
        gc.enable()
    assert len(mine) == 2
    for thread in mine:
        thread.join(20)
        assert not thread.is_alive()


SCRIPT = """
import os, sys, threading
from selfcorrect_rag.models import Request
from selfcorrect_rag.models.local.scheduler import ScheduledCall
from tests.conftest import talkative

llm = talkative(bias=0.01)
before = llm.invoke("Who?", max_tokens=5)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + script],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_interpreter_ends_while_a_call_is_running() -> None:
    done = run(
        """
asked = threading.Thread(target=llm.invoke, args=("Who?",), kwargs={"max_tokens": 250})
asked.daemon = True
asked.start()
while not llm._runner.engine.scheduler._calls: pass
print("end")
"""
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_the_interpreter_ends_while_the_worker_of_an_llm_that_is_gone_is_busy() -> None:
    """As at the end of a command: nobody has the LLM any more, and its thread is in torch."""
    done = run(
        """
import gc, time
for _ in range(3):
    left = talkative(bias=0.01)
    scheduler = left._runner.engine.scheduler
    call = ScheduledCall([left.get_token_ids("Who? " * 60)] * 8, Request(250, ()), end_ids=())
    scheduler.submit(call)
    while not call.rows[0].generated: time.sleep(0.001)
    del scheduler
    del left
gc.collect()
print("end")
"""
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_worker_of_its_own() -> None:
    done = run(
        """
threading.Thread(target=llm.invoke, args=("Why?",), kwargs={"max_tokens": 250}).start()
# The parent's worker is busy, and has the lock at times.
while not llm._runner.engine.scheduler._calls: pass
child = os.fork()
if child == 0:
    os._exit(7 if llm.invoke("Who?", max_tokens=5) == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert llm.invoke("Who?", max_tokens=5) == before
print("end")
"""
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
