"""transformers in this process: any causal LM with reflection tokens, on CPU, CUDA or MPS."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PrivateAttr

from selfcorrect_rag.errors import EngineFailed, NotAReflectionModel, require
from selfcorrect_rag.models.checkpoints import loading, resolve_device
from selfcorrect_rag.models.engines.engine import Completion, Engine, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.identity import described, weights
from selfcorrect_rag.models.local.scheduler import Decode, ScheduledCall, Scheduler

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint with transformers.

    One worker thread owns the model, and an event loop is never blocked. Calls that wait while it
    is busy, from whatever thread or event loop, are decoded in common batches, each under its own
    request; cancelled ones leave them. What samples (a temperature or a seed) is decoded alone.

    What prompts begin with alike is computed once, and kept for the next calls: the candidates of
    a beam share its question and segments, and the next segment's prompt all that was written and
    read before it. Models that do not look at every token before, in every layer, go without.

    It may be closed, or used in a ``with`` block; else its threads end with it.
    """

    name_or_path: str
    device: str
    dtype: str
    batch_tokens: int = 16_384
    """Most padded prompt tokens decoded together; lower it where memory is short."""
    cache_tokens: int = Field(default=4096, ge=0)
    """Most tokens whose keys and values are kept for prompts that begin with them; 0 keeps none.

    2 GiB for a 7B Llama-2 in 16 bits, which leaves room on a GPU of 24 GB. What many runs at a
    time want is their number times the length of a prompt. It is given up where memory runs out.
    """

    _model: "PreTrainedModel" = PrivateAttr()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None,
        **options: Any,
    ) -> Self:
        """Load a checkpoint from a folder or a model hub.

        Args:
            name_or_path: a folder, or a hub name such as ``selfrag/selfrag_llama2_7b``.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: float32 on a CPU and bfloat16 elsewhere by default.
            options: further fields of this class.

        Raises:
            MissingExtra: torch or transformers is not installed.
            ModelNotFound: no checkpoint is there, or it cannot be read.
            NotAReflectionModel: its vocabulary lacks reflection tokens.
        """
        require("torch", "local")
        transformers = require("transformers", "local")
        device = resolve_device(device)[0]
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        controlled = ControlledTokenizer.from_pretrained(name_or_path)  # before the weights
        with loading(name_or_path):
            model = transformers.AutoModelForCausalLM.from_pretrained(name_or_path, dtype=dtype)
        return cls.from_model(model.to(device), controlled, name=str(name_or_path), **options)

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | ControlledTokenizer",
        *,
        name: str = "model",
        **options: Any,
    ) -> Self:
        """Wrap a model that is already loaded; it stays on its device.

        Raises:
            NotAReflectionModel: its vocabulary lacks reflection tokens, or is smaller than their
                ids.
        """
        if not isinstance(tokenizer, ControlledTokenizer):
            tokenizer = ControlledTokenizer(tokenizer)
        largest = max(tokenizer.control_ids.values())
        embeddings = len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
        if largest >= embeddings:
            raise NotAReflectionModel(
                f"{name}: the tokenizer's control tokens reach id {largest} but the model has only "
                f"{embeddings} embeddings: resize and train them"
            )
        dtype = str(model.dtype).removeprefix("torch.")
        llm = cls(name_or_path=name, device=str(model.device), dtype=dtype, **options)
        llm._model = model
        llm._read_by(tokenizer)
        llm._open(
            TransformersEngine(
                model,
                tokenizer.text,
                eos_id=tokenizer.eos_id,
                batch_tokens=llm.batch_tokens,
                cache_tokens=llm.cache_tokens,
            )
        )
        return llm

    @property
    def _llm_type(self) -> str:
        return "transformers-reflection"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"name_or_path": self.name_or_path, "dtype": self.dtype}

    @property
    def identity(self) -> str:
        """See :class:`ReflectionLLM`; its weights tell it too."""
        return described(self, weights(self._model))


class TransformersEngine(Engine):
    """A causal LM of transformers, with batches and a prefix cache of our own.

    It samples by ``temperature`` and ``seed``, and takes no other settings.
    """

    prunes = True

    def __init__(
        self,
        model: "PreTrainedModel",
        text: Callable[[Sequence[int]], str],
        *,
        eos_id: int | None,
        batch_tokens: int,
        cache_tokens: int,
    ) -> None:
        """Wrap a model, which stays on its device.

        Args:
            model: a causal LM.
            text: decodes ids, to find stop strings.
            eos_id: ends a text, besides those that the model's generation config names.
            batch_tokens: most padded prompt tokens decoded together.
            cache_tokens: most tokens whose keys and values are kept between batches.
        """
        model.train(False)
        config = getattr(model.generation_config, "eos_token_id", None)
        ids = config if isinstance(config, list) else [config]
        self._eos_ids = frozenset(i for i in [*ids, eos_id] if i is not None)
        self._text = text
        self.context_tokens = getattr(model.config, "max_position_embeddings", None)

        def decoder() -> Decode:
            from selfcorrect_rag.models.local.decoding import Decoder

            return Decoder(model, cache_tokens)

        self.scheduler = Scheduler(decoder, batch_tokens)

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """See :class:`Engine`."""
        call = self._call(prompts, request)
        self.scheduler.submit(call)
        return await asyncio.wrap_future(call.completions)

    async def stream(self, prompt: Sequence[int], request: Request) -> AsyncIterator[Sequence[int]]:
        """See :class:`Engine`."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def put(token_id: int | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tokens.put_nowait, token_id)

        call = self._call([prompt], request, put)
        call.completions.add_done_callback(lambda _: put(None))
        self.scheduler.submit(call)
        try:
            while (token_id := await tokens.get()) is not None:
                yield [token_id]
            call.completions.result()  # raises what it failed with
        finally:
            call.completions.cancel()

    async def close(self) -> None:
        """End the worker thread; what waits and what is running fails."""
        self.scheduler.close()

    def after_fork(self) -> None:
        """Nothing: the scheduler begins anew by itself."""

    def _call(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        on_token: Callable[[int], None] | None = None,
    ) -> ScheduledCall:
        if unknown := request.sampling.keys() - {"temperature", "seed"}:
            raise EngineFailed(f"transformers takes temperature and seed, not {min(unknown)}")
        stop, text = request.stop, self._text
        # All ids at each of them would take quadratic time. A character has four bytes, and no
        # token less than one; the rest is for tokens without text.
        tail = 4 * max(map(len, stop), default=0) + 16

        def has_stopped(ids: Sequence[int]) -> bool:
            return bool(stop) and any(string in text(ids[-tail:]) for string in stop)

        return ScheduledCall(
            prompts, request, end_ids=self._eos_ids, has_stopped=has_stopped, on_token=on_token
        )
