"""What every node shares: a sync and an async form, the run's settings and its events."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.constants import TAG_NOSTREAM
from langgraph.runtime import get_runtime

from selfcorrect_rag.events import Event
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import Segment, Usage

Update = dict[str, Any]


State = TypeVar("State", bound=Mapping[str, Any])
S = TypeVar("S", bound=Settings)


class Node(Runnable[State, Update]):
    """One step with a sync and an async form; LangGraph picks by how the graph is called.

    LangGraph traces each node by itself. A ``RunnableLambda`` would trace it twice and inspect
    signatures at every call, which costs more than all of our own nodes together.
    """

    def __init__(
        self,
        sync: Callable[[State], Update],
        asynchronous: Callable[[State], Awaitable[Update]],
    ) -> None:
        self._sync, self._asynchronous = sync, asynchronous

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        return self._sync(input)

    async def ainvoke(
        self, input: State, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        return await self._asynchronous(input)


def plain_node(run: Callable[[State], Update]) -> Node[State]:
    """A node that calls nothing slow, so that its async form is the same function."""

    async def arun(state: State) -> Update:
        return run(state)

    return Node(run, arun)


def current(settings: S) -> S:
    """The factory's settings with this run's context on top."""
    return settings.merged(get_runtime().context)


def callbacks() -> Any:
    """The callbacks of the node that is running, for the models that it calls."""
    return ensure_config().get("callbacks")


def quiet() -> RunnableConfig:
    """The config of the node that is running, for a call whose tokens are no part of the answer."""
    return merge_configs(ensure_config(), {"tags": [TAG_NOSTREAM]})


def emit(event: Event) -> None:
    """Say what happened on the custom stream."""
    get_runtime().stream_writer(event)


def used(usage: Usage, segments: Sequence[Segment]) -> Usage:
    """The cost so far plus one model call that wrote ``segments``."""
    pruned = [segment for segment in segments if segment["finish_reason"] == "pruned"]
    decoded = [segment["tokens"] for segment in segments if segment["finish_reason"] != "pruned"]
    saved = sum(sum(decoded) // len(decoded) - segment["tokens"] for segment in pruned)
    return Usage(
        model_calls=usage["model_calls"] + 1,
        prompts=usage["prompts"] + len(segments),
        prompt_tokens=usage["prompt_tokens"] + sum(s["prompt_tokens"] for s in segments),
        generated_tokens=usage["generated_tokens"] + sum(s["tokens"] for s in segments),
        retrievals=usage["retrievals"],
        pruned=usage["pruned"] + len(pruned),
        tokens_saved=usage["tokens_saved"] + max(saved, 0),
    )
