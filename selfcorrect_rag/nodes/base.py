"""What every node shares: a sync and an async form, the run's settings, events and costs."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.constants import TAG_NOSTREAM
from langgraph.runtime import get_runtime

from selfcorrect_rag.costs import Usage
from selfcorrect_rag.events import Event
from selfcorrect_rag.nodes.tally import Tally, counted_config, tallied, tally
from selfcorrect_rag.off_loop import LONG, off_loop
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import Segment

Update = dict[str, Any]


State = TypeVar("State", bound=Mapping[str, Any])
S = TypeVar("S", bound=Settings)


class Node(Runnable[State, Update]):
    """One step with a sync and an async form; LangGraph picks by how the graph is called.

    LangGraph traces each node by itself. A ``RunnableLambda`` would trace it twice and inspect
    signatures at every call, which costs more than all of our own nodes together.

    What the step cost is put to ``costs``, unless it sets them itself, which begins a turn. A step
    that fails, or pauses, gives no update, so that what is tried again is counted once.
    """

    def __init__(
        self,
        sync: Callable[[State], Update],
        asynchronous: Callable[[State], Awaitable[Update]],
    ) -> None:
        self._sync, self._asynchronous = sync, asynchronous

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        with tallied() as counted:
            started = time.perf_counter()
            update = self._sync(input)
            return _costed(update, counted, time.perf_counter() - started, config)

    async def ainvoke(
        self, input: State, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        with tallied() as counted:
            started = time.perf_counter()
            update = await self._asynchronous(input)
            return _costed(update, counted, time.perf_counter() - started, config)


def _costed(
    update: Update, counted: Tally, seconds: float, config: RunnableConfig | None
) -> Update:
    step = ensure_config(config)["metadata"]["langgraph_node"]
    return {"costs": {step: counted.cost(seconds)}, **update}


def plain_node(run: Callable[[State], Update]) -> Node[State]:
    """A node that calls nothing slow: its async form is the same function, off the loop where the
    texts of the state are long."""

    async def arun(state: State) -> Update:
        return await off_loop(run, state, long=is_long(state))

    return Node(run, arun)


def is_long(state: Mapping[str, Any], written: str = "") -> bool:
    """Whether own work on the texts of a state, and on what a model has ``written``, may keep the
    event loop from all else for long."""
    documents = chain.from_iterable(state.get(key) or () for key in _TEXTS)
    read = sum(len(document.page_content) for document in documents)
    return read + 10 * len(written or state.get("written") or "") > LONG


_TEXTS = ("documents", "passages", "web_results", "knowledge")
"""Where documents are in a state."""


def current(settings: S) -> S:
    """The factory's settings with this run's context on top.

    Raises:
        BadSettings: the context is none of the graph's.
    """
    # LangGraph names a task by those that it is inside of: "answer:1|retrieve:2".
    nested = "|" in ensure_config()["metadata"]["langgraph_checkpoint_ns"]
    return settings.merged(get_runtime().context, nested=nested)


def callbacks() -> Any:
    """The callbacks of the node that is running, for the models that it calls."""
    return ensure_config().get("callbacks")


def quiet() -> RunnableConfig:
    """The config of the node that is running, for a call whose tokens are no part of the answer."""
    return merge_configs(counted_config(), {"tags": [TAG_NOSTREAM]})


def emit(event: Event) -> None:
    """Say what happened on the custom stream."""
    get_runtime().stream_writer(event)


def used(usage: Usage, segments: Sequence[Segment]) -> Usage:
    """The cost so far plus one call of the model that wrote ``segments``; the step's tally too.

    The batch is one model call, unless the backend had to ask a provider for each prompt.
    """
    calls = max(1, sum(segment["requests"] for segment in segments))
    prompt_tokens = sum(segment["prompt_tokens"] for segment in segments)
    generated_tokens = sum(segment["tokens"] for segment in segments)
    # A provider that read nothing has not told.
    told = (prompt_tokens, generated_tokens) if prompt_tokens else (None, None)
    tally().add(calls, *told)
    pruned = [segment for segment in segments if segment["finish_reason"] == "pruned"]
    decoded = [segment["tokens"] for segment in segments if segment["finish_reason"] != "pruned"]
    saved = sum(sum(decoded) // len(decoded) - segment["tokens"] for segment in pruned)
    return Usage(
        model_calls=usage["model_calls"] + calls,
        prompts=usage["prompts"] + len(segments),
        prompt_tokens=usage["prompt_tokens"] + prompt_tokens,
        generated_tokens=usage["generated_tokens"] + generated_tokens,
        retrievals=usage["retrievals"],
        pruned=usage["pruned"] + len(pruned),
        tokens_saved=usage["tokens_saved"] + max(saved, 0),
    )
