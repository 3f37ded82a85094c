"""The base of every node: one function for sync and async runs, with timeout, faults and costs.

A step is a function from state to update. One that calls a model, a retriever or a search is a
generator: it yields each call in a sync and an async form (:func:`call`), and :class:`Node` makes
the one that fits the run. Between calls a step only computes; async runs do that off the event loop
where texts are long.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langgraph.runtime import Runtime, get_runtime
from pydantic import BaseModel

from selfcorrect_rag.errors import RESUME_HINT, BadInput, Fault, StepTimedOut
from selfcorrect_rag.events import Event
from selfcorrect_rag.models.off_loop import LONG, off_loop
from selfcorrect_rag.nodes.base.usage import counting
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import blank_state
from selfcorrect_rag.state.costs import Cost, StepRun
from selfcorrect_rag.state.documents import as_documents

Update = dict[str, Any]
S = TypeVar("S", bound=Settings)
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A call that a step yields, in its sync and its async form."""

    sync: Callable[[], Any]
    asynchronous: Callable[[], Awaitable[Any]]


Work = Generator[Call, Any, Update]
"""A running step: yields calls, returns the state update."""
Step = Callable[[Any], Update | Work]


def call(
    sync: Callable[..., T],
    asynchronous: Callable[..., Awaitable[T]],
    *arguments: Any,
    within: AbstractContextManager[Any] | None = None,
    seconds: float | None = None,
    **options: Any,
) -> Generator[Call, Any, T]:
    """Make a call from a step: ``found = yield from call(r.invoke, r.ainvoke, query)``.

    Args:
        sync: called in sync runs.
        asynchronous: called and awaited in async runs.
        arguments: positional arguments of both.
        within: entered around this call only, in the thread or task that makes it.
        seconds: timeout of this call, besides the step's own.
        options: keyword arguments of both.

    Raises:
        StepTimedOut: ``seconds`` have passed.
    """
    entered = within or nullcontext()

    def run() -> T:
        with entered:
            return sync(*arguments, **options)

    async def arun() -> T:
        with entered:
            return await asynchronous(*arguments, **options)

    result: T = yield Call(partial(in_time, seconds, run), partial(ain_time, seconds, arun))
    return result


class Node(Runnable[Any, Update]):
    """One step, as LangGraph runs it: in a graph of this package, in another, or alone.

    The state is a mapping, a pydantic model or a dataclass with the keys that the step reads;
    those that our graphs begin empty (``notes``, ``costs``, ...) may be missing. Documents may be
    JSON objects, as in a graph's input. Each run is added to ``route`` and ``costs``, unless the
    step sets them itself, which begins a turn. A step that raises or pauses gives no update, so
    retries are counted once.

    LangGraph traces each node by itself. A ``RunnableLambda`` would trace it twice and inspect
    signatures at every call, which costs more than all our nodes together. LangGraph's own node
    timeout is for async nodes only and fixed for all runs; ``step_timeout`` is a setting, and holds
    in sync runs too (:func:`in_time`).

    Raises:
        BadInput: the state lacks a key that the step needs.
        NoDocument: ``passages``, ``web_results`` or ``knowledge`` holds something else.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        settings: Settings | None = None,
        failed: Callable[[Any, Fault], Update] | None = None,
    ) -> None:
        """Make a node of a step.

        Args:
            name: the step's name in costs and messages, where no graph names it.
            step: from state to update; a generator function if it makes calls.
            settings: the factory's, which give the timeout unless the run's do; None is no timeout,
                for a step that calls nothing slow.
            failed: from state and fault (a timeout is one) to an update; it may raise the fault.
                None always raises it.
        """
        self.name, self.step, self.settings, self.failed = name, step, settings, failed

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        with counting(ensure_config(config)) as counted:
            started, state = time.perf_counter(), self._state(input)
            try:
                update = in_time(self._seconds(), lambda: run(work(self.step, state)))
                failed = None
            except Fault as fault:
                update, failed = self._failed(state, fault), fault.part
            return self._recorded(update, counted.cost(time.perf_counter() - started), failed)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        with counting(ensure_config(config)) as counted:
            started, state = time.perf_counter(), self._state(input)
            try:
                step = work(self.step, state)
                update = await ain_time(self._seconds(), lambda: arun(step, state))
                failed = None
            except Fault as fault:
                update, failed = self._failed(state, fault), fault.part
            return self._recorded(update, counted.cost(time.perf_counter() - started), failed)

    def _recorded(self, update: Update, cost: Cost, failed: str | None) -> Update:
        """The update, with the step's run on the route and its cost."""
        # A graph may run it under another name.
        step = (ensure_config().get("metadata") or {}).get("langgraph_node", self.get_name())
        return {"costs": {step: cost}, **update, "route": [StepRun(step=step, failed=failed)]}

    def _state(self, given: Any) -> "_State":
        if isinstance(given, BaseModel) or is_dataclass(given):
            names = type(given).model_fields if isinstance(given, BaseModel) else None
            keys = names or [field.name for field in fields(given)]
            given = {key: getattr(given, key) for key in keys}
        if not isinstance(given, Mapping):
            raise BadInput(
                f"the state is no mapping but {type(given).__name__}: give {self.name} a dict"
            )
        state = _State(blank_state())
        state.update(given)
        for key in _DOCUMENTS:
            if state.get(key) is not None:
                state[key] = as_documents(state[key], f"the state's {key!r}")
        state.reader = self.get_name()
        return state

    def _seconds(self) -> float | None:
        return None if self.settings is None else current(self.settings).step_timeout

    def _failed(self, state: Mapping[str, Any], fault: Fault) -> Update:
        if self.failed is None:
            raise fault
        return self.failed(state, fault)


