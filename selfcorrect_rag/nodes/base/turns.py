"""The question of a turn: read from its own input, not from the thread's state, and sanitised.

A node sees a thread's state with the input merged into it. An unanswered message of an abandoned
turn, or the previous question, could then be mistaken for the current one. So ``__start__``, which
gets the raw input, writes the question to ``turn``.
"""

import difflib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)

# LangGraph has no public hook for what __start__ writes.
from langgraph._internal._constants import NS_SEP
from langgraph.cache.base import BaseCache
from langgraph.channels.binop import _get_overwrite
from langgraph.constants import START
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import CompiledStateGraph as Compiled
from langgraph.graph.state import StateGraph
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.stream import CustomTransformer
from langgraph.types import Command, StateUpdate
from langgraph.typing import ContextT, InputT, OutputT, StateT

from selfcorrect_rag.errors import BadArgument, BadInput, NoQuestion, SelfCorrectError
from selfcorrect_rag.nodes.base.cached import cached
from selfcorrect_rag.nodes.base.node import Node
from selfcorrect_rag.nodes.base.own_node import OwnNode, own_node
from selfcorrect_rag.nodes.base.stores import StoresNamed
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.common import Input, Turn
from selfcorrect_rag.state.documents import as_documents
from selfcorrect_rag.state.intake import fit

KEYS = tuple(Input.__annotations__)
ASK = 'give {"question": "..."}, or messages that end with a human message'


class TurnGraph(StateGraph[StateT, ContextT, InputT, OutputT]):
    """A graph whose ``__start__`` also writes ``turn``, and refuses an input without a question.

    A refused input does not enter the thread, and a paused turn there stays paused.
    """

    begin: Callable[[], Mapping[str, Any]] = dict
    """Further updates by ``__start__``, so that the thread has them before any node runs. Called
    where the run's context is known."""

    def __init__(
        self,
        state: type[StateT],
        settings: Settings,
        input: type[InputT],
        output: type[OutputT],
        nodes: Mapping[str, OwnNode] | None = None,
        cache: BaseCache[Any] | None = None,
    ) -> None:
        """Begin a graph.

        Args:
            state: the state schema.
            settings: the factory's, an instance of the graph's settings class.
            input: the schema of a turn's input.
            output: the schema of a run's result.
            nodes: custom nodes, by the names of the nodes that they replace.
            cache: caches the results of nodes that call a model; None caches nothing.
        """
        kind: Any = type(settings)
        super().__init__(state, context_schema=kind, input_schema=input, output_schema=output)
        self._settings, self._cache = settings, cache
        self._own, self._replaced = dict(nodes or {}), set[str]()

    def replaces(self, name: str) -> bool:
        """Whether a custom node replaces this one."""
        return name in self._own

    def add_step(self, name: str, node: Node, model: object = None, **options: Any) -> None:
        """Add a node, or the custom node that replaces it.

        Args:
            name: the node's.
            node: the graph's own node.
            model: the model that it calls, if its results may be cached.
            options: of ``StateGraph.add_node``.
        """
        if name in self._own:
            self._replaced.add(name)
            node = own_node(name, self._own[name], node, self._settings, self.channels)
        elif model is not None:
            node = cached(node, self._cache, model, self._settings)
        self.add_node(name, node, **options)

    def compile(self, *args: Any, **kwargs: Any) -> Compiled[StateT, ContextT, InputT, OutputT]:
        if unknown := [name for name in self._own if name not in self._replaced]:
            near = difflib.get_close_matches(unknown[0], self.nodes, n=1)
            meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(self.nodes)}"
            raise BadArgument(f"nodes: the graph has no {unknown[0]!r}; {meant}")
        # Without it, stream_events(version="v3") asks the graph for no custom events.
        compiled = super().compile(*args, transformers=[CustomTransformer], **kwargs)
        compiled.__class__ = _CompiledTurns  # LangGraph's compile hard-codes its class
        compiled.nodes[START].writers.insert(0, _WriteTurn(self.begin))
        return compiled


class _CompiledTurns(StoresNamed[StateT, ContextT, InputT, OutputT]):
    """A graph that checks the input and the context of a turn before either is checkpointed."""

    def stream(
        self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **kw: Any
    ) -> Iterator[Any]:
        try:
            given = self._checked(input, config, context)
        except SelfCorrectError as error:
            manager = get_callback_manager_for_config(ensure_config(config))
            run = manager.on_chain_start(None, input, name=self.get_name())
            run.on_chain_error(error)  # a refused run counts as failed for callbacks
            raise
        return super().stream(given, config, context=context, **kw)

    def astream(
        self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **kw: Any
    ) -> AsyncIterator[Any]:
        try:
            given = self._checked(input, config, context)
        except SelfCorrectError as error:
            return self._failed(error, input, config)
        return super().astream(given, config, context=context, **kw)

    async def _failed(
        self, error: SelfCorrectError, given: Any, config: RunnableConfig | None
    ) -> AsyncIterator[Any]:
        manager = get_async_callback_manager_for_config(ensure_config(config))
        run = await manager.on_chain_start(None, given, name=self.get_name())
        await run.on_chain_error(error)
        raise error
        yield  # so that it is raised when the stream is read

    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        edited: RunnableConfig = super().bulk_update_state(config, _fit_edits(supersteps))
        return edited

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        edited: RunnableConfig = await super().abulk_update_state(config, _fit_edits(supersteps))
        return edited

    def _checked(self, given: Any, config: RunnableConfig | None, context: Any) -> Any:
        # Inside another graph's node, the config has a namespace.
        shared = bool(ensure_config(config).get("configurable", {}).get("checkpoint_ns"))
        settings: Any = self.context_schema
        if not shared and settings is not None:
            settings.of(context)
        return _checked(given, shared)


