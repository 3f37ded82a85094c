"""The base of every node: one step for sync and async runs, its settings, calls, faults and costs.

A step is a function from state and :class:`Run` to an update. One that calls a model, a retriever
or a search is ``async`` and awaits :meth:`Run.call` only, which does not suspend in a sync run, so
that the same step serves ``invoke`` and ``ainvoke``.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from inspect import iscoroutine
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast
from uuid import uuid4

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import (
    ensure_config,
    merge_configs,
    run_in_executor,
    var_child_runnable_config,
)
from langgraph.cache.base import BaseCache
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph import StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.stream import CustomTransformer
from langgraph.types import CachePolicy, Checkpointer, Overwrite, RetryPolicy

from selfcorrect_rag.errors import BadSettings, Fault, ModelFailed, NoQuestion, wrap_errors
from selfcorrect_rag.intake import admit
from selfcorrect_rag.models.chat_model import LONGEST_ANSWER, model_behind, written_text
from selfcorrect_rag.models.from_name import Model
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.models.reflection_llm import LONG
from selfcorrect_rag.nodes.limits import CallCounter, add_costs, batch_usage
from selfcorrect_rag.settings import InstructRAGSettings, SelfCRAGSettings, Settings
from selfcorrect_rag.state import FREE, Segment, StepRun, Usage, blank_state, known_tokens, total

Update = dict[str, Any]
S = TypeVar("S", bound=Settings)
T = TypeVar("T")

MANY_CALLS = 1_000
"""More model calls than a step makes: a limit that leaves them does not change its result."""
ASK = 'give {"question": "..."}, or messages that end with a human message'
_BLANK = blank_state()


class Run(Generic[S]):
    """One run of a node: its settings, the calls that it makes, and what they cost."""

    def __init__(
        self, node: "Node[S]", given: Mapping[str, Any], config: RunnableConfig, is_async: bool
    ) -> None:
        self.config, self.is_async = config, is_async
        try:
            self._runtime: Runtime[Any] | None = get_runtime()
        except (RuntimeError, KeyError):  # outside any graph
            self._runtime = None
        self.context: Any = self._runtime.context if self._runtime else None
        self.settings: S = node.turn_settings(given, self.context)
        self.costs: Usage = {**FREE}
        self.notes: list[str] = []
        self.message: AIMessage | None = None
        """The message of the chat model that streamed the answer."""
        self.probability: float | None = None
        """That of the text that the last call wrote, the geometric mean over its tokens; None if
        the model does not report it."""

    async def call(
        self,
        sync: Callable[..., T],
        asynchronous: Callable[..., Awaitable[T]],
        *args: Any,
        **options: Any,
    ) -> T:
        """Call the function that fits the run; models that it calls are counted, not streamed."""
        counter = CallCounter()
        extra = RunnableConfig(callbacks=[counter], tags=[TAG_NOSTREAM])
        token = var_child_runnable_config.set(merge_configs(self.config, extra))
        try:
            if self.is_async:
                return await asynchronous(*args, **options)
            return sync(*args, **options)
        finally:
            var_child_runnable_config.reset(token)
            add_costs(self.costs, **counter.usage)
            self.probability = counter.probability

    async def segments(
        self,
        sync: Callable[..., list[Segment]],
        asynchronous: Callable[..., Awaitable[list[Segment]]],
        *args: Any,
        **options: Any,
    ) -> list[Segment]:
        """Call ``choose`` or ``generate_segments`` of a ReflectionLLM, counted as one batch."""
        options["callbacks"] = self.config.get("callbacks")
        costs: dict[str, Any] = {"model_calls": 1}  # of a batch that fails
        try:
            if self.is_async:
                segments = await asynchronous(*args, **options)
            else:
                segments = sync(*args, **options)
            costs = batch_usage(segments)
            return segments
        finally:
            add_costs(self.costs, **costs)

    async def compute(self, work: Callable[..., T], *args: Any, texts: Sequence[Document]) -> T:
        """Compute ``work(*args)``, in an async run off the event loop if ``texts`` are long."""
        if self.is_async and sum(len(text.page_content) for text in texts) > LONG:
            return await run_in_executor(None, work, *args)
        return work(*args)

    async def admit(
        self, documents: Sequence[Document], what: str
    ) -> tuple[list[Document], list[str]]:
        """Return documents of at most ``document_characters`` and notes, as :func:`admit` does."""
        longest = self.settings.document_characters
        return await self.compute(admit, documents, longest, what, texts=documents)

    @property
    def is_heard(self) -> bool:
        """Whether anything listens to the graph's messages."""
        handlers = getattr(self.config.get("callbacks"), "handlers", ())
        is_quiet = TAG_NOSTREAM in (self.config.get("tags") or ())
        return self._runtime is not None and bool(handlers) and not is_quiet

    def emit(self, event: str, **fields: Any) -> None:
        """Send an event (docs/reference/graphs.md) to the custom stream, if there is a graph."""
        if self._runtime is not None:
            self._runtime.stream_writer({"event": event, **fields})

    def will_retry(self, policy: RetryPolicy | None, fault: Fault) -> bool:
        """Return whether LangGraph runs the node again if it raises ``fault``."""
        info = None if self._runtime is None else self._runtime.execution_info
        if policy is None or info is None or info.node_attempt >= policy.max_attempts:
            return False
        return bool(cast(Callable[[BaseException], bool], policy.retry_on)(fault))


