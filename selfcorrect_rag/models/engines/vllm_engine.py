"""vLLM's asynchronous engine in this process, for callers in any thread."""

import itertools
import os
import re
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, SelfCorrectError, require
from selfcorrect_rag.models.engines.background import BackgroundLoop
from selfcorrect_rag.models.engines.vllm_log import StartLog

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_OPTIONS = {
    "dtype": "float32",
    "block_size": 32,
    "kv_cache_memory_bytes": 2 << 30,
    "enforce_eager": True,
}
"""For vLLM's CPU build, whose defaults are blocks too long for the prefixes that candidates share,
a cache of nine tenths of the memory, and a compiled model, which is slow to start."""
CPU_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Where the user has set nothing: the engine and the graph need a core each, and compiling what
gathers the log-probabilities takes longer than it saves."""
ADVICE = re.compile(r" (?=Try |To allow |See )")
"""Where vLLM's reasons end and sentences of advice begin."""


class VLLMEngine:
    """An engine in processes of its own, and the event loop that it is bound to."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        """Start it: seconds for a small model, minutes for a large one.

        Args:
            model: a folder or a hub name.
            options: of vLLM's ``AsyncEngineArgs``.

        Raises:
            MissingExtra: vllm is not installed.
            ModelNotFound: no checkpoint is there, or vLLM cannot run it.
            EngineFailed: memory is too small for it.
        """
        require_vllm()
        self._model, self._numbers = model, itertools.count()
        self._process, self._lock = os.getpid(), threading.Lock()
        self.loop = BackgroundLoop("vllm")
        with StartLog(options) as log:
            try:
                engine = self.loop.run(self._start({**options, **log.options}))
            except BaseException as error:
                self.loop.close()
                if isinstance(error, Exception):
                    raise _failure(model, log.cause() or _reason(error)) from error
                raise
        self._engine: AsyncLLM | None = engine
        self.context_tokens: int = engine.model_config.max_model_len
        self.sequences: int = engine.vllm_config.scheduler_config.max_num_seqs
        """Most prompts that it decodes in one step."""

    async def _start(self, options: Mapping[str, Any]) -> "AsyncLLM":
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        defaults: dict[str, Any] = {"disable_log_stats": True}
        if current_platform.is_cpu():
            defaults |= CPU_OPTIONS
        arguments = AsyncEngineArgs(model=self._model, **{**defaults, **options})
        # What it is used for decides how much a step takes. Where nobody says, that is 128 prompts
        # and 2,048 tokens; for batches, on a GPU of 80 GB, 1,024 and 16,384.
        return AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)

    @property
    def unfinished(self) -> int:
        """Prompts that it is at work on, or that wait in it."""
        return self._engine.get_num_unfinished_requests() if self._engine else 0

    async def outputs(self, prompt: Sequence[int], params: "SamplingParams") -> AsyncIterator[Any]:
        """What vLLM gives for one prompt of token ids, on the engine's loop.

        Raises:
            EngineFailed: the engine has died.
        """
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        assert self._engine is not None  # closing ends the loop that this runs on
        name = f"selfcorrect-{next(self._numbers)}"
        try:
            async for output in self._engine.generate(tokens_input(list(prompt)), params, name):
                yield output
        except EngineDeadError as error:
            raise EngineFailed(
                f"vLLM's engine for {self._model} has died ({error}); its log says why: close what "
                "runs on it and start anew"
            ) from error

    def close(self) -> None:
        """End its processes and free its memory; running calls fail. May be repeated."""
        self.loop.close()
        if self._process != os.getpid():  # of a fork: the engine is the parent's
            return
        with self._lock:  # who else closes it waits for its end, as the first does
            if self._engine is not None:
                self._engine.shutdown()
                self._engine = None


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):  # of vLLM's options; its text has lines of advice
        return "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
    return str(error)


def _failure(model: str, reason: str) -> SelfCorrectError:
    reason = ADVICE.split(" ".join(reason.split()))[0]
    if "memory" not in reason.replace(model, "").lower():
        return ModelNotFound(f"vLLM cannot run {model}: {reason}")
    return EngineFailed(
        f"vLLM has too little memory for {model}: {reason} Lower max_model_len, or raise "
        "gpu_memory_utilization or kv_cache_memory_bytes"
    )


def require_vllm() -> None:
    """Import vLLM, in an environment that suits it.

    Raises:
        MissingExtra: vllm is not installed.
    """
    set_environment()
    require("vllm", "vllm")


def set_environment() -> None:
    """Set what vLLM's CPU build reads at import; elsewhere, nothing."""
    from importlib.util import find_spec

    # Otherwise torch's question for a GPU initialises CUDA, and vLLM's processes cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    torch = require("torch", "vllm")
    if find_spec("vllm") and not torch.cuda.is_available():
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
