"""The contract of engines on the real engine, in this process and behind its server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from selfcorrect_rag.models import (
    EngineReflectionLLM,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.models.engines.vllm import VLLMEngine
from tests.conftest import random_model
from tests.engine_contract import EngineContract, assert_alike, reference  # noqa: F401
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
    pytest.skip("test_faults.py closes an engine under callers")


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
        assert [llm.get_token_ids(p.to_string()) for p in prompts] == [
            text["llama"] for text in TEXTS[:60]
        ]
        with TransformersReflectionLLM.from_pretrained(official, device="cpu") as plain:
            assert_alike(
                plain.generate_segments(prompts[:20], max_tokens=4),
                llm.generate_segments(prompts[:20], max_tokens=4),
            )


def test_a_critic_on_vllm_answers_as_on_transformers(checkpoint: Path) -> None:
    from tests.test_critic import answers, inputs

    given = []
    for critic in (
        Critic.from_pretrained(checkpoint, device="cpu"),
        Critic(VLLMEngine(str(checkpoint), CPU), load_tokenizer(checkpoint)),
    ):
        with critic:
            given.append(answers(critic, inputs()))
    for expected, answer in zip(*given, strict=True):
        assert answer.token == expected.token
        assert answer.probability == pytest.approx(expected.probability, abs=2e-3)


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
