"""vLLM in this process: continuous batching over all concurrent calls."""

import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, SelfCorrectError, require
from selfcorrect_rag.models.engines.background import gather
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
ADVICE = re.compile(r" (?=Try |To allow |See )")
"""Matches where advice begins in vLLM's error messages."""

RECORD = "\x1e"
"""Separator before each log record, which may have several lines."""
RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: (?P<message>.*))?$", re.MULTILINE)
"""The last line of a traceback; all others are indented, or end with a colon."""


class VLLMReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint on vLLM's asynchronous engine.

    The engine runs in another process (or several, with tensor parallelism). Where vLLM spawns
    processes, as its CPU build does, a script needs the usual ``if __name__ == "__main__":``.
    Passages, beams and concurrent runs share its batches. ``in_flight`` is by default twice vLLM's
    ``max_num_seqs``.

    The constructor starts it: seconds for a small model, minutes for a large one.

    Raises:
        MissingExtra: vLLM is not installed.
        ModelNotFound: no checkpoint is there, or vLLM cannot run it.
        NotAReflectionModel: its vocabulary lacks reflection tokens.
        EngineFailed: memory is too small for it.
    """

    model: str
    """A folder, or a hub name such as ``selfrag/selfrag_llama2_7b``."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """The engine's own options: ``tensor_parallel_size``, ``dtype``, ``max_model_len``,
    ``gpu_memory_utilization`` and all others of vLLM's ``AsyncEngineArgs``. ``max_num_seqs`` and
    ``max_num_batched_tokens`` default to vLLM's values for throughput."""

    def model_post_init(self, context: Any, /) -> None:
        require_vllm()
        self._read_by(ControlledTokenizer.from_pretrained(self.model, "vllm"))  # before the engine
        self._open(VLLMEngine(self.model, self.engine))

    @property
    def _llm_type(self) -> str:
        return "vllm-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, **self.engine}


class VLLMEngine(Engine):
    """vLLM's asynchronous engine, in its own processes."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        """Keep the options; :meth:`open` starts the engine.

        Args:
            model: a folder or a hub name.
            options: arguments of vLLM's ``AsyncEngineArgs``.

        Raises:
            MissingExtra: vllm is not installed.
        """
        require_vllm()
        self._model, self._options, self._numbers = model, options, itertools.count()
        self._llm: AsyncLLM | None = None

    async def open(self) -> None:
        """Start it: seconds for a small model, minutes for a large one.

        Raises:
            ModelNotFound: no checkpoint is there, or vLLM cannot run it.
            EngineFailed: memory is too small for it.
        """
        with StartLog(self._options) as log:
            try:
                self._llm = self._start({**self._options, **log.options})
            except Exception as error:
                raise _failure(self._model, log.cause() or _reason(error)) from error
        self.context_tokens = self._llm.model_config.max_model_len
        self.sequences: int = self._llm.vllm_config.scheduler_config.max_num_seqs
        """Maximum number of prompts decoded in one step."""
        # So the next prompts are queued when some of a step end.
        self.in_flight = 2 * self.sequences

    def _start(self, options: Mapping[str, Any]) -> "AsyncLLM":
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        defaults: dict[str, Any] = {"disable_log_stats": True}
        if current_platform.is_cpu():
            defaults |= CPU_OPTIONS
        arguments = AsyncEngineArgs(model=self._model, **{**defaults, **options})
        # The usage context decides the size of a step: by default 128 prompts and 2,048 tokens; for
        # LLM_CLASS, on a GPU of 80 GB, 1,024 and 16,384.
        return AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)

    async def close(self) -> None:
        """End its processes and free its memory."""
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    @property
    def unfinished(self) -> int:
        """Number of prompts running or waiting in the engine."""
        return self._llm.get_num_unfinished_requests() if self._llm else 0

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """See :class:`Engine`."""
        from vllm.sampling_params import RequestOutputKind

        params = _sampling_params(request)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        params.detokenize = bool(request.stop)  # only stop strings need detokenized text
        return await gather(self._one(prompt, params) for prompt in prompts)

    async def _one(self, prompt: Sequence[int], params: "SamplingParams") -> Completion:
        (output,) = [output async for output in self.outputs(prompt, params)]
        (completion,) = output.outputs
        wanted = params.logprob_token_ids
        return Completion(
            ids=completion.token_ids,
            logprobs=[
                # Most tokens are text, which needs only its own log-probability.
                {i: step[i].logprob for i in (wanted if token_id in wanted else [token_id])}
                for token_id, step in zip(completion.token_ids, completion.logprobs, strict=True)
            ],
            finish_reason=completion.finish_reason,
        )

    async def stream(self, prompt: Sequence[int], request: Request) -> AsyncIterator[Sequence[int]]:
        """See :class:`Engine`."""
        from vllm.sampling_params import RequestOutputKind

        params = _sampling_params(request)
        params.output_kind = RequestOutputKind.DELTA
        async for output in self.outputs(prompt, params):
            (delta,) = output.outputs
            ended = delta.finish_reason == "stop" and not isinstance(delta.stop_reason, str)
            yield delta.token_ids[:-1] if ended else delta.token_ids

    async def outputs(self, prompt: Sequence[int], params: "SamplingParams") -> AsyncIterator[Any]:
        """The outputs of vLLM for one prompt of token ids.

        Raises:
            EngineFailed: the engine has died.
        """
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        assert self._llm is not None  # closing ends this loop
        name = f"selfcorrect-{next(self._numbers)}"
        try:
            async for output in self._llm.generate(tokens_input(list(prompt)), params, name):
                yield output
        except EngineDeadError as error:
            raise EngineFailed(
                f"vLLM's engine for {self._model} has died ({error}); its log says why: close what "
                "runs on it and start anew"
            ) from error


def _sampling_params(request: Request) -> "SamplingParams":
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=request.max_tokens,
        logprob_token_ids=list(request.logprob_ids),
        stop_token_ids=list(request.stop_ids),
        stop=list(request.stop),
        allowed_token_ids=None if request.allowed_ids is None else list(request.allowed_ids),
        **{"temperature": 0.0, **request.sampling},
    )


def _reason(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):  # invalid vLLM options; the message has lines of advice
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
    """Import vLLM, after :func:`set_environment`.

    Raises:
        MissingExtra: vllm is not installed.
    """
    set_environment()
    require("vllm", "vllm")


def set_environment() -> None:
    """Set the environment variables that vLLM's CPU build reads at import."""
    from importlib.util import find_spec

    # Otherwise torch's check for a GPU initialises CUDA, and vLLM's processes cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    torch = require("torch", "vllm")
    if find_spec("vllm") and not torch.cuda.is_available():
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)


