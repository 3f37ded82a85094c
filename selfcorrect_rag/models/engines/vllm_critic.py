"""A fine-tuned critic on vLLM, which batches by itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.models.critic import MAX_TOKENS, Answer, Critic, CriticInput, read_answer
from selfcorrect_rag.models.engines.background import gather
from selfcorrect_rag.models.engines.engine import Request
from selfcorrect_rag.models.engines.runner import EngineRunner
from selfcorrect_rag.models.engines.vllm_engine import VLLMEngine


class VLLMCritic(Critic):
    """A critic that is a causal LM, on vLLM's engine in separate processes.

    It gives the same answers as :class:`~selfcorrect_rag.models.critic.TransformersCritic`. Ids
    that all labels share are skipped, so most answers take one token. Close it when done, or use it
    in a ``with`` block.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        max_tokens: int = MAX_TOKENS,
        batch: int | None = None,
        **engine: Any,
    ) -> None:
        """Start the engine: seconds for a small model, minutes for a large one.

        Args:
            model: a folder or a hub name.
            max_tokens: maximum prompt tokens, at most the model's own limit; a longer prompt is
                cut.
            batch: prompts per batch handed to the engine; by default as many as it decodes in a
                step.
            engine: vLLM's own options, such as ``tensor_parallel_size``.

        Raises:
            MissingExtra: vllm or transformers is not installed.
            ModelNotFound: no checkpoint is there, or vLLM cannot run it; see also
                :class:`~selfcorrect_rag.models.critic.Critic`.
            EngineFailed: memory is too small for it.
        """
        vllm = VLLMEngine(str(model), engine)
        super().__init__(load_tokenizer(model, "vllm"), max_tokens)  # before the engine starts
        self._runner = EngineRunner(vllm)
        self.max_tokens = min(max_tokens, vllm.context_tokens or max_tokens)
        self._batch = batch or vllm.sequences

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine's processes and free its memory. May be repeated."""
        self._runner.close()

    def answers(self, inputs: Sequence[CriticInput]) -> Iterator[dict[int, Answer]]:
        """The answers of one batch after another.

        Raises:
            EngineFailed: the engine has died, or is closed.
        """
        for batch in self.batches(inputs):
            answers = self._runner.run(partial(self._answers, [inputs[i] for i in batch]))
            yield dict(zip(batch, answers, strict=True))

    def batches(self, inputs: Sequence[CriticInput]) -> list[list[int]]:
        every = list(range(len(inputs)))
        return [every[start : start + self._batch] for start in range(0, len(every), self._batch)]

    async def _answers(self, batch: Sequence[CriticInput]) -> list[Answer]:
        return await gather(map(self._answer, batch))

    async def _answer(self, given: CriticInput) -> Answer:
        prompt, labels = self.fitted(self.prompt_ids(given)), self._choices(given)
        live, written, steps = labels, list[int](), list[dict[int, float]]()
        while len(live) > 1:
            nexts = sorted({label[len(written)] for label in live.values()})
            logprobs: Mapping[int, float] = {nexts[0]: 0.0}
            if len(nexts) > 1:
                logprobs = await self._logprobs([*prompt, *written], nexts)
            chosen = max(nexts, key=logprobs.__getitem__)
            odds = {i: math.exp(logprobs[i] - logprobs[chosen]) for i in nexts}
            steps.append({i: share / math.fsum(odds.values()) for i, share in odds.items()})
            live = {token: ids for token, ids in live.items() if ids[len(written)] == chosen}
            written.append(chosen)
        return read_answer(labels, written, steps)

    async def _logprobs(self, prompt: Sequence[int], ids: Sequence[int]) -> Mapping[int, float]:
        """The log-probability of each id after the prompt, in nats and over the whole
        vocabulary."""
        request = Request(max_tokens=1, logprob_ids=ids, allowed_ids=ids)
        (completion,) = await self._runner.complete_on_loop([prompt], request)
        return completion.logprobs[0]