Step = Callable[[Any, Run[Any]], Update | Coroutine[Any, Any, Update]]


class Node(Runnable[Any, Update], Generic[S]):
    """One step, as LangGraph runs it: in a graph of this package, in another, or alone.

    A ``RunnableLambda`` would trace each step twice and cannot have a sync form made of an async
    one. Every run is added to ``route`` with its costs. ``settings`` are the factory's, for runs
    outside a graph of this package; ``on_fault`` gives the update for a fault, or raises it;
    ``begins_turn`` resets what an earlier turn left behind.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        settings: S,
        on_fault: Callable[[Any, Run[Any], Fault], Update] | None = None,
        *,
        begins_turn: bool = False,
    ) -> None:
        self.name, self.step, self.settings, self.on_fault = name, step, settings, on_fault
        self.begins_turn = begins_turn
        self.retry_policy: RetryPolicy | None = None
        self.cache_key: Callable[[Any], str] | None = None
        self.faults: Counter[str] = Counter()
        """By a key's first word, how often ``on_fault`` handled a fault, which is not cached."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        running = self._run(input, config, is_async=False)
        try:
            running.send(None)
        except StopIteration as end:  # nothing that a step awaits suspends in a sync run
            return cast(Update, end.value)
        running.close()
        raise RuntimeError("the step awaited something that suspends: use run.call")

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        return await self._run(input, config, is_async=True)

    async def _run(
        self, given: Mapping[str, Any], config: RunnableConfig | None, *, is_async: bool
    ) -> Update:
        """Run the step; add its costs to the route, and notes that calls left."""
        started, failed, state = time.perf_counter(), None, {**_BLANK, **given}
        if not self.begins_turn:
            state["question"] = given.get("standalone_question") or given.get("question")
            if state["question"] is None:
                raise NoQuestion(f"{self.name} reads 'question', which the state lacks: {ASK}")
        run = Run(self, given, config or ensure_config(), is_async)
        try:
            found = self.step(state, run)
            update = await found if iscoroutine(found) else cast(Update, found)
        except Fault as fault:
            if self.on_fault is None or run.will_retry(self.retry_policy, fault):
                raise
            update, failed = self.on_fault(state, run, fault), fault.part
            if self.cache_key is not None:
                self.faults[self.cache_key(given).split()[0]] += 1
        route: Sequence[StepRun] = [] if self.begins_turn else state["route"]
        step: Any = {
            **run.costs,
            "seconds": time.perf_counter() - started,
            "step": (run.config.get("metadata") or {}).get("langgraph_node", self.name),
            "failed": failed,
            "cached": False,
            "turn": route[0]["turn"] if route else uuid4().hex,
        }
        update["route"] = Overwrite([step]) if self.begins_turn else [step]
        if run.notes:
            update["notes"] = [*update.get("notes", ()), *run.notes]
        if "answer" in update and not self.begins_turn:
            update["usage"] = total([*route, step])
        return update

    def turn_settings(self, state: Mapping[str, Any], context: object) -> S:
        """Return the settings that a turn began with, or this node's and the context's."""
        given = None if self.begins_turn else state.get("settings")
        if given is None:
            return self.settings.merged(context)
        cls = type(self.settings)
        return cls(**{name: given[name] for name in given if name in cls.model_fields})


