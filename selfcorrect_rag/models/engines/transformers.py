"""transformers in this process: any causal LM with reflection tokens, on CPU, CUDA or MPS.

For trying out and tests: calls are decoded one after another, and nothing is shared between them.
vLLM is for work.
"""

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import PrivateAttr

from selfcorrect_rag.errors import EngineFailed, NotAReflectionModel, require
from selfcorrect_rag.models.checkpoints import loading, resolve_device
from selfcorrect_rag.models.engines.engine import Completion, Engine, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM, stop_size
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.identity import described, weights

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SAMPLING = frozenset({"temperature", "top_k", "top_p", "seed"})
"""The sampling settings that the engine takes."""


class TransformersReflectionLLM(EngineReflectionLLM):
    """Runs a Self-RAG checkpoint with transformers, for trying out and tests."""

    name_or_path: str
    device: str
    dtype: str
    batch_tokens: int = 16_384
    """Maximum padded prompt tokens decoded together; lower it if memory is short."""

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
        """Load a checkpoint from a folder, or a hub name such as ``selfrag/selfrag_llama2_7b``.

        Args:
            name_or_path: the folder or name.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: float32 on a CPU and bfloat16 elsewhere by default.
            options: further fields of this class.

        Raises:
            ModelNotFound: no checkpoint is there, or it cannot be read.
            NotAReflectionModel: its vocabulary lacks reflection tokens.
        """
        transformers = require("transformers", "transformers")
        device, _ = resolve_device(device)
        dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
        tokenizer = ControlledTokenizer.from_pretrained(name_or_path)  # before the weights
        with loading(name_or_path):
            model = transformers.AutoModelForCausalLM.from_pretrained(name_or_path, dtype=dtype)
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
        llm._use_tokenizer(tokenizer)
        llm._start(
            TransformersEngine(
                model, tokenizer.text, eos_id=tokenizer.eos_id, batch_tokens=llm.batch_tokens
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
        """A fingerprint for cached results, of the weights too."""
        return described(self, weights(self._model))


class TransformersEngine(Engine):
    """A causal LM of transformers, by its ``generate``.

    It samples by ``temperature``, ``top_k``, ``top_p`` and ``seed``, and takes no other settings.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        text: Callable[[Sequence[int]], str],
        *,
        eos_id: int | None,
        batch_tokens: int = 16_384,
    ) -> None:
        """Wrap a model, which stays on its device.

        Args:
            model: a causal LM.
            text: decodes ids, to find stop strings.
            eos_id: ends a text, besides the end ids of the model's generation config.
            batch_tokens: maximum padded prompt tokens decoded together.
        """
        from transformers import GenerationConfig

        model.train(False)
        named = getattr(model.generation_config, "eos_token_id", None)
        ids = [*(named if isinstance(named, list) else [named]), eos_id]
        self._end_ids = list(dict.fromkeys(i for i in ids if i is not None))
        # A shallow copy: penalties of the checkpoint's generation config would change the choice.
        self._model: Any = copy.copy(model)
        self._model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._text, self._batch_tokens = text, batch_tokens
        self.context_tokens = getattr(model.config, "max_position_embeddings", None)
        self._worker = ThreadPoolExecutor(1, "transformers")

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        return await self._run(prompts, request)

    async def stream(self, prompt: Sequence[int], request: Request) -> AsyncIterator[Sequence[int]]:
        loop, ids = asyncio.get_running_loop(), asyncio.Queue[int | None]()
        ends = {*self._end_ids, *request.stop_ids}

        def put(token_id: int) -> None:
            if token_id not in ends:
                loop.call_soon_threadsafe(ids.put_nowait, token_id)

        running = asyncio.ensure_future(self._run([prompt], request, put))
        running.add_done_callback(lambda _: ids.put_nowait(None))
        try:
            while (token_id := await ids.get()) is not None:
                yield [token_id]
            await running  # raises what it failed with
        finally:
            running.cancel()

    async def close(self) -> None:
        self._worker.shutdown()

    def after_fork(self) -> None:
        """Compute on one thread in a child, which lacks the parent's; a GPU stays the parent's."""
        import torch

        if self._model.device.type != "cpu":
            super().after_fork()
        torch.set_num_threads(1)
        self._worker = ThreadPoolExecutor(1, "transformers")

    async def _run(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        on_token: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        if unknown := request.sampling.keys() - SAMPLING:
            raise EngineFailed(
                f"transformers takes {', '.join(sorted(SAMPLING))}, got {min(unknown)}"
            )
        cancelled = threading.Event()

        def work() -> list[Completion]:
            with _seeded(request.sampling.get("seed")):
                batches = _batches(prompts, self._batch_tokens)
                done = [self._generate(batch, request, cancelled, on_token) for batch in batches]
            return [completion for batch in done for completion in batch]

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        finally:
            cancelled.set()

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        cancelled: threading.Event,
        on_token: Callable[[int], None] | None,
    ) -> list[Completion]:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        longest, device = max(map(len, prompts)), self._model.device
        rows = [[0] * (longest - len(ids)) + [*ids] for ids in prompts]
        mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
        ends = [*self._end_ids, *request.stop_ids]
        recorder = _Recorder(request, device)
        stopping = _Stopping(self._text, request.stop, longest, cancelled, on_token)
        sampling = {key: value for key, value in request.sampling.items() if key != "seed"}
        samples = bool(sampling.get("temperature"))
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=torch.tensor(rows, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=request.max_tokens,
                eos_token_id=ends or None,
                pad_token_id=ends[0] if ends else 0,
                logits_processor=LogitsProcessorList([recorder]),
                stopping_criteria=StoppingCriteriaList([stopping]),
                do_sample=samples,
                **({"top_k": 0, "top_p": 1.0, **sampling} if samples else {}),
            )
        chosen, watched = recorder.read(made)
        completions = []
        for row, ids in enumerate(made[:, longest:].tolist()):
            end = next((size for size, i in enumerate(ids, 1) if i in ends), 0)
            # A row that has stopped is padded with an end id until all have.
            size = stop_size(self._text, ids, request.stop) or end
            ids = ids[: size or None]
            logprobs = [{token_id: chosen[step][row]} for step, token_id in enumerate(ids)]
            for step, token_id in enumerate(ids):
                if token_id in request.logprob_ids:
                    pairs = zip(request.logprob_ids, watched[step][row], strict=True)
                    logprobs[step] |= dict(pairs)
            completions.append(Completion(ids, logprobs, "stop" if size else "length"))
        return completions


class _Recorder:
    """A logits processor that keeps log-probabilities, and then forbids ids.

    Log-probabilities are float32, of the whole vocabulary, before any temperature.
    """

    def __init__(self, request: Request, device: Any) -> None:
        import torch

        self._watched = torch.tensor(request.logprob_ids, dtype=torch.long, device=device)
        self._allowed = request.allowed_ids
        self._last: Tensor | None = None
        self._chosen: list[Tensor] = []
        self._by_step: list[Tensor] = []

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        self._record_choice(input_ids)
        self._last = scores.float().log_softmax(-1)
        self._by_step.append(self._last[:, self._watched])
        if self._allowed is None:
            return scores
        forbidden = scores.new_full(scores.shape, float("-inf"))
        allowed = list(self._allowed)
        forbidden[:, allowed] = scores[:, allowed]
        return forbidden

    def read(self, sequences: "Tensor") -> tuple[list[list[float]], list[list[list[float]]]]:
        """Return, by step and row, the log-probability of the chosen id, and of all watched ids."""
        self._record_choice(sequences)
        return [each.tolist() for each in self._chosen], [each.tolist() for each in self._by_step]

    def _record_choice(self, input_ids: "Tensor") -> None:
        if self._last is not None:
            self._chosen.append(self._last.gather(1, input_ids[:, -1:])[:, 0])


class _Stopping:
    """Ends rows at a stop string, and all when the caller is cancelled; passes tokens on."""

    def __init__(
        self,
        text: Callable[[Sequence[int]], str],
        stop: Sequence[str],
        begun: int,
        cancelled: threading.Event,
        on_token: Callable[[int], None] | None,
    ) -> None:
        self._text, self._stop, self._begun = text, stop, begun
        self._cancelled, self._on_token = cancelled, on_token
        # A character has up to four bytes, a token at least one; the rest is for special tokens.
        self._tail = 4 * max(map(len, stop), default=0) + 16

    def __call__(self, input_ids: "Tensor", scores: Any, **_: Any) -> "Tensor":
        if self._on_token is not None:
            self._on_token(int(input_ids[0, -1]))
        done = input_ids[:, -1] < 0  # none
        if self._cancelled.is_set():
            return ~done
        if self._stop:
            for row, ids in enumerate(input_ids[:, self._begun :][:, -self._tail :].tolist()):
                written = self._text(ids)
                done[row] = any(string in written for string in self._stop)
        return done


def _batches(
    prompts: Sequence[Sequence[int]], batch_tokens: int
) -> Iterator[Sequence[Sequence[int]]]:
    """Consecutive prompts of at most ``batch_tokens`` padded tokens together, at least one."""
    begin = longest = 0
    for end, ids in enumerate(prompts):
        longest = max(longest, len(ids))
        if end > begin and (end + 1 - begin) * longest > batch_tokens:
            yield prompts[begin:end]
            begin, longest = end, len(ids)
    if begin < len(prompts):
        yield prompts[begin:]


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Draw from ``seed`` in the block, and leave torch's own random state as it was."""
    if seed is None:
        yield
        return
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
