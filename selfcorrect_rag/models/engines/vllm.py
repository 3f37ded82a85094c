"""vLLM in this process, with continuous batching over all concurrent calls, or on a server."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from pydantic import Field, SecretStr

from selfcorrect_rag.errors import (
    EngineFailed,
    ModelNotFound,
    NotAReflectionModel,
    one_line,
    require,
)
from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineRunner, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer

if TYPE_CHECKING:
    import httpx
    from vllm.v1.engine.async_llm import AsyncLLM

CONNECT_SECONDS, KEEP_SECONDS = 10.0, 1.0
"""Maximum time for connecting to a server, and of an idle connection: a server closes it after 5
seconds, and a request that it meets then would fail."""


class VLLMReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint on vLLM's asynchronous engine.

    The constructor starts it in other processes, whose log is shown. If vLLM spawns them, a script
    needs the usual ``if __name__ == "__main__":``. Passages, beams and concurrent runs share its
    batches.

    Raises:
        MissingExtra: vLLM is not installed.
        ModelNotFound: no checkpoint is there, or vLLM cannot run it.
        NotAReflectionModel: its vocabulary lacks reflection tokens.
        EngineFailed: its processes failed, for lack of memory for example.
    """

    _kind: ClassVar[str] = "vllm"
    model: str
    """A folder, or a hub name such as ``selfrag/selfrag_llama2_7b``."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """The engine's own options: ``tensor_parallel_size``, ``dtype``, ``max_model_len``,
    ``gpu_memory_utilization`` and all others of vLLM's ``AsyncEngineArgs``. ``max_num_seqs`` and
    ``max_num_batched_tokens`` default to vLLM's values for throughput."""

    def model_post_init(self, context: Any, /) -> None:
        engine = VLLMEngine(self.model, self.engine)
        # Before the engine starts, which takes longer.
        self._tokenizer = ControlledTokenizer.from_pretrained(self.model)
        self._runner = EngineRunner(engine)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, **self.engine}


class VLLMEngine(Engine):
    """vLLM's asynchronous engine, in processes of its own."""

    def __init__(self, model: str, options: Mapping[str, Any] | None = None) -> None:
        """Keep a model's folder or hub name and arguments of vLLM's ``AsyncEngineArgs``."""
        require("vllm", "vllm")
        self._model, self._options = model, options or {}
        self._llm: AsyncLLM | None = None

    async def open(self) -> None:
        """Start it; for errors see :class:`VLLMReflectionLLM`."""
        from vllm import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        options: dict[str, Any] = {"disable_log_stats": True, **self._options}
        try:
            arguments = AsyncEngineArgs(model=self._model, **options)
            # The usage context decides the size of a step: by default 128 prompts and 2,048 tokens;
            # for LLM_CLASS, on a GPU of 80 GB, 1,024 and 16,384.
            context = UsageContext.LLM_CLASS
            self._llm = AsyncLLM.from_engine_args(arguments, usage_context=context)
        except (ValueError, TypeError, OSError) as error:  # of the checkpoint or the options
            raise ModelNotFound(f"vLLM cannot run {self._model}: {one_line(error)}") from error
        except Exception as error:
            raise EngineFailed(
                f"vLLM's processes failed to start {self._model} ({error}): their log above says "
                "why; for lack of memory, lower max_model_len"
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
        (output,) = [output async for output in self._outputs(prompt, request, "FINAL_ONLY")]
        (completion,) = output.outputs
        flat, watched, logprobs = completion.logprobs, set(request.logprob_ids), list[Any]()
        spans = zip(completion.token_ids, flat.start_indices, flat.end_indices, strict=True)
        for own, start, end in spans:
            known = dict(zip(flat.token_ids[start:end], flat.logprobs[start:end], strict=True))
            # Most tokens are text, which needs only its own log-probability.
            logprobs.append(known if own in watched else {own: known[own]})
        return Completion(completion.token_ids, logprobs, completion.finish_reason)

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        async for output in self._outputs(prompt, request, "DELTA"):
            yield output.outputs[0].token_ids

    async def _outputs(
        self, prompt: Sequence[int], request: Request, output_kind: str
    ) -> AsyncGenerator[Any, None]:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        params = SamplingParams(
            max_tokens=request.max_tokens,
            logprob_token_ids=list(request.logprob_ids),
            flat_logprobs=True,  # without an object for each of them
            stop_token_ids=list(request.stop_ids),
            stop=list(request.stop),
            allowed_token_ids=None if request.allowed_ids is None else list(request.allowed_ids),
            output_kind=RequestOutputKind[output_kind],
            detokenize=bool(request.stop),  # only stop strings need detokenized text
            **{"temperature": 0.0, **request.sampling},
        )
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


class VLLMServerReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint that a vLLM server (0.27 or newer) serves.

    Prompts are sent as token ids, so that text cannot forge control tokens, and one call's prompts
    as one HTTP request. The constructor checks that the server has the tokenizer's vocabulary.

    Raises:
        MissingExtra: httpx or transformers is not installed.
        EngineFailed: no server answers, it refuses the key, or it is not vLLM.
        ModelNotFound: the server has no such model, or its tokenizer is not found.
        NotAReflectionModel: the vocabulary lacks reflection tokens.
    """

    _kind: ClassVar[str] = "vllm-server"
    base_url: str
    """The server's address, such as ``http://localhost:8000``, with or without ``/v1``."""
    model: str = ""
    """The model's name on the server; its first model by default."""
    tokenizer: str = ""
    """Folder or hub name of the model's tokenizer; by default the model's path on the server, which
    this machine may not have."""
    api_key: SecretStr | None = None
    timeout: float = Field(default=300.0, gt=0)
    """Seconds to wait for one answer."""

    def model_post_init(self, context: Any, /) -> None:
        key = self.api_key.get_secret_value() if self.api_key else ""
        engine = VLLMServerEngine(self.base_url, model=self.model, key=key, timeout=self.timeout)
        self._runner = EngineRunner(engine)
        self.model, self.tokenizer = engine.model, self.tokenizer or engine.root
        self._tokenizer = ControlledTokenizer.from_pretrained(self.tokenizer)
        control = self._tokenizer.control_ids
        given = self._runner.run(engine.tokenize("".join(control)))
        if [i for i in given if i in control.values()] != list(control.values()):
            raise NotAReflectionModel(
                f"{self.base_url} has other ids for the reflection tokens than the tokenizer of "
                f"{self.tokenizer}: give the tokenizer of the model that it serves"
            )

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "base_url": self.base_url}


