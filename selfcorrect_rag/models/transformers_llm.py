"""ReflectionLLM on transformers: any causal LM with reflection tokens, on CPU, CUDA or MPS."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import PrivateAttr

from selfcorrect_rag.errors import NotAReflectionModel
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.checkpoints import best_device, unreadable
from selfcorrect_rag.models.decoded import Rules, room
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.prompts import Prompt, prompt_of
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.state import Segment

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersReflectionLLM(ReflectionLLM):
    """Runs a Self-RAG checkpoint with transformers.

    One worker thread owns the model: concurrent runs queue behind each other and never mix, and
    an event loop is never blocked. Within a call, prompts are sorted by length and decoded in
    batches of at most ``batch_tokens`` padded tokens.
    """

    name_or_path: str
    device: str
    dtype: str
    batch_tokens: int = 16_384
    """Most padded prompt tokens decoded together; lower it where memory is short."""

    _model: "PreTrainedModel" = PrivateAttr()
    _tokenizer: ControlledTokenizer = PrivateAttr()
    _worker: ThreadPoolExecutor = PrivateAttr()

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
        llm._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reflection-llm")
        return llm

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

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return self._worker.submit(self._run, prompts, **options).result()

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        run = partial(self._run, prompts, **options)
        return await asyncio.get_running_loop().run_in_executor(self._worker, run)

    def _run(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> list[Segment]:
        from selfcorrect_rag.models.decoding import decode

        max_tokens, limit = room(self.context_tokens, max_tokens)
        encoded = self._tokenizer.encode(prompts, limit)
        rules = Rules(
            max_tokens=max_tokens,
            eos_ids=self._eos_ids(),
            stop_at_retrieval=stop_at_retrieval,
            choose=Group(choose) if choose else None,
            prune_below=prune_below,
            stopped=partial(self._contains, stop) if stop else None,
            temperature=temperature,
            seed=seed,
        )
        segments: dict[int, Segment] = {}
        for batch in self._batches(encoded):
            ids = [encoded[i].ids for i in batch]
            pad_id = next(iter(rules.eos_ids), 0)
            decoded = decode(self._model, ids, self._tokenizer.control_ids, pad_id, rules)
            for i, output in zip(batch, decoded, strict=True):
                segments[i] = output.segment(self._tokenizer, encoded[i], stop)
        return [segments[i] for i in range(len(prompts))]

    def _batches(self, encoded: Sequence[Encoded]) -> Iterator[list[int]]:
        """Indices of prompts to decode together, of like length."""
        batch: list[int] = []
        for i in sorted(range(len(encoded)), key=lambda i: len(encoded[i].ids)):
            if batch and (len(batch) + 1) * len(encoded[i].ids) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _eos_ids(self) -> frozenset[int]:
        config = getattr(self._model.generation_config, "eos_token_id", None)
        ids = config if isinstance(config, list) else [config]
        return frozenset(i for i in [*ids, self._tokenizer.eos_id] if i is not None)

    def _contains(self, stop: Sequence[str], ids: list[int]) -> bool:
        text = self._tokenizer.text(ids)
        return any(string in text for string in stop)
