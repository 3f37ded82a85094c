"""ReflectionLLM on transformers: any causal LM with reflection tokens, on CPU, CUDA or MPS."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from selfcorrect_rag.errors import NotAReflectionModel, require
from selfcorrect_rag.models.engines.decoded import Decoded, Rules, room
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.models.identity import described, weights
from selfcorrect_rag.models.local.calls import Call, Decode, Worker
from selfcorrect_rag.models.local.checkpoints import best_device, unreadable
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.parts import Prompt, prompt_of
from selfcorrect_rag.state.self_rag import Segment

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersReflectionLLM(ReflectionLLM):
    """Runs a Self-RAG checkpoint with transformers.

    One worker thread owns the model, and an event loop is never blocked. Calls that wait while it
    is busy, from whatever thread or event loop, are decoded in common batches, each under its own
    rules; cancelled ones leave them. What samples (a temperature or a seed) is decoded alone.

    What prompts begin with alike is computed once, and kept for the next calls: the candidates of
    a beam share its question and segments, and the next segment's prompt all that was written and
    read before it. Models that do not look at every token before, in every layer, go without.

    It may be closed, or used in a ``with`` block; else its thread ends with it.
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
    _tokenizer: ControlledTokenizer = PrivateAttr()
    _worker: Worker = PrivateAttr()

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
        torch = require("torch", "local")
        transformers = require("transformers", "local")
        device = device or best_device(torch)
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        controlled = ControlledTokenizer.from_pretrained(name_or_path)  # before the weights
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(name_or_path, dtype=dtype)
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(name_or_path, error) from error
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
        model.train(False)
        llm._model = model
        llm._tokenizer = tokenizer
        make = partial(_decoder, model, tokenizer.control_ids, llm.cache_tokens)
        llm._worker = Worker(make, llm.batch_tokens)
        return llm

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the reflection groups that the checkpoint's vocabulary has."""
        return self._tokenizer.groups

    @property
    def context_tokens(self) -> int | None:
        """The model's context length in tokens, where its configuration names one."""
        length: int | None = getattr(self._model.config, "max_position_embeddings", None)
        return length

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a prompt, those that the tokenizer puts before every text included."""
        return self._tokenizer.encode([prompt_of(text)])[0].ids

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

    def close(self) -> None:
        """End the worker; what waits and what is running fails. May be repeated."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        job = self._job(prompts, **options)
        self._worker.submit(job.call)
        try:
            return job.segments(self._tokenizer, job.call.outputs.result())
        except BaseException:  # an interrupt of the caller too
            job.call.outputs.cancel()
            raise

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        # Tokenising takes its time where prompts are long: the event loop has better things to do.
        job = await asyncio.to_thread(self._job, prompts, **options)
        self._worker.submit(job.call)
        outputs = await asyncio.wrap_future(job.call.outputs)
        return job.segments(self._tokenizer, outputs)

    def _job(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        critique: bool = False,  # part of what the model writes, asked for or not
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> "_Job":
        max_tokens, limit = room(self.context_tokens, max_tokens)
        rules = Rules(
            max_tokens=max_tokens,
            eos_ids=self._eos_ids(),
            stop_at_retrieval=stop_at_retrieval,
            choose=choose,
            prune_below=prune_below,
            stopped=partial(_contains, self._tokenizer, stop) if stop else None,
            temperature=temperature,
            seed=seed,
        )
        encoded = self._tokenizer.encode(prompts, limit)
        return _Job(encoded, Call([prompt.ids for prompt in encoded], rules), stop)

    def _eos_ids(self) -> frozenset[int]:
        config = getattr(self._model.generation_config, "eos_token_id", None)
        ids = config if isinstance(config, list) else [config]
        return frozenset(i for i in [*ids, self._tokenizer.eos_id] if i is not None)


class _Job(NamedTuple):
    """A call, and what makes segments of its outputs."""

    encoded: list[Encoded]
    call: Call
    stop: Sequence[str]

    def segments(self, tokenizer: ControlledTokenizer, outputs: Sequence[Decoded]) -> list[Segment]:
        """The segments of all prompts, in order."""
        return [
            output.segment(tokenizer, encoded, self.stop)
            for output, encoded in zip(outputs, self.encoded, strict=True)
        ]


def _contains(tokenizer: ControlledTokenizer, stop: Sequence[str], ids: list[int]) -> bool:
    """Whether a stop string ends with the last of ``ids``, or did shortly before."""
    # All ids at each of them would take quadratic time. A character has four bytes, and no token
    # less than one; the rest is for tokens without text.
    text = tokenizer.text(ids[-(4 * max(map(len, stop)) + 16) :])
    return any(string in text for string in stop)


def _decoder(model: "PreTrainedModel", control_ids: Mapping[str, int], cache_tokens: int) -> Decode:
    from selfcorrect_rag.models.local.decoding import Decoder

    return Decoder(model, control_ids, cache_tokens)
