"""Counting what models cost while a node runs, from what LangChain's callbacks tell."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs, var_child_runnable_config

from selfcorrect_rag.state.costs import Cost, plus


class Tally(BaseCallbackHandler):
    """The model calls of one run of a node, and the tokens that they say they took.

    A model that calls another, as one chat model that wraps an LLM, is not counted beside it.
    """

    run_inline = True

    def __init__(self) -> None:
        self._told: list[tuple[int, int | None, int | None]] = []
        self._parents: dict[UUID, UUID | None] = {}
        self._outer: set[UUID] = set()
        self.attempt: Tally | None = None
        """Of a call of a model that has yet to say itself what it took."""
        self.message_id: str | None = None
        """Of the last message that a chat model wrote, which is streamed under it."""

    @property
    def model_calls(self) -> int:
        """Those so far."""
        return sum(calls for calls, _, _ in self._told)

    def add(self, calls: int, prompt_tokens: int | None, generated_tokens: int | None) -> None:
        """Count calls that no callback tells of."""
        self._told.append((calls, prompt_tokens, generated_tokens))

    def add_attempt(self) -> None:
        """Count what the attempt took that failed: as its callbacks told, or one call."""
        told = self.attempt._told if self.attempt else []
        self._told += told or [(1, 0, 0)]

    def cost(self, seconds: float) -> Cost:
        """What the node cost, which ran for so many seconds."""
        read: int | None = 0
        written: int | None = 0
        for _, prompt_tokens, generated_tokens in self._told:
            read, written = plus(read, prompt_tokens), plus(written, generated_tokens)
        return Cost(
            model_calls=self.model_calls,
            prompt_tokens=read,
            generated_tokens=written,
            seconds=seconds,
        )

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._parents[run_id] = parent_run_id

    def on_chat_model_start(
        self, *args: Any, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._begin(parent_run_id)

    def on_llm_start(self, *args: Any, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        self._begin(parent_run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        written = response.generations[0][0]
        if isinstance(written, ChatGeneration):
            self.message_id = written.message.id
        if run_id not in self._outer:
            self.add(*_told(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id not in self._outer:
            self.add(1, 0, 0)

    def _begin(self, parent: UUID | None) -> None:
        while parent is not None:  # up to a model, which did the same when it began
            self._outer.add(parent)
            parent = self._parents.get(parent)


def _told(response: LLMResult) -> tuple[int, int | None, int | None]:
    """Calls, tokens read and tokens written, as the model gives them."""
    generation = response.generations[0][0]
    calls = (generation.generation_info or {}).get("requests") or 1
    counted = getattr(getattr(generation, "message", None), "usage_metadata", None)
    if counted:
        return calls, counted["input_tokens"], counted["output_tokens"]
    usage = (response.llm_output or {}).get("token_usage") or {}
    return calls, usage.get("prompt_tokens"), usage.get("completion_tokens")


_TALLY: ContextVar[Tally] = ContextVar("tally")


@contextmanager
def tallied() -> Iterator[Tally]:
    """Count from nothing for as long as a node runs."""
    counted = Tally()
    token = _TALLY.set(counted)
    try:
        yield counted
    finally:
        _TALLY.reset(token)


def tally() -> Tally:
    """What is counted for the node that is running."""
    return _TALLY.get()


def counted_config() -> RunnableConfig:
    """The node's config for a model that it calls, which is then counted."""
    return merge_configs(ensure_config(), RunnableConfig(callbacks=[tally()]))


@contextmanager
def counted_calls(at_least: int) -> Iterator[None]:
    """Count every model that is called within, by somebody who is not given a config.

    Where callbacks tell of none, it was ``at_least`` calls of a model that is not LangChain's.
    """
    before = tally().model_calls
    with _called_with(counted_config()):
        yield
    if at_least and tally().model_calls == before:
        tally().add(at_least, None, None)


@contextmanager
def attempted() -> Iterator[None]:
    """Count apart what models called within take, for :meth:`Tally.add_attempt` if that fails."""
    attempt = tally().attempt = Tally()
    apart = merge_configs(ensure_config(), RunnableConfig(callbacks=[attempt]))
    with _called_with(apart):
        yield


@contextmanager
def _called_with(config: RunnableConfig) -> Iterator[None]:
    """Have models that are called within, without a config, find this one."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
