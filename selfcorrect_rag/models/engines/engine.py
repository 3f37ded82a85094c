"""The engine interface: continue token ids, and return log-probabilities of chosen ids.

vLLM in this process, a vLLM server and transformers implement it; a third party's takes 30 lines.
:class:`~selfcorrect_rag.models.EngineReflectionLLM` makes a ReflectionLLM of an engine and a
tokenizer, and :class:`~selfcorrect_rag.models.critic.Critic` a critic. Threads, event loops,
retries and cancellation are theirs (:mod:`~selfcorrect_rag.models.engines.runner`).
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from selfcorrect_rag.errors import EngineFailed


class EngineUnavailable(EngineFailed):
    """An engine is temporarily unavailable, such as a server that restarts; the call is retried."""


@dataclass(frozen=True)
class Request:
    """Options for continuing prompts; decoding is greedy unless ``sampling`` says otherwise."""

    max_tokens: int
    """Maximum tokens to generate for each prompt, at least 1."""
    logprob_ids: Sequence[int]
    """Ids whose log-probabilities are returned wherever one of them is generated."""
    stop_ids: Sequence[int] = ()
    """Ids that end a continuation, besides the model's own end of text."""
    stop: Sequence[str] = ()
    """Strings that end a continuation. An engine may ignore them: the caller cuts the text before
    them anyway."""
    allowed_ids: Sequence[int] | None = None
    """The only ids that may be generated; log-probabilities stay those of the whole vocabulary."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings under the engine's own names: ``temperature``, ``top_p`` and so on."""


@dataclass
class Completion:
    """The tokens that an engine generated for one prompt."""

    ids: Sequence[int]
    """Generated ids, at least one; with the stop id or end of text if that ended it."""
    logprobs: Sequence[Mapping[int, float]]
    """For each generated id: natural log-probabilities by id, under the whole vocabulary and before
    any temperature. At least the generated id's own; all of ``logprob_ids`` if it is one of
    them."""
    finish_reason: Literal["stop", "length"]
    """``length`` if ``max_tokens`` ended it; ``stop`` at a stop id, a stop string or the end."""


class Engine(ABC):
    """Continues prompts of token ids.

    Its coroutines run concurrently on one event loop in a separate thread. A cancelled one must
    stop computing. Any error becomes an :class:`~selfcorrect_rag.errors.EngineFailed`; an
    :class:`EngineUnavailable` is retried first.
    """

    context_tokens: int | None = None
    """The model's context length in tokens, known after :meth:`open`; None if unknown."""

    @abstractmethod
    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts together; returns their completions in the same order."""

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """Continue one prompt: yields generated ids as they come, without the id that ends it.

        By default all at once, when complete.
        """
        (completion,) = await self.complete([prompt], request)
        ended = completion.finish_reason == "stop" and not request.stop
        yield completion.ids[:-1] if ended else completion.ids

    async def open(self) -> None:  # noqa: B027, as most have nothing to start
        """Start the engine; called before any other method."""

    async def close(self) -> None:  # noqa: B027
        """Free its resources. Runs once, last on its loop."""


def split_context(context_tokens: int | None, max_tokens: int) -> tuple[int, int | None]:
    """Return the maximum generated tokens, at most half of the context, and the maximum prompt
    tokens; ValueError if ``max_tokens`` is below 1."""
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if context_tokens is None:
        return max_tokens, None
    max_tokens = min(max_tokens, context_tokens // 2)
    return max_tokens, context_tokens - max_tokens
