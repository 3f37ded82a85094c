"""The contract of engines on the real vLLM, in this process and behind its server; its crashes."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from selfcorrect_rag.errors import EngineFailed, ModelNotFound
from selfcorrect_rag.models import (
    EngineReflectionLLM,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.models.engines.engine import Request
from selfcorrect_rag.models.engines.vllm import VLLMEngine
from tests.conftest import byte_level_tokenizer, random_model
from tests.engine_contract import PROMPTS, EngineContract, assert_alike, reference  # noqa: F401
from tests.test_checkpoint_tokenizers import TEXTS, checkpoint_folder, prompt
from tests.vllm.conftest import CPU, Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["engine", "server"])
def llm(request: pytest.FixtureRequest) -> Iterator[EngineReflectionLLM]:
    if request.param == "engine":
        yield request.getfixturevalue("engine")
        return
    running: Server = request.getfixturevalue("running")
    with VLLMServerReflectionLLM(base_url=running.url) as llm:
        yield llm


@pytest.fixture
def closable(llm: EngineReflectionLLM) -> EngineReflectionLLM:
    if isinstance(llm, VLLMServerReflectionLLM):
        return VLLMServerReflectionLLM(base_url=llm.base_url)
    pytest.skip("another test closes an engine under callers")


class TestEngines(EngineContract):
    def test_sampling_settings_reach_the_engine(self, llm: EngineReflectionLLM) -> None:
        hot: dict[str, Any] = {"temperature": 2.0, "max_tokens": 24}
        one, same, other = (llm.invoke("Say it.", seed=seed, **hot) for seed in (1, 1, 2))
        assert one == same != other


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tokenizer.model`` and no ``tokenizer.json``; nothing says what ``legacy`` is."""
    folder = checkpoint_folder(tmp_path_factory.mktemp("official"), "llama", "slow", legacy=...)
    random_model(1016, 1024).save_pretrained(folder)
    return folder


def test_the_engine_reads_the_ids_of_the_official_inference(official: Path) -> None:
    prompts = [prompt(text["parts"]) for text in TEXTS[:60]]
    small = {**CPU, "max_num_seqs": 8, "max_num_batched_tokens": 1024, "max_model_len": 1024}
    with VLLMReflectionLLM(model=str(official), engine=small) as llm:
        assert llm.context_tokens == 1024
        ids = [llm.get_token_ids(p.to_string()) for p in prompts]
        assert ids == [text["llama"] for text in TEXTS[:60]]
        with TransformersReflectionLLM.from_pretrained(official, device="cpu") as plain:
            expected = plain.generate_segments(prompts[:20], max_tokens=4)
        assert_alike(expected, llm.generate_segments(prompts[:20], max_tokens=4))


def test_a_critic_on_vllm_answers_as_on_transformers(checkpoint: Path) -> None:
    from tests.test_critic import inputs

    given = []
    for critic in (
        Critic.from_pretrained(checkpoint, device="cpu"),
        Critic(VLLMEngine(str(checkpoint), CPU), load_tokenizer(checkpoint)),
    ):
        with critic:
            given.append(critic.judge(inputs()))
    assert given[0] == given[1]


def test_a_step_takes_as_much_as_vllms_own_batch_class(engine: VLLMReflectionLLM) -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    tokens, sequences = EngineArgs.get_batch_defaults(world_size=1)
    scheduler = engine._runner.engine._llm.vllm_config.scheduler_config  # type: ignore[attr-defined]
    assert scheduler.max_num_batched_tokens == tokens[UsageContext.LLM_CLASS]
    assert scheduler.max_num_seqs == sequences[UsageContext.LLM_CLASS]


def test_our_server_refuses_top_k_log_probabilities(running: Server) -> None:
    """Our requests would spoil them; those of chosen ids are what other tests ask for."""
    plain = {"prompt": "Hello", "max_tokens": 1, "logprobs": 1}
    refused = httpx.post(f"{running.url}/v1/completions", json=plain)
    assert refused.status_code == 400
    assert "max allowed: 0" in refused.text


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
