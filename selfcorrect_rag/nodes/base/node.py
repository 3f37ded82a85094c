"""What every node shares: a sync and an async form, limits of time, faults, settings and costs."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextvars import ContextVar, copy_context
from itertools import chain
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.constants import TAG_NOSTREAM
from langgraph.runtime import get_runtime

from selfcorrect_rag.errors import Fault, StepTimedOut
from selfcorrect_rag.errors.faults import GO_ON
from selfcorrect_rag.events import Event
from selfcorrect_rag.models.off_loop import LONG, off_loop
from selfcorrect_rag.nodes.base.tally import Tally, counted_config, tallied, tally
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.costs import StepRun, Usage
from selfcorrect_rag.state.self_rag import Segment

Update = dict[str, Any]


State = TypeVar("State", bound=Mapping[str, Any])
S = TypeVar("S", bound=Settings)
T = TypeVar("T")


class Node(Runnable[State, Update]):
    """One step with a sync and an async form; LangGraph picks by how the graph is called.

    LangGraph traces each node by itself. A ``RunnableLambda`` would trace it twice and inspect
    signatures at every call, which costs more than all of our own nodes together.

    The run of the step is put to ``route``, and what it cost to ``costs``, unless it sets them
    itself, which begins a turn. A step that raises, or pauses, gives no update, so that what is
    tried again is counted once.

    LangGraph's own limit on the time of a node is for async nodes alone, and is set once for all
    runs. This one is a setting, and holds in sync runs too (:func:`in_time`).
    """

    def __init__(
        self,
        sync: Callable[[State], Update],
        asynchronous: Callable[[State], Awaitable[Update]],
        settings: Settings | None = None,
        failed: Callable[[State, Fault], Update] | None = None,
    ) -> None:
        """A step of these two forms.

        Args:
            sync: what it does.
            asynchronous: its async twin.
            settings: the factory's; the limit of time is theirs, or the run's. None: there is none,
                as for a step that calls nothing slow.
            failed: what to do at a fault of a part that the step calls, its time being over among
                them; it may raise the fault. None raises it.
        """
        self.step, self.astep = sync, asynchronous
        self.settings, self.failed = settings, failed

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        with tallied() as counted:
            started = time.perf_counter()
            try:
                update, failed = in_time(self._seconds(), lambda: self.step(input)), None
            except Fault as fault:
                update, failed = self._failed(input, fault), fault.part
            return _recorded(update, counted, time.perf_counter() - started, failed, config)

    async def ainvoke(
        self, input: State, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        with tallied() as counted:
            started = time.perf_counter()
            try:
                update, failed = await ain_time(self._seconds(), lambda: self.astep(input)), None
            except Fault as fault:
                update, failed = self._failed(input, fault), fault.part
            return _recorded(update, counted, time.perf_counter() - started, failed, config)

    def _seconds(self) -> float | None:
        return None if self.settings is None else current(self.settings).step_timeout

    def _failed(self, input: State, fault: Fault) -> Update:
        if self.failed is None:
            raise fault
        return self.failed(input, fault)


_GIVEN_UP: ContextVar[threading.Event] = ContextVar("given up")


def is_given_up() -> bool:
    """Whether this is what a step still does in its thread although its time is over."""
    given_up = _GIVEN_UP.get(None)
    return given_up is not None and given_up.is_set()


def in_time(seconds: float | None, call: Callable[[], T]) -> T:
    """What ``call`` gives, which has so many seconds; None is any number.

    Raises:
        StepTimedOut: they are over. The call goes on in a thread of its own, which Python cannot
            end; what it still gives is nobody's.
    """
    if seconds is None:
        return call()
    done: Future[T] = Future()
    context, given_up = copy_context(), threading.Event()
    context.run(_GIVEN_UP.set, given_up)

    def work() -> None:
        try:
            done.set_result(context.run(call))
        except BaseException as error:
            done.set_exception(error)

    # Unlike one of a pool, a daemon keeps no process from ending.
    threading.Thread(target=work, name="step with a limit of time", daemon=True).start()
    if not wait([done], seconds).done:
        given_up.set()
        raise _too_long(seconds)
    return done.result()


async def ain_time(seconds: float | None, call: Callable[[], Awaitable[T]]) -> T:
    """The async twin of :func:`in_time`, which cancels the call."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call()
    except TimeoutError:
        if seconds is None or not limit.expired():
            raise
        raise _too_long(seconds) from None


def _too_long(seconds: float) -> StepTimedOut:
    step = ensure_config()["metadata"]["langgraph_node"]
    return StepTimedOut(f"{step} took longer than step_timeout, {seconds:g} s", GO_ON)


def _recorded(
    update: Update,
    counted: Tally,
    seconds: float,
    failed: str | None,
    config: RunnableConfig | None,
) -> Update:
    """The update, with the run of the step on the route, and what it cost."""
    step = ensure_config(config)["metadata"]["langgraph_node"]
    route = [StepRun(step=step, failed=failed)]
    return {"costs": {step: counted.cost(seconds)}, **update, "route": route}


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
    if not is_given_up():
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
