"""vLLM in this process: continuous batching over all concurrent calls."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import Field

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, require
from selfcorrect_rag.models.engines.engine import Completion, Engine, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_OPTIONS = {
    "dtype": "float32",
    "block_size": 32,
    "kv_cache_memory_bytes": 2 << 30,
    "enforce_eager": True,
}
"""Options for vLLM's CPU build, whose defaults are KV blocks too long for the prefixes that
candidates share, a cache of 90 % of the memory, and a compiled model, which is slow to start."""
CPU_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Defaults of environment variables: the engine and the graph need a core each, and compiling the
gathering of log-probabilities takes longer than it saves."""


class VLLMReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint on vLLM's asynchronous engine.

    The constructor starts it in other processes, whose log is shown. If vLLM spawns them, as its
    CPU build does, a script needs the usual ``if __name__ == "__main__":``. Passages, beams and
    concurrent runs share its batches.

    Raises:
        MissingExtra: vLLM is not installed.
        ModelNotFound: no checkpoint is there, or vLLM cannot run it.
        NotAReflectionModel: its vocabulary lacks reflection tokens.
        EngineFailed: its processes failed, for lack of memory for example.
    """

    model: str
    """A folder, or a hub name such as ``selfrag/selfrag_llama2_7b``."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """The engine's own options: ``tensor_parallel_size``, ``dtype``, ``max_model_len``,
    ``gpu_memory_utilization`` and all others of vLLM's ``AsyncEngineArgs``. ``max_num_seqs`` and
    ``max_num_batched_tokens`` default to vLLM's values for throughput."""

    def model_post_init(self, context: Any, /) -> None:
        engine = VLLMEngine(self.model, self.engine)
        # Before the engine starts, which takes longer.
        self._use_tokenizer(ControlledTokenizer.from_pretrained(self.model, "vllm"))
        self._start(engine)

    @property
    def _llm_type(self) -> str:
        return "vllm-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, **self.engine}


class VLLMEngine(Engine):
    """vLLM's asynchronous engine, in processes of its own."""

    def __init__(self, model: str, options: Mapping[str, Any] | None = None) -> None:
        """Keep a model's folder or hub name and arguments of vLLM's ``AsyncEngineArgs``."""
        set_environment()
        require("vllm", "vllm")
        self._model, self._options = model, options or {}
        self._llm: AsyncLLM | None = None

    async def open(self) -> None:
        """Start it; for errors see :class:`VLLMReflectionLLM`."""
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        defaults: dict[str, Any] = {"disable_log_stats": True}
        if current_platform.is_cpu():
            defaults |= CPU_OPTIONS
        try:
            arguments = AsyncEngineArgs(model=self._model, **{**defaults, **self._options})
            # The usage context decides the size of a step: by default 128 prompts and 2,048 tokens;
            # for LLM_CLASS, on a GPU of 80 GB, 1,024 and 16,384.
            context = UsageContext.LLM_CLASS
            self._llm = AsyncLLM.from_engine_args(arguments, usage_context=context)
        except (ValueError, TypeError, OSError) as error:  # of the checkpoint or the options
            reason = " ".join(str(error).split())
            raise ModelNotFound(f"vLLM cannot run {self._model}: {reason}") from error
        except Exception as error:
            raise EngineFailed(
                f"vLLM's processes failed to start {self._model} ({error}): their log above says "
                "why; if memory is too small, lower max_model_len, or raise gpu_memory_utilization "
                "or kv_cache_memory_bytes"
            ) from error
        self.context_tokens = self._llm.model_config.max_model_len

    async def close(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        return await asyncio.gather(*(self._complete(prompt, request) for prompt in prompts))

    async def _complete(self, prompt: Sequence[int], request: Request) -> Completion:
        outputs = self._outputs(prompt, _sampling_params(request, "FINAL_ONLY"))
        (output,) = [output async for output in outputs]
        (completion,) = output.outputs
        ids, watched = completion.token_ids, request.logprob_ids
        logprobs = [
            # Most tokens are text, which needs only its own log-probability.
            {i: step[i].logprob for i in (watched if each in watched else [each])}
            for each, step in zip(ids, completion.logprobs, strict=True)
        ]
        return Completion(ids, logprobs, completion.finish_reason)

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        async for output in self._outputs(prompt, _sampling_params(request, "DELTA")):
            (delta,) = output.outputs
            ended = delta.finish_reason == "stop" and not isinstance(delta.stop_reason, str)
            yield delta.token_ids[:-1] if ended else delta.token_ids

    async def _outputs(
        self, prompt: Sequence[int], params: "SamplingParams"
    ) -> AsyncGenerator[Any, None]:
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        assert self._llm is not None  # closing ends this loop
        try:
            if self._llm.errored:  # a call would wait forever
                raise EngineDeadError
            name = f"selfcorrect-{uuid4()}"
            async for output in self._llm.generate(tokens_input(list(prompt)), params, name):
                yield output
        except EngineDeadError as error:
            raise EngineFailed(
                f"vLLM's engine for {self._model} has died ({error}); its log says why: close the "
                "model and make a new one"
            ) from error


def _sampling_params(request: Request, output_kind: str) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=request.max_tokens,
        logprob_token_ids=list(request.logprob_ids),
        stop_token_ids=list(request.stop_ids),
        stop=list(request.stop),
        allowed_token_ids=None if request.allowed_ids is None else list(request.allowed_ids),
        output_kind=RequestOutputKind[output_kind],
        detokenize=bool(request.stop),  # only stop strings need detokenized text
        **{"temperature": 0.0, **request.sampling},
    )


def set_environment() -> None:
    """Set the environment variables that vLLM's CPU build reads at import."""
    # Otherwise torch's check for a GPU initialises CUDA, and vLLM's processes cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    torch = require("torch", "vllm")
    if find_spec("vllm") and not torch.cuda.is_available():
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
