"""Crashes, small memory, long prompts, and what closing frees, on the real engine."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from selfcorrect_rag.errors import EngineFailed, ModelNotFound
from selfcorrect_rag.models import VLLMReflectionLLM, VLLMServerReflectionLLM
from selfcorrect_rag.models.engines.engine import Request
from tests.conftest import byte_level_tokenizer
from tests.engine_contract import PROMPTS
from tests.vllm.conftest import CPU, Server

pytestmark = pytest.mark.slow
LONG = Request(max_tokens=400, logprob_ids=(), sampling={"ignore_eos": True})


def processes() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def gone(before: set[int]) -> bool:
    """Whether every process that was started since has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        new = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
        if not any(p.status() != psutil.STATUS_ZOMBIE and "tracker" not in name(p) for p in new):
            return True
        time.sleep(0.2)
    return False


def name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return "tracker"  # it ended meanwhile


async def test_a_cancelled_call_leaves_the_engine(engine: VLLMReflectionLLM) -> None:
    runner, vllm = engine._runner, engine._runner.engine._llm  # type: ignore[attr-defined]
    task = asyncio.ensure_future(runner.arun(runner.complete([[1, 2, 3]] * 8, LONG)))
    while not (vllm.get_num_unfinished_requests() or task.done()):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while vllm.get_num_unfinished_requests():
        await asyncio.sleep(0.01)


def test_a_dead_engine_is_named_and_closing_it_frees_the_processes(checkpoint: Path) -> None:
    before = processes()
    with VLLMReflectionLLM(model=str(checkpoint), engine=CPU) as llm:
        mine = [p for p in psutil.Process().children() if p.pid not in before]
        core = next(p for p in mine if p.children())  # it has a worker of its own
        llm.invoke(PROMPTS[0], max_tokens=2)
        os.kill(core.pid, signal.SIGKILL)
        with pytest.raises(EngineFailed, match="has died"):
            keep_asking(llm)
    assert gone(before)
    with pytest.raises(EngineFailed, match="closed"):
        llm.invoke("Hello")


def keep_asking(llm: VLLMReflectionLLM) -> None:
    for _ in range(1000):
        llm.generate_segments(PROMPTS, max_tokens=20)


def test_closing_under_callers_ends_them_all(checkpoint: Path) -> None:
    before = processes()
    llm = VLLMReflectionLLM(model=str(checkpoint), engine=CPU)
    stream = llm.stream(PROMPTS[0], max_tokens=200, ignore_eos=True)
    next(stream)
    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(keep_asking, llm) for _ in range(12)]
        for closing in [pool.submit(llm.close) for _ in range(3)]:
            closing.result(60)
        assert {type(call.exception(60)) for call in calls} == {EngineFailed}
    with pytest.raises(EngineFailed, match="has been closed"):
        list(stream)
    assert gone(before)


def test_engines_that_do_not_start(checkpoint: Path, tmp_path: Path) -> None:
    before = processes()
    with pytest.raises(EngineFailed, match=r"log above .* lower max_model_len") as raised:
        VLLMReflectionLLM(model=str(checkpoint), engine={**CPU, "kv_cache_memory_bytes": 1000})
    assert "\n" not in str(raised.value)
    with pytest.raises(ModelNotFound, match=r"max_model_len \(100000\) is greater than") as wrong:
        VLLMReflectionLLM(model=str(checkpoint), engine={**CPU, "max_model_len": 100_000})
    assert "\n" not in str(wrong.value)
    with pytest.raises(ModelNotFound, match="tokenizer"):
        VLLMReflectionLLM(model=str(tmp_path))
    byte_level_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelNotFound, match="vLLM cannot run"):
        VLLMReflectionLLM(model=str(tmp_path))
    assert gone(before)


def test_a_server_killed_in_mid_run_and_restarted(running: Server) -> None:
    """Calls under way fail, all of them; the same LLM goes on once a server is there again."""
    with VLLMServerReflectionLLM(base_url=running.url) as llm:
        expected = llm.invoke(PROMPTS[0], max_tokens=8)
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(keep_asking, llm) for _ in range(8)]
            running.kill()
            assert {type(call.exception(60)) for call in calls} == {EngineFailed}
        running.start()
        assert llm.invoke(PROMPTS[0], max_tokens=8) == expected
