"""The interface of an engine: what continues token ids and gives log-probabilities of chosen ids.

vLLM in this process, a vLLM server and transformers implement it; so can you, for any other.
:class:`~selfcorrect_rag.models.EngineReflectionLLM` makes a ReflectionLLM of an engine and a
tokenizer. Threads, event loops, retries, the limit on what is in flight and cancellation are dealt
with there (:mod:`~selfcorrect_rag.models.engines.runner`), once for all engines.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from selfcorrect_rag.errors import EngineFailed


class EngineUnavailable(EngineFailed):
    """An engine that cannot answer now, such as a server that restarts; the call is retried."""


@dataclass(frozen=True)
class Request:
    """How an engine continues prompts: greedily, unless ``sampling`` says otherwise."""

    max_tokens: int
    """Most tokens to generate for each prompt, at least 1."""
    logprob_ids: Sequence[int]
    """Ids whose log-probabilities are wanted wherever the generated id is one of them."""
    stop_ids: Sequence[int] = ()
    """Ids that end a continuation, besides the model's own end of text."""
    stop: Sequence[str] = ()
    """Strings that end a continuation. An engine may leave them out of account and write on: text
    is cut before them in any case."""
    allowed_ids: Sequence[int] | None = None
    """The only ids that may be generated; log-probabilities stay those of the whole vocabulary."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings under the engine's own names: ``temperature``, ``top_p``, ``seed`` and so on."""
    keep: "Callable[[Sequence[Completion]], Collection[int]] | None" = None
    """Prunes: called once with the first token of every prompt, it gives the indices of those to go
    on with; the others end as ``pruned``. Only for an engine that says it :attr:`~Engine.prunes`;
    for others it takes two calls."""


@dataclass
class Completion:
    """The tokens that an engine generated for one prompt."""

    ids: Sequence[int]
    """Generated ids, at least one; with the stop id or end of text where that ended it."""
    logprobs: Sequence[Mapping[int, float]]
    """For each generated id: natural log-probabilities by id, under the whole vocabulary and before
    any temperature. Its own at least; where it is one of ``logprob_ids``, those of all of them."""
    finish_reason: Literal["stop", "length", "pruned"]
    """``length`` where ``max_tokens`` ended it, ``stop`` at a stop id, a stop string or the end."""


class Engine(ABC):
    """Continues prompts of token ids.

    Its coroutines run on one event loop in a thread of their own, many at a time. One that is
    cancelled must give up what it computes. Whatever it raises becomes an
    :class:`~selfcorrect_rag.errors.EngineFailed`; an :class:`EngineUnavailable` is retried first.
    """

    context_tokens: int | None = None
    """The model's context length in tokens, known after :meth:`open`; None where nobody knows."""
    in_flight: int = 512
    """Most prompts to hand it at a time, known after :meth:`open`."""
    prunes: bool = False
    """Whether :meth:`complete` heeds :attr:`Request.keep`."""

    @abstractmethod
    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts together; their completions in the same order."""

    async def stream(self, prompt: Sequence[int], request: Request) -> AsyncIterator[Sequence[int]]:
        """Continue one prompt: generated ids as they come, without one that ended it.

        By default all at once, when they are complete.
        """
        (completion,) = await self.complete([prompt], request)
        ended = completion.finish_reason == "stop" and not request.stop
        yield completion.ids[:-1] if ended else completion.ids

    async def open(self) -> None:  # noqa: B027, as most have nothing to start
        """Start it, before anything else is asked of it."""

    async def close(self) -> None:  # noqa: B027
        """Free what it holds. Runs once, after all else that ran on its loop."""

    async def is_up(self) -> bool:
        """Whether it takes requests again after an :class:`EngineUnavailable`; cheap."""
        return True

    def after_fork(self) -> None:
        """Make anew in a forked child what that does not inherit, such as connections.

        Raises:
            EngineFailed: by default: it works in the process that made it alone.
        """
        raise EngineFailed(
            "this model's engine belongs to the process that this one was forked from: make the "
            "model in the process that uses it"
        )


def split_context(context_tokens: int | None, max_tokens: int) -> tuple[int, int | None]:
    """Most tokens to generate and most of a prompt, for a model of that context length.

    Generation never takes more than half of the context.

    Raises:
        ValueError: ``max_tokens`` is below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
    if context_tokens is None:
        return max_tokens, None
    max_tokens = min(max_tokens, context_tokens // 2)
    return max_tokens, context_tokens - max_tokens
