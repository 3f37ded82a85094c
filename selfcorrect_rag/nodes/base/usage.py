"""Counts model calls and tokens while a node runs, by LangChain's callbacks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs, var_child_runnable_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.pregel._messages import StreamMessagesHandler

from selfcorrect_rag.errors import Fault, wrap_errors
from selfcorrect_rag.state.costs import Cost, Usage, plus
from selfcorrect_rag.state.self_rag import Segment


class UsageCounter(BaseCallbackHandler):
    """The model calls of one run of a node, and the tokens that they report.

    Nested models, such as an LLM inside a chat model, are counted once.
    """

    run_inline = True

    def __init__(self) -> None:
        self._calls: list[tuple[int, int | None, int | None]] = []
        self._parents: dict[UUID, UUID | None] = {}
        self._outer: set[UUID] = set()
        self.attempt: UsageCounter | None = None
        """A call in progress, whose usage is not known yet."""
        self.message: AIMessage | None = None
        """The last message of a chat model, under whose id it was streamed."""

    @property
    def model_calls(self) -> int:
        """Model calls so far."""
        return sum(calls for calls, _, _ in self._calls)

    def add(self, calls: int, prompt_tokens: int | None, generated_tokens: int | None) -> None:
        """Count calls that trigger no callbacks."""
        self._calls.append((calls, prompt_tokens, generated_tokens))

    def add_attempt(self) -> None:
        """Count the failed attempt: by its callbacks, or else as one call."""
        counted = self.attempt._calls if self.attempt else []
        self._calls += counted or [(1, 0, 0)]

    def add_inner(self, counted: "UsageCounter") -> None:
        """Add the counts of a nested node."""
        self._calls += counted._calls
        self.message = counted.message or self.message

    def cost(self, seconds: float) -> Cost:
        """The cost of the node, which ran for ``seconds``."""
        read: int | None = 0
        written: int | None = 0
        for _, prompt_tokens, generated_tokens in self._calls:
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
        if isinstance(written, ChatGeneration) and isinstance(written.message, AIMessage):
            self.message = written.message
        if run_id not in self._outer:
            self._outer.add(run_id)  # a bound model may hold this handler twice
            self.add(*usage_of(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id not in self._outer:
            self._outer.add(run_id)
            self.add(1, 0, 0)

    def _begin(self, parent: UUID | None) -> None:
        while parent is not None:  # up to an enclosing model, which did the same
            self._outer.add(parent)
            parent = self._parents.get(parent)


def usage_of(response: LLMResult) -> tuple[int, int | None, int | None]:
    """Calls, prompt tokens and generated tokens, as the model reports them."""
    generation = response.generations[0][0]
    info = generation.generation_info or {}
    calls = info.get("requests") or 1
    counted = getattr(getattr(generation, "message", None), "usage_metadata", None)
    if counted:
        return calls, counted["input_tokens"], counted["output_tokens"]
    usage = (response.llm_output or {}).get("token_usage") or {}
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return calls, info.get("prompt_tokens", read), info.get("tokens", written)


_COUNTER: ContextVar[UsageCounter] = ContextVar("usage counter")


@contextmanager
def counting(config: RunnableConfig) -> Iterator[UsageCounter]:
    """Count from zero while a node runs with ``config``.

    The counts of a nested node are added to the outer one afterwards, not by callbacks, since some
    of its calls trigger none.
    """
    outer, counted = _COUNTER.get(None), UsageCounter()
    token = _COUNTER.set(counted)
    try:
        with called_with(_unheard(config, lambda handler: handler is outer)):
            yield counted
    finally:
        _COUNTER.reset(token)
        if outer is not None:
            outer.add_inner(counted)


def _unheard(config: RunnableConfig, by: Callable[[BaseCallbackHandler], bool]) -> RunnableConfig:
    """The config without these handlers among its callbacks."""
    given = config.get("callbacks")
    if isinstance(given, BaseCallbackManager):
        given = given.copy()
        for handler in filter(by, [*given.handlers]):
            given.remove_handler(handler)
    elif given is not None:
        given = [handler for handler in given if not by(handler)]
    return {**config, "callbacks": given}


def counter() -> UsageCounter:
    """The counter of the node that is running."""
    return _COUNTER.get()


def counted_config() -> RunnableConfig:
    """The node's config, for models that it calls: their calls are counted."""
    return merge_configs(ensure_config(), RunnableConfig(callbacks=[counter()]))


