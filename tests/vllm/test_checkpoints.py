"""A checkpoint as Self-RAG's authors save theirs, on the real engine and behind a real server."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from vllm.lora.utils import parse_fine_tuned_lora_name

from selfcorrect_rag.models import (
    EngineReflectionLLM,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from tests.conftest import random_model
from tests.engine_contract import assert_alike
from tests.test_checkpoint_tokenizers import TEXTS, checkpoint, prompt
from tests.vllm.conftest import Server

PROMPTS = [prompt(text["parts"]) for text in TEXTS]


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tokenizer.model`` and no ``tokenizer.json``; nothing says what ``legacy`` is."""
    folder = checkpoint(tmp_path_factory.mktemp("official"), "llama", "slow", ...)
    random_model(1016, 1024).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["engine", "server"])
def llm(request: pytest.FixtureRequest, official: Path) -> Iterator[EngineReflectionLLM]:
    if request.param == "engine":
        with VLLMReflectionLLM(model=str(official)) as llm:
            yield llm
        return
    server = Server(official)
    server.start()
    try:
        with VLLMServerReflectionLLM(base_url=server.url) as llm:
            yield llm
    finally:
        server.kill()


def test_what_the_engine_reads_is_what_the_official_inference_read(
    llm: EngineReflectionLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Sequence[int]] = []
    complete = llm._runner.engine.complete

    async def seen(ids: Sequence[Sequence[int]], request: Any) -> Any:
        sent.extend(ids)
        return await complete(ids, request)

    monkeypatch.setattr(llm._runner.engine, "complete", seen)
    segments = llm.generate_segments(PROMPTS, max_tokens=1)
    assert [list(ids) for ids in sent] == [text["llama"] for text in TEXTS]
    assert [segment["prompt_tokens"] for segment in segments] == [len(ids) for ids in sent]


def test_it_writes_what_transformers_writes(llm: EngineReflectionLLM, official: Path) -> None:
    reference = TransformersReflectionLLM.from_pretrained(official, device="cpu")
    assert_alike(
        reference.generate_segments(PROMPTS[:60], max_tokens=8),
        llm.generate_segments(PROMPTS[:60], max_tokens=8),
    )


def test_vllm_cannot_serve_an_adapter_with_rows_of_new_tokens() -> None:
    """So what is trained with an adapter is served with it merged, as docs/generator.md says."""
    with pytest.raises(ValueError, match="unsupported LoRA weight"):
        parse_fine_tuned_lora_name("base_model.model.lm_head.token_adapter.trainable_tokens_delta")
