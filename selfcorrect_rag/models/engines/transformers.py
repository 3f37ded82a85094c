"""transformers in this process: any causal LM with reflection tokens, on CPU, CUDA or MPS.

For trying out and tests: calls are decoded one after another. vLLM is for work.
"""

import asyncio
import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import PrivateAttr

from selfcorrect_rag.models.checkpoints import load_weights, resolve_device
from selfcorrect_rag.models.engines.engine import Completion, Engine, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.identity import identity_of_object

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH_TOKENS = 16_384
"""Maximum padded prompt tokens decoded together."""


class TransformersReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint with transformers, for trying out and tests."""

    _kind: ClassVar[str] = "transformers"
    name_or_path: str
    device: str
    dtype: str

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
        """Load a checkpoint from a folder, a GGUF file, or a hub name such as
        ``selfrag/selfrag_llama2_7b``.

        Args:
            name_or_path: the folder, file or name.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: float32 on a CPU and bfloat16 elsewhere by default.
            options: further fields of this class.

        Raises:
            ModelNotFound: no checkpoint is there, or it cannot be read.
            NotAReflectionModel: its vocabulary lacks reflection tokens.
        """
        device, _ = resolve_device(device)
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        tokenizer = ControlledTokenizer.from_pretrained(name_or_path)  # before the weights
        model = load_weights(name_or_path, dtype)
        return cls.from_model(model.to(device), tokenizer, name=str(name_or_path), **options)

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | ControlledTokenizer",
        *,
        name: str = "model",
        **options: Any,
    ) -> Self:
        """Wrap a model that is already loaded; it stays on its device. See :meth:`from_pretrained`
        for errors."""
        if not isinstance(tokenizer, ControlledTokenizer):
            tokenizer = ControlledTokenizer(tokenizer)
        options |= {"device": str(model.device), "dtype": str(model.dtype).removeprefix("torch.")}
        engine = TransformersEngine(model, eos_id=tokenizer.eos_id)
        llm = cls.from_engine(engine, tokenizer, name_or_path=name, **options)
        llm._model = model
        return llm

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"name_or_path": self.name_or_path, "dtype": self.dtype}

    @property
    def identity(self) -> str:
        return identity_of_object(self)  # a folder may get other weights


class TransformersEngine(Engine):
    """A causal LM of transformers, by its ``generate``, whose sampling settings it takes.

    Stop strings are left to the caller.
    """

    def __init__(self, model: "PreTrainedModel", *, eos_id: int | None) -> None:
        """Wrap a model, which stays on its device; ``eos_id`` ends a text, besides the end ids of
        the model's generation config."""
        from transformers import GenerationConfig

        model.train(False)
        named = getattr(model.generation_config, "eos_token_id", None)
        ids = [*(named if isinstance(named, list) else [named]), eos_id]
        self._end_ids = list(dict.fromkeys(i for i in ids if i is not None))
        # A shallow copy: penalties of the checkpoint's generation config would change the choice.
        self._model: Any = copy.copy(model)
        self._model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self.context_tokens = getattr(model.config, "max_position_embeddings", None)
        self._worker = ThreadPoolExecutor(1, "transformers")

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        size = max(1, BATCH_TOKENS // max(map(len, prompts), default=1))
        cancelled = threading.Event()

        def work() -> list[Completion]:
            batches = (prompts[i : i + size] for i in range(0, len(prompts), size))
            return [each for batch in batches for each in self._generate(batch, request, cancelled)]

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        finally:
            cancelled.set()

    async def close(self) -> None:
        self._worker.shutdown()

    def _generate(
        self, prompts: Sequence[Sequence[int]], request: Request, cancelled: threading.Event
    ) -> list[Completion]:
        import torch

        longest, device = max(map(len, prompts)), self._model.device
        rows = [[*[0] * (longest - len(ids)), *ids] for ids in prompts]
        mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
        ends = [*self._end_ids, *request.stop_ids]
        watched, allowed = list(request.logprob_ids), request.allowed_ids

        def is_cancelled(input_ids: "Tensor", *_: Any, **__: Any) -> "Tensor":
            return torch.full((len(input_ids),), cancelled.is_set(), device=device)

        samples = bool(request.sampling.get("temperature"))
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=torch.tensor(rows, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=request.max_tokens,
                eos_token_id=ends or None,
                pad_token_id=ends[0] if ends else 0,
                prefix_allowed_tokens_fn=allowed and (lambda *_: list(allowed)),
                stopping_criteria=[is_cancelled],
                do_sample=samples,
                output_logits=True,
                return_dict_in_generate=True,
                **({"top_k": 0, "top_p": 1.0, **request.sampling} if samples else {}),
            )
            ids, chosen, group = made.sequences[:, longest:], [], []
            for step, logits in enumerate(made.logits):
                logprobs = logits.float().log_softmax(-1)
                chosen.append(logprobs.gather(1, ids[:, step, None])[:, 0].tolist())
                group.append(logprobs[:, watched].tolist())
        completions = []
        for row, every in enumerate(ids.tolist()):
            # A row that has ended is padded with an end id until all have.
            size = next((size for size, i in enumerate(every, 1) if i in ends), None)
            by_id = [{i: chosen[step][row]} for step, i in enumerate(every[:size])]
            for step, i in enumerate(every[:size]):
                if i in watched:
                    by_id[step] = dict(zip(watched, group[step][row], strict=True))
            completions.append(Completion(every[:size], by_id, "stop" if size else "length"))
        return completions
