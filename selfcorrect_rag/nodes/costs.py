"""Counts the model calls of a node's run, and the tokens that the models report."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from selfcorrect_rag.state import FREE, Segment, Usage


class CallCounter(BaseCallbackHandler):
    """Counts model calls and the tokens that they report; a model inside a model counts once."""

    run_inline = True

    def __init__(self) -> None:
        """Count from zero."""
        self.model_calls = 0
        self._tokens: list[int | None] = [0, 0]
        self._parents: dict[UUID, UUID | None] = {}
        self._outer: set[UUID] = set()

    def usage(self, seconds: float = 0.0) -> Usage:
        """Return the calls and tokens so far."""
        read, written = self._tokens
        counted = {"prompt_tokens": read, "generated_tokens": written, "seconds": seconds}
        return {**FREE, "model_calls": self.model_calls, **counted}  # type: ignore[typeddict-item]

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._parents[run_id] = parent_run_id

    def on_chat_model_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._parents[run_id] = parent_run_id
        while parent_run_id is not None:
            self._outer.add(parent_run_id)
            parent_run_id = self._parents.get(parent_run_id)

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id not in self._outer:
            self._outer.add(run_id)  # a bound model may hold this handler twice
            calls, read, written = usage_of(response)
            self.model_calls += calls
            counts: Any = zip(self._tokens, (read, written), strict=True)
            self._tokens = [None if None in pair else sum(pair) for pair in counts]

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id not in self._outer:
            self._outer.add(run_id)
            self.model_calls += 1


def usage_of(response: LLMResult) -> tuple[int, int | None, int | None]:
    """Return calls, prompt tokens and generated tokens, as the model reports them."""
    generation = response.generations[0][0]
    info = generation.generation_info or {}
    calls = info.get("requests") or 1
    counted = getattr(getattr(generation, "message", None), "usage_metadata", None)
    if counted:
        return calls, counted["input_tokens"], counted["output_tokens"]
    usage = (response.llm_output or {}).get("token_usage") or {}
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return calls, info.get("prompt_tokens", read), info.get("tokens", written)


def batch_usage(segments: Sequence[Segment]) -> dict[str, Any]:
    """Return the costs of the batch that wrote ``segments``.

    It is one model call, unless the provider takes one request per prompt.
    """
    requests = sum(segment["requests"] for segment in segments)
    read: int | None = sum(segment["prompt_tokens"] for segment in segments)
    written: int | None = sum(segment["tokens"] for segment in segments)
    if not read and requests:  # a provider that reports no tokens; a local model may read none
        read = written = None
    return {
        "model_calls": max(1, requests),
        "prompts": len(segments),
        "prompt_tokens": read,
        "generated_tokens": written,
        "pruned": sum(segment["finish_reason"] == "pruned" for segment in segments),
    }
