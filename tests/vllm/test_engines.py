"""The contract of engines on vLLM's real engine and server."""

import pytest

from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.models import (
    EngineReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from tests.engine_contract import EngineContract, failing  # noqa: F401
from tests.vllm.conftest import Server


@pytest.fixture
def llm(backend: EngineReflectionLLM) -> EngineReflectionLLM:
    return backend


@pytest.fixture
def closable(backend: EngineReflectionLLM, running: Server) -> EngineReflectionLLM:
    if isinstance(backend, VLLMReflectionLLM):
        return VLLMReflectionLLM(model=str(generator_path()))
    return VLLMServerReflectionLLM(base_url=running.url)


class TestVLLM(EngineContract):
    pass