class GraphOptions(TypedDict, total=False):
    """The options of every graph's factory."""

    reranker: BaseDocumentCompressor | None
    """A LangChain document compressor that reorders or drops retrieved passages."""
    follow_up: Model | None
    """A model that rewrites a later question of a chat so that it stands alone; None answers each
    question as it is."""
    settings: Settings | Mapping[str, Any] | None
    """Defaults for every run, of the graph's own settings class or a dict; ``context=`` overrides
    them field by field."""
    retry_policy: RetryPolicy | None
    """LangGraph's, for the nodes that call a model, a retriever or a search."""
    checkpointer: Checkpointer
    """Keeps threads; None disables them. ``approve_search`` needs one."""
    cache: BaseCache[Any] | None
    """Keeps the results of nodes that call a model (:func:`cache_policy`); None disables it."""
    interrupt_before: list[str] | None
    """Nodes to pause before."""
    interrupt_after: list[str] | None
    """Nodes to pause after."""
    name: str
    """As shown in traces."""


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a graph is built with and what it is compiled with."""
    names = ("checkpointer", "cache", "interrupt_before", "interrupt_after", "name")
    compiling = {name: options[name] for name in names if name in options}
    building = {name: value for name, value in options.items() if name not in names}
    for name in building.keys() & (
        SelfCRAGSettings.model_fields | InstructRAGSettings.model_fields
    ):
        raise BadSettings(f'a setting is given as settings={{"{name}": ...}}', name)
    building["cached"] = compiling.get("cache") is not None
    return building, {"transformers": [CustomTransformer], **compiling}


def add_node(
    graph: StateGraph[Any, Any, Any, Any],
    node: Node[Any],
    retry_policy: RetryPolicy | None = None,
    cache_policy: CachePolicy[Any] | Literal[False] | None = None,
    *,
    defer: bool = False,
) -> None:
    """Add a node under its own name; its faults are retried before it handles them."""
    policy = retry_policy and retry_policy._replace(retry_on=_or_cause(retry_policy.retry_on))
    node.retry_policy = policy
    graph.add_node(node, retry_policy=policy, cache_policy=cache_policy or None, defer=defer)


def _or_cause(wanted: Any) -> Callable[[BaseException], bool]:
    """Return a test of an error's kind that finds a provider's error in a fault too."""
    if callable(wanted) and not isinstance(wanted, type):
        return cast(Callable[[BaseException], bool], wanted)
    kinds = wanted if isinstance(wanted, type) else tuple(wanted)
    return lambda error: isinstance(error, kinds) or isinstance(error.__cause__, kinds)


def cache_policy(node: Node[Any], model: object, keys: Sequence[str]) -> CachePolicy[Any] | None:
    """Return the policy that caches a node's result by everything that it depends on: the identity
    of its ``model``, question, settings, what limits leave, and the state's ``keys``.

    LangGraph's own key is the whole input and the node's name, so that two models on one cache
    would collide, and the costs so far would miss. None for a model with configurable fields, whose
    values the key cannot see. A node may not write messages or an answer: a hit would replay them.
    """
    # A wrapper holds the model as llm, model or critic.
    inside = [model, *(getattr(model, name, None) for name in ("llm", "model", "critic"))]
    if any(isinstance(each, Runnable) and each.config_specs for each in inside):
        return None
    asks = [node.name, identity(model), repr(getattr(model, "thresholds", None))]

    def key(state: dict[str, Any]) -> str:
        settings, route = node.turn_settings(state, None), state.get("route") or []
        calls, tokens = settings.max_model_calls, settings.max_tokens
        spent = sum(run["model_calls"] for run in route)
        left = [
            None if calls is None else min(calls - spent, MANY_CALLS),
            None if tokens is None else tokens - known_tokens(route),
        ]
        read = {name: state.get(name) for name in ("standalone_question", "settings", *keys)}
        text = json.dumps([asks, left, read], default=_key_part, sort_keys=True)
        found = hashlib.sha256(text.encode()).hexdigest()
        return f"{found} {node.faults[found]}"

    node.cache_key = key
    return CachePolicy(key_func=key)


def _key_part(value: object) -> object:
    if isinstance(value, Document):
        return [value.id, value.page_content, value.metadata]
    return repr(value)


async def ask(
    run: Run[Any], llm: Runnable[Any, Any], prompt: Any, *, stream: bool = False, **options: Any
) -> str:
    """Ask a chat model or an LLM for text of at most ``LONGEST_ANSWER`` characters, or raise
    `ModelFailed`; with ``stream`` a chat model's tokens are streamed as the answer."""
    part = f"the model ({type(model_behind(llm)).__name__})"
    config = {"tags": list[str]()} if stream else None  # without that of a quiet call
    with wrap_errors(ModelFailed, part):
        written = await run.call(llm.invoke, llm.ainvoke, prompt, config, **options)
    if not isinstance(written, str) and not hasattr(written, "content"):
        kind = type(written).__name__
        raise ModelFailed(f"{part} gave {kind}", "give a model that returns messages or text")
    if stream and isinstance(written, AIMessage):
        run.message = written
    text = written_text(written)
    if len(text) > LONGEST_ANSWER:
        run.notes.append(f"the model's text was cut to its first {LONGEST_ANSWER:,} characters")
    return text[:LONGEST_ANSWER]
