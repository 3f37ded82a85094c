"""Many runs at once, cancelled runs, and callers of every sort."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nano_training.questions import WorldQuestion
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.models import ReflectionLLM, VLLMReflectionLLM
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from selfcorrect_rag.reflection import Group
from tests.vllm.conftest import HELLO, Server, documents, unfinished

LONG: dict[str, Any] = {"max_tokens": 1000, "ignore_eos": True}


def inputs(cases: list[WorldQuestion]) -> list[Any]:
    return [{"question": case.question, "documents": documents(case)} for case in cases]


async def test_100_concurrent_runs_do_not_mix(
    backend: ReflectionLLM, cases: list[WorldQuestion]
) -> None:
    graph = create_self_rag(backend, lambda query: [])
    asked = inputs(cases)
    together = await graph.abatch(asked)
    alone = [graph.invoke(each) for each in asked]
    assert [r["answer"] for r in together] == [r["answer"] for r in alone]
    assert [r["citations"] for r in together] == [r["citations"] for r in alone]
    assert len({r["answer"] for r in together}) > 50


async def test_the_failure_of_one_leaves_the_others_answered(
    engine: VLLMReflectionLLM, cases: list[WorldQuestion]
) -> None:
    asked = inputs(cases[:10])
    asked[3] = {"question": ""}
    graph = create_self_rag(engine, lambda query: [])
    config: Any = {"max_concurrency": 4}
    results = await graph.abatch(asked, config, return_exceptions=True)
    assert [i for i, r in enumerate(results) if isinstance(r, Exception)] == [3]


def test_calls_from_threads_and_from_loops_meet(
    backend: ReflectionLLM, cases: list[WorldQuestion]
) -> None:
    asked = [decision_prompt(case.question) for case in cases[:16]]
    expected = [s["reflections"] for s in backend.choose(asked, Group.RETRIEVE)]
    given: dict[int, Any] = {}

    def in_thread(i: int) -> None:
        given[i] = backend.choose([asked[i]], Group.RETRIEVE)[0]["reflections"]

    def in_loop(i: int) -> None:
        given[i] = asyncio.run(backend.achoose([asked[i]], Group.RETRIEVE))[0]["reflections"]

    threads = [threading.Thread(target=(in_thread, in_loop)[i % 2], args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, reflections in enumerate(expected):
        assert given[i][0]["logprobs"] == pytest.approx(reflections[0]["logprobs"], abs=1e-3)


async def test_a_sync_call_works_where_a_loop_is_running(backend: ReflectionLLM) -> None:
    """As in a notebook."""
    said = backend.invoke(HELLO, max_tokens=5)
    assert said == await backend.ainvoke(HELLO, max_tokens=5)
    assert "Hello" in said


def left(llm: ReflectionLLM, running: Server) -> Callable[[], float]:
    if isinstance(llm, VLLMReflectionLLM):
        return lambda: llm._runner.engine.unfinished  # type: ignore[attr-defined]
    return lambda: unfinished(running.url)


async def test_a_cancelled_call_leaves_the_engine(backend: ReflectionLLM, running: Server) -> None:
    count = left(backend, running)
    task = asyncio.ensure_future(backend.abatch(["Tell me a story."] * 8, **LONG))
    await eventually(lambda: count() > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: count() == 0)
    assert "Hello" in await backend.ainvoke(HELLO, max_tokens=5)


async def test_a_stream_that_nobody_reads_on_leaves_the_engine(
    backend: ReflectionLLM, running: Server
) -> None:
    count = left(backend, running)
    stream = backend.astream("Tell me a story.", **LONG)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    await eventually(lambda: count() == 0)


async def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(holds):  # the loop has the call to make meanwhile
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_streams_are_the_text_of_invoke(
    backend: ReflectionLLM, cases: list[WorldQuestion]
) -> None:
    for case in cases[:5]:
        prompt = segment_prompt(case.question, [], documents(case)[:1], "retrieve", 0)
        whole = backend.invoke(prompt)
        assert "".join(backend.stream(prompt)) == whole
        pieces = [piece async for piece in backend.astream(prompt)]
        assert "".join(pieces) == whole
        assert len(pieces) > 2
        assert "".join(backend.stream(case.question)) == backend.invoke(case.question)


def test_sampling_settings_reach_the_engine(backend: ReflectionLLM) -> None:
    hot = {"temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
    one, same, other = (backend.invoke("Say anything.", seed=seed, **hot) for seed in (1, 1, 2))
    assert one == same != other
    cold = {**hot, "temperature": 0.0}
    assert backend.invoke("Say anything.", **cold) == backend.invoke(
        "Say anything.", max_tokens=24, ignore_eos=True
    )


def test_the_engine_takes_as_much_in_a_step_as_vllms_own_batch_class(
    engine: VLLMReflectionLLM,
) -> None:
    """And as many prompts wait in it as it could take."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    tokens, sequences = EngineArgs.get_batch_defaults(world_size=1)
    scheduler = engine._runner.engine._llm.vllm_config.scheduler_config  # type: ignore[attr-defined]
    assert scheduler.max_num_batched_tokens == tokens[UsageContext.LLM_CLASS] > 2048
    assert scheduler.max_num_seqs == sequences[UsageContext.LLM_CLASS] > 128
    assert engine._runner.in_flight == 2 * scheduler.max_num_seqs


def test_a_user_sets_what_a_step_takes() -> None:
    bounds = {"max_num_seqs": 3, "max_num_batched_tokens": 1024, "max_model_len": 1024}
    with VLLMReflectionLLM(model=str(generator_path()), engine=bounds) as small:
        scheduler = small._runner.engine._llm.vllm_config.scheduler_config  # type: ignore[attr-defined]
        assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (3, 1024)
        assert small._runner.in_flight == 6
    with VLLMReflectionLLM(model=str(generator_path()), engine=bounds, in_flight=2) as smaller:
        assert smaller._runner.in_flight == 2
        assert len(smaller.generate_segments([decision_prompt("Who?")] * 8, max_tokens=3)) == 8