class VLLMServerEngine(Engine):
    """A vLLM server's OpenAI-compatible API."""

    def __init__(
        self, base_url: str, *, model: str = "", key: str = "", timeout: float = 300.0
    ) -> None:
        """Make the client; for the arguments see :class:`VLLMServerReflectionLLM`."""
        httpx = require("httpx", "transformers")
        if "@" in base_url or not (key.isascii() and key.isprintable()):  # errors would show it
            raise EngineFailed("give the key as api_key, printable ASCII, and not in base_url")
        self.base_url, self.model, self.root = base_url, model, ""
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),  # any number: the server queues
        )

    async def open(self) -> None:
        """Find the model: its name, where its files are (``root``), and its context length."""
        async with self._send("/v1/models") as response:
            await response.aread()
            cards = {card["id"]: card for card in response.json()["data"]}
            self.model = self.model or next(iter(cards), "")
            if self.model not in cards:
                raise ModelNotFound(
                    f"{self.base_url} serves {', '.join(cards) or 'no model'}, not "
                    f"{self.model or 'any'}: give one of its names as model"
                )
            self.root = cards[self.model].get("root") or self.model
            self.context_tokens = int(cards[self.model]["max_model_len"])

    async def close(self) -> None:
        await self._client.aclose()

    async def tokenize(self, text: str) -> list[int]:
        """Return a text's ids by the server's own tokenizer."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        async with self._send("/tokenize", body) as response:
            await response.aread()
            return list(response.json()["tokens"])

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        async with self._send("/v1/completions", self._body(prompts, request)) as response:
            await response.aread()
            choices = sorted(response.json()["choices"], key=lambda choice: choice["index"])
            return [_completion(choice) for choice in choices]

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        body = {**self._body([prompt], request), "stream": True}
        async with self._send("/v1/completions", body) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    yield json.loads(data)["choices"][0]["token_ids"]

    def _body(self, prompts: Sequence[Sequence[int]], request: Request) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": [list(prompt) for prompt in prompts],
            "max_tokens": request.max_tokens,
            "logprobs": 1,
            "logprob_token_ids": list(request.logprob_ids),
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "stop_token_ids": list(request.stop_ids),
            "stop": list(request.stop),
            "allowed_token_ids": request.allowed_ids,
            "temperature": 0.0,
            **request.sampling,
        }

    @asynccontextmanager
    async def _send(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator["httpx.Response"]:
        """Give a successful response, whose body is read and parsed in the block."""
        import httpx

        try:
            async with self._client.stream("POST" if body else "GET", path, json=body) as response:
                if response.is_error:
                    await response.aread()
                    raise EngineFailed(
                        f"{response.url} answers HTTP {response.status_code}: {response.text[:300]}"
                    )
                yield response
        except httpx.TransportError as error:
            raise EngineFailed(
                f"no answer from {self.base_url} ({error!r}): start a server with `python -m "
                f"vllm.entrypoints.openai.api_server --model ...`, or raise timeout"
            ) from error
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise EngineFailed(
                f"{self.base_url} gave an answer that is not vLLM's, of 0.27 or newer ({error!r}): "
                "check its log and any proxy in between"
            ) from error


def _completion(choice: Mapping[str, Any]) -> Completion:
    logprobs = [
        {int(key.removeprefix("token_id:")): float(value) for key, value in step.items()}
        for step in choice["logprobs"]["top_logprobs"]
    ]
    return Completion([int(i) for i in choice["token_ids"]], logprobs, choice["finish_reason"])
