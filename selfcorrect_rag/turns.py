"""What a turn asks: its own input, apart from what its thread holds.

A node sees a thread's state with the input merged into it. An unanswered message of an abandoned
turn, or the question of the last one, would then pass for what is asked now. So ``__start__``,
which has the input as it came, writes down what it asks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph._internal._constants import NS_SEP
from langgraph.channels.binop import _get_overwrite
from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph as Compiled
from langgraph.graph.state import StateGraph
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.typing import ContextT, InputT, OutputT, StateT

from selfcorrect_rag.errors import BadInput, NoQuestion
from selfcorrect_rag.prompts import as_text
from selfcorrect_rag.state import Input, Turn

KEYS = tuple(Input.__annotations__)
ASK = 'give {"question": "..."}, or messages that end with a human message'


class TurnGraph(StateGraph[StateT, ContextT, InputT, OutputT]):
    """A graph whose ``__start__`` writes ``turn`` too, and refuses an input that asks nothing.

    What is refused does not enter the thread.
    """

    def compile(self, *args: Any, **kwargs: Any) -> Compiled[StateT, ContextT, InputT, OutputT]:
        compiled = super().compile(*args, **kwargs)
        compiled.nodes[START].writers.insert(0, _WriteTurn())
        return compiled


class _WriteTurn(Runnable[Any, Any]):
    """The first that ``__start__`` does with the input of a turn: before it writes any of it."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        config = config or {}
        # A graph inside another is handed the whole state of its parent.
        nested = NS_SEP in config["configurable"].get("checkpoint_ns", "")
        turn = read_turn(input, shared=nested)
        ChannelWrite.do_write(config, [ChannelWriteEntry("turn", turn)])
        return input

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self.invoke(input, config)


def read_turn(given: Mapping[str, Any], *, shared: bool = False) -> Turn:
    """What an input asks.

    A human message at the end of ``messages`` is the question, else ``question`` is; both may be
    given where they say the same.

    Args:
        given: the input of one turn, or with ``shared`` the state of a parent graph. That may have
            keys of its own, and a ``question`` of an earlier turn, which a message goes before.
        shared: whether it is a parent's.

    Raises:
        NoQuestion: it asks nothing.
        BadInput: it has a key that no graph takes, a value of the wrong type, or two questions.
    """
    unknown = [] if shared else [key for key in given if key not in KEYS]
    if unknown:
        raise BadInput(f"the input has no {unknown[0]!r}: it takes {', '.join(KEYS)}")
    question = given.get("question")
    if question is not None and not isinstance(question, str):
        raise BadInput(f"question is no text but {type(question).__name__}: {ASK}")
    asked = (question or "").strip()
    messages = _messages(given.get("messages"))
    message = messages[-1] if messages and isinstance(messages[-1], HumanMessage) else None
    said = as_text(message.content).strip() if message else ""
    if message and said:
        if asked and asked != said and not shared:
            raise BadInput("question and the last message ask different things: give one of them")
        return Turn(question=said, by_message=True, message_id=message.id)
    if asked:
        return Turn(question=asked, by_message=False, message_id=None)
    if message or question is not None:
        raise NoQuestion(f"the question is empty: {ASK}")
    if messages:
        raise NoQuestion(f"the messages end with no human message: {ASK}")
    raise NoQuestion(f"nothing is asked: {ASK}")


def _messages(given: Any) -> Sequence[BaseMessage]:
    """The messages of an input, but for those that only delete others."""
    replaces, messages = _get_overwrite(given)
    messages = messages if replaces else given
    if messages is None:
        return []
    try:
        read = convert_to_messages(messages if isinstance(messages, list | tuple) else [messages])
    except (NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"messages holds what is no message ({reason}): {ASK}") from error
    return [message for message in read if not isinstance(message, RemoveMessage)]
