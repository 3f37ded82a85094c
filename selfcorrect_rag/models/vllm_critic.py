"""A fine-tuned critic on vLLM, which batches by itself."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from selfcorrect_rag.errors import EngineFailed, ModelNotFound
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.checkpoints import unreadable
from selfcorrect_rag.models.critic import MAX_TOKENS, Answer, Asked, Critic
from selfcorrect_rag.models.vllm_llm import cpu_options, set_environment


class _Asking(NamedTuple):
    """A prompt on its way to a label."""

    prompt: list[int]
    labels: dict[str, list[int]]
    """What may still come, from the end of the prompt on."""
    probability: float
    """Of what has come."""


class VLLMCritic(Critic):
    """A critic that is a causal language model, on vLLM's offline engine in this process.

    Its answers are those of :class:`~selfcorrect_rag.models.critic.TransformersCritic`. Ids that
    all labels share are not asked for, so most answers take one token.
    """

    def __init__(
        self, model: str | Path, *, max_tokens: int = MAX_TOKENS, batch: int = 256, **engine: Any
    ) -> None:
        """Start the engine: seconds for a small model, minutes for a large one.

        Args:
            model: a folder or a hub name.
            max_tokens: tokens at which a prompt is cut; less where the model can take no more.
            batch: prompts that are handed to the engine at a time; their answers come together.
            engine: vLLM's own options, such as ``tensor_parallel_size``.

        Raises:
            MissingExtra: vllm or transformers is not installed.
            ModelNotFound: no checkpoint is there, or vLLM cannot run it; see also
                :class:`~selfcorrect_rag.models.critic.Critic`.
        """
        set_environment()
        vllm = require("vllm", "vllm")
        transformers = require("transformers", "local")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(model, error) from error
        options = {"disable_log_stats": True, **cpu_options(), **engine}
        try:
            self._engine = vllm.LLM(str(model), **options)
        except Exception as error:
            raise ModelNotFound(f"vLLM cannot run {model}: {error}") from error
        length = self._engine.llm_engine.model_config.max_model_len
        super().__init__(tokenizer, min(max_tokens, length))
        self._batch = batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the engine and free its memory; no more can be asked."""
        self._engine.llm_engine.engine_core.shutdown()

    def answers(self, asked: Sequence[Asked]) -> Iterator[dict[int, Answer]]:
        """The answers of one batch after another.

        Raises:
            EngineFailed: the engine has died.
        """
        for start in range(0, len(asked), self._batch):
            pending = {
                i: _Asking(self.fitted(self.prompt_ids(asked[i])), self._choices(asked[i]), 1.0)
                for i in range(start, min(start + self._batch, len(asked)))
            }
            answers: dict[int, Answer] = {}
            while pending := {i: _written(one) for i, one in pending.items()}:
                for i in [i for i, one in pending.items() if len(one.labels) == 1]:
                    one = pending.pop(i)
                    answers[i] = Answer(next(iter(one.labels)), one.probability)
                pending = self._step(pending)
            yield answers

    def _step(self, pending: dict[int, _Asking]) -> dict[int, _Asking]:
        """Where labels part: one token more of each prompt, greedily."""
        from vllm import SamplingParams
        from vllm.v1.engine.exceptions import EngineDeadError

        if not pending:
            return {}
        params = []
        for one in pending.values():
            ids = sorted({label[0] for label in one.labels.values()})
            params.append(
                SamplingParams(
                    temperature=0, max_tokens=1, allowed_token_ids=ids, logprob_token_ids=ids
                )
            )
        prompts: Any = [{"prompt_token_ids": one.prompt} for one in pending.values()]
        try:
            outputs = self._engine.generate(prompts, params, use_tqdm=False)
        except EngineDeadError as error:
            raise EngineFailed(f"vLLM's engine has died ({error}); its log says why") from error
        written = zip(pending.items(), outputs, strict=True)
        return {i: _chosen(one, output.outputs[0].logprobs[0]) for (i, one), output in written}


def _written(one: _Asking) -> _Asking:
    """With what all labels that may come begin with in the prompt."""
    if len(one.labels) == 1:
        return one
    columns = zip(*one.labels.values(), strict=False)
    shared = next((n for n, ids in enumerate(columns) if len(set(ids)) > 1), 0)
    begun = next(iter(one.labels.values()))[:shared]
    rest = {token: ids[shared:] for token, ids in one.labels.items()}
    return _Asking(one.prompt + begun, rest, one.probability)


def _chosen(one: _Asking, logprobs: Any) -> _Asking:
    """The likeliest next id, and the labels that go on with it; ``logprobs`` are vLLM's, by id."""
    nexts = {ids[0]: logprobs[ids[0]].logprob for ids in one.labels.values()}
    chosen = max(nexts, key=lambda token: nexts[token])
    total = math.fsum(math.exp(value - nexts[chosen]) for value in nexts.values())
    rest = {token: ids[1:] for token, ids in one.labels.items() if ids[0] == chosen}
    return _Asking([*one.prompt, chosen], rest, one.probability / total)