def quiet() -> RunnableConfig:
    """The node's config for a call whose tokens are not streamed as the answer."""
    return _unstreamed(merge_configs(counted_config(), {"tags": [TAG_NOSTREAM]}))


def _unstreamed(config: RunnableConfig) -> RunnableConfig:
    """The config without LangGraph's message stream, for which models are streamed.

    In ``stream_events(version="v3")`` a streamed answer keeps the log-probabilities of its last
    chunk only, and those are what graders and critics are asked for.
    """
    return _unheard(config, lambda handler: isinstance(handler, StreamMessagesHandler))


@contextmanager
def counted_calls(at_least: int = 0) -> Iterator[None]:
    """Count every model called within by code that takes no config; its output is not streamed as
    the answer.

    Without any callback, count ``at_least`` calls of a model that is not LangChain's.
    """
    before = counter().model_calls
    with called_with(quiet()):
        yield
    if at_least and counter().model_calls == before:
        counter().add(at_least, None, None)


@contextmanager
def counted_part(kind: type[Fault], part: str) -> Iterator[None]:
    """:func:`counted_calls` around a part; its errors become ``kind``
    (:func:`~selfcorrect_rag.errors.faults.wrap_errors`)."""
    with wrap_errors(kind, part), counted_calls():
        yield


@contextmanager
def attempted() -> Iterator[None]:
    """Count the models called within separately, for :meth:`UsageCounter.add_attempt`."""
    attempt = counter().attempt = UsageCounter()
    apart = merge_configs(ensure_config(), RunnableConfig(callbacks=[attempt]))
    with called_with(_unstreamed(apart)):
        yield


@contextmanager
def called_with(config: RunnableConfig) -> Iterator[None]:
    """Make this the config of models that are called within without one."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def count_batch(segments: Sequence[Segment]) -> int:
    """Add the call that wrote ``segments`` to the node's count, and return how many calls it was.

    The batch is one model call, unless the provider takes one request per prompt.
    """
    calls = max(1, sum(segment["requests"] for segment in segments))
    prompt_tokens = sum(segment["prompt_tokens"] for segment in segments)
    generated_tokens = sum(segment["tokens"] for segment in segments)
    # A provider that reports no prompt tokens reports nothing; a local model may read none.
    untold = not prompt_tokens and any(segment["requests"] for segment in segments)
    known = (None, None) if untold else (prompt_tokens, generated_tokens)
    counter().add(calls, *known)
    return calls


def used(usage: Usage, segments: Sequence[Segment]) -> Usage:
    """The usage so far plus the call that wrote ``segments``, which :func:`count_batch` counts."""
    calls = count_batch(segments)
    pruned = [segment for segment in segments if segment["finish_reason"] == "pruned"]
    decoded = [segment["tokens"] for segment in segments if segment["finish_reason"] != "pruned"]
    saved = sum(sum(decoded) // len(decoded) - segment["tokens"] for segment in pruned)
    return Usage(
        model_calls=usage["model_calls"] + calls,
        prompts=usage["prompts"] + len(segments),
        prompt_tokens=usage["prompt_tokens"] + sum(s["prompt_tokens"] for s in segments),
        generated_tokens=usage["generated_tokens"] + sum(s["tokens"] for s in segments),
        retrievals=usage["retrievals"],
        pruned=usage["pruned"] + len(pruned),
        tokens_saved=usage["tokens_saved"] + max(saved, 0),
    )