class StartLog:
    """Keeps the errors that vLLM's processes log while an engine starts.

    vLLM itself only raises "See root cause above". Its log is still shown. Where the user
    configures vLLM's logging, nothing is kept.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Prepare the log; it is written in the ``with`` block.

        Args:
            options: the user's arguments of vLLM's ``AsyncEngineArgs``.
        """
        from vllm import envs

        self.options: dict[str, Any] = {}
        """Further arguments to add."""
        said = {"logging_config", "log_config_file", "log_level"} & options.keys()
        self._wanted = (
            envs.VLLM_CONFIGURE_LOGGING and not envs.VLLM_LOGGING_CONFIG_PATH and not said
        )

    def __enter__(self) -> Self:
        from vllm.config.logging import LoggingConfig
        from vllm.logger import DEFAULT_LOGGING_CONFIG

        self._folder = TemporaryDirectory(prefix="vllm-start-")
        if self._wanted:
            config = deepcopy(DEFAULT_LOGGING_CONFIG)
            config["formatters"]["start"] = {"format": f"{RECORD}%(message)s"}
            config["handlers"]["start"] = {
                "class": "logging.FileHandler",
                "formatter": "start",
                "level": "ERROR",
                "filename": str(self._errors),
            }
            config["loggers"]["vllm"]["handlers"].append("start")
            path = Path(self._folder.name) / "logging.json"
            path.write_text(json.dumps(config), "utf-8")
            self.options = {"logging_config": LoggingConfig(pylogging_config_file=str(path))}
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def cause(self) -> str | None:
        """The last error of the process that failed first; None if none was logged."""
        if not self._errors.exists():
            return None
        for record in self._errors.read_text("utf-8", "replace").split(RECORD):
            _, traceback, text = record.partition("Traceback (most recent call last):\n")
            if traceback and (raised := list(RAISED.finditer(text))):
                return raised[-1]["message"] or raised[-1][0]
        return None

    @property
    def _errors(self) -> Path:
        return Path(self._folder.name) / "errors.log"