def _checked(given: Any, shared: bool) -> Any:
    """The sanitised input, which asks a question or resumes a turn."""
    if given is None:
        return None
    if isinstance(given, Command):
        return _fit_command(given)
    if isinstance(given, Mapping):
        given = {key: fit(value) if key in KEYS else value for key, value in given.items()}
    read_turn(given, shared=shared)
    return _with_documents(given)


def _with_documents(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input with its documents, if any, as Documents."""
    if given.get("documents") is None:
        return given
    return {**given, "documents": as_documents(given["documents"])}


def _fit_command(given: Any) -> Any:
    """A sanitised value or Command that resumes or edits a thread."""
    if not isinstance(given, Command):
        return fit(given)
    return replace(given, resume=fit(given.resume), update=fit(given.update))


def _fit_edits(supersteps: Sequence[Sequence[StateUpdate]]) -> list[list[StateUpdate]]:
    return [
        [edit._replace(values=_fit_command(edit.values)) for edit in edits] for edits in supersteps
    ]


class _WriteTurn(Runnable[Any, Any]):
    """The first writer of ``__start__``, before any of a turn's input is written."""

    def __init__(self, first: Callable[[], Mapping[str, Any]]) -> None:
        self._begin = first

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        config = config or {}
        # A subgraph gets the whole state of its parent.
        nested = NS_SEP in config["configurable"].get("checkpoint_ns", "")
        turn = read_turn(input, shared=nested)
        # An edit of a thread has no context, so what the turn began with stays.
        is_run = "langgraph_checkpoint_ns" in ensure_config(config)["metadata"]
        written = {"turn": turn, "route": [], **(self._begin() if is_run else {})}
        ChannelWrite.do_write(config, [ChannelWriteEntry(k, v) for k, v in written.items()])
        return _with_documents(input)  # an edit of a thread may hold them as JSON

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self.invoke(input, config)


def read_turn(given: Any, *, shared: bool = False) -> Turn:
    """The question of an input.

    The question is a human message at the end of ``messages``, else ``question``; both may be given
    if they are equal.

    Args:
        given: the input of one turn, or with ``shared`` the state of a parent graph. That may have
            other keys, and a ``question`` of an earlier turn, over which a message takes
            precedence.
        shared: whether ``given`` is a parent graph's state.

    Raises:
        NoQuestion: it has no question.
        BadInput: it has a key that no graph takes, a value of the wrong type, or two questions.
    """
    if not isinstance(given, Mapping):
        raise BadInput(f"the input is no dict but {type(given).__name__}: {ASK}")
    unknown = [] if shared else [key for key in given if key not in KEYS]
    if unknown:
        raise BadInput(f"the input has no {unknown[0]!r}: it takes {', '.join(KEYS)}")
    question = given.get("question")
    if question is not None and not isinstance(question, str):
        raise BadInput(f"question is no text but {type(question).__name__}: {ASK}")
    plain = (question or "").strip()
    messages = _messages(given.get("messages"))
    message = messages[-1] if messages and isinstance(messages[-1], HumanMessage) else None
    written = as_text(message.content).strip() if message else ""
    if message and written:
        if plain and plain != written and not shared:
            raise BadInput("question and the last message ask different things: give one of them")
        return Turn(question=written, by_message=True, message_id=message.id)
    if plain:
        return Turn(question=plain, by_message=False, message_id=None)
    if message or question is not None:
        raise NoQuestion(f"the question is empty: {ASK}")
    if messages:
        raise NoQuestion(f"the messages end with no human message: {ASK}")
    raise NoQuestion(f"nothing is asked: {ASK}")


def _messages(given: Any) -> Sequence[BaseMessage]:
    """The messages of an input after its RemoveMessages are applied."""
    replaces, messages = _get_overwrite(given)
    messages = messages if replaces else given
    if messages is None:
        return []
    try:
        read = convert_to_messages(messages if isinstance(messages, list) else [messages])
    except (NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"messages holds what is no message ({reason}): {ASK}") from error
    left: list[BaseMessage] = []
    for message in read:
        if not isinstance(message, RemoveMessage):
            left.append(message)
        elif message.id == REMOVE_ALL_MESSAGES:
            left.clear()
        else:
            left = [other for other in left if other.id != message.id]
    return left