class _State(dict[str, Any]):
    """A node's state, whose missing keys raise BadInput."""

    reader: str

    def __or__(self, other: Any) -> Any:
        state = _State(self)
        state.update(other)
        state.reader = self.reader
        return state

    def __missing__(self, key: str) -> Any:
        raise BadInput(f"{self.reader} reads {key!r}, which the state lacks: give it")


def work(step: Step, state: Any) -> Work:
    """Start a step, be it a generator or a plain function."""
    done = step(state)
    return (yield from done) if isinstance(done, Generator) else done


def run(step: Work) -> Update:
    """Run a step with the sync form of its calls."""
    given, error = None, None
    while True:
        wanted, update = _advance(step, given, error)
        if wanted is None:
            return update
        given, error = None, None
        try:
            given = wanted.sync()
        except Exception as raised:
            error = raised


async def arun(step: Work, state: Mapping[str, Any]) -> Update:
    """Run a step with the async form of its calls; long computation runs off the event loop."""
    given, error = None, None
    while True:
        long = is_long(state, given if isinstance(given, str) else "")
        wanted, update = await off_loop(_advance, step, given, error, long=long)
        if wanted is None:
            return update
        given, error = None, None
        try:
            given = await wanted.asynchronous()
        except Exception as raised:
            error = raised


def _advance(step: Work, given: Any, error: Exception | None) -> tuple[Call | None, Update]:
    """Send the last call's result, or error, into the step: its next call, or its update."""
    try:
        return (step.throw(error) if error is not None else step.send(given)), {}
    except StopIteration as end:
        return None, end.value


_DOCUMENTS = ("passages", "web_results", "knowledge")
"""State keys that hold documents. So does ``documents``, which only ``read_question`` reads; in a
graph of the user's it may hold anything."""


def is_long(state: Mapping[str, Any], written: str = "") -> bool:
    """Whether processing a state's texts, and the text that a model has ``written``, may block the
    event loop for long."""
    given = chain.from_iterable(state.get(key) or () for key in ("documents", *_DOCUMENTS))
    read = sum(len(each.page_content) for each in given if isinstance(each, Document))
    return read + 10 * len(written or state.get("written") or "") > LONG


_GIVEN_UP: ContextVar[threading.Event] = ContextVar("given up")


def is_given_up() -> bool:
    """Whether this thread belongs to a step that has timed out."""
    given_up = _GIVEN_UP.get(None)
    return given_up is not None and given_up.is_set()


def in_time(seconds: float | None, call: Callable[[], T]) -> T:
    """The result of ``call``, with a timeout in seconds; None is none.

    Raises:
        StepTimedOut: the time is over. The call goes on in its own thread, which Python cannot end;
            its result is discarded.
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

    # Unlike a pool's thread, a daemon does not keep the process alive.
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
    step = (ensure_config().get("metadata") or {}).get("langgraph_node", "the step")
    return StepTimedOut(f"{step} took longer than step_timeout, {seconds:g} s", RESUME_HINT)


def runtime() -> Runtime[Any] | None:
    """LangGraph's runtime of the run; None where a node runs outside of any graph."""
    try:
        found: Runtime[Any] | None = get_runtime()
    except (RuntimeError, KeyError):
        return None
    return found


def current(settings: S) -> S:
    """The factory's settings with this run's context on top.

    Raises:
        BadSettings: the context is another graph's settings, or has a value out of bounds.
    """
    running = runtime()
    # A graph has checked its own context; a parent's context may have other keys too.
    return settings if running is None else settings.merged(running.context)


def callbacks() -> Any:
    """The callbacks of the node that is running, for the models that it calls."""
    return ensure_config().get("callbacks")


def emit(event: Event) -> None:
    """Send an event to the graph's custom stream, if the node runs in a graph."""
    running = runtime()
    if running is not None and not is_given_up():
        running.stream_writer(event)
