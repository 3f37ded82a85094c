"""rewrite_follow_up: rewrite a question that refers to the conversation as a standalone one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import Fault, ModelFailed, wrap_errors
from selfcorrect_rag.events import FollowUpRewritten
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import ask
from selfcorrect_rag.nodes.base.node import Node, Update, Work, emit
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.base.usage import quiet
from selfcorrect_rag.prompts.follow_up import follow_up_prompt
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings

FollowUpRule = Callable[[Sequence[tuple[str, str]], str], str]
"""A function from the conversation before a question, oldest first (``"user"`` or ``"assistant"``,
and what they said), and that question, to one that stands alone: the same where it does already.
:func:`~selfcorrect_rag.follow_up.standalone_question` is one for English."""
FollowUp = Model | FollowUpRule
"""What rewrites follow-up questions: a model or its name, or a rule."""

RECENT = 10
"""Latest messages of the conversation that the model reads."""
LONGEST_SAID = 4000
"""Characters of each that it reads."""
LONGEST = 1000
"""Characters of a question; a model that writes more has answered, not rewritten."""


def rewrite_follow_up(follow_up: FollowUp | None, settings: Settings | None = None) -> Node:
    """Rewrite the question from the history, by a rule or one call of a model; not on a first turn.

    ``question`` becomes the standalone question, which is used for retrieval and answered;
    ``original_question`` keeps the user's own words. Where the model or the rule fails or its
    output is unusable, the question stays unchanged and a note says so.

    Raises:
        BadArgument: ``follow_up`` is neither a model nor a function of two arguments.
    """
    settings = settings or Settings()
    rule = _rule(follow_up)
    model = None
    if follow_up is not None and rule is None:
        model = as_language_model(follow_up, "follow_up")

    def run(state: Mapping[str, Any]) -> Work:
        earlier = _earlier(state)
        if not earlier:
            return {}
        if rule is not None:
            return _by_rule(state, rule, earlier)
        if model is None:
            return {}
        prompt = follow_up_prompt(earlier[-RECENT:], _original(state))
        return _written(state, (yield from ask(model, prompt, quiet())))

    return Node("rewrite_follow_up", run, settings, _failed)


def _rule(given: FollowUp | None) -> FollowUpRule | None:
    """What is given, where it is a function of two arguments."""
    if isinstance(given, str | Runnable) or not callable(given):
        return None
    try:
        inspect.signature(given).bind((), "")
    except (TypeError, ValueError):
        return None
    return given


def _by_rule(
    state: Mapping[str, Any], rule: FollowUpRule, earlier: Sequence[tuple[str, str]]
) -> Update:
    question = _original(state)
    with wrap_errors(ModelFailed, "the rule"):
        written = rule(earlier, question)
    # A question that it leaves stays as it is, even with spaces and line ends of its own.
    return {} if written == question else _written(state, written, "rule")


def _original(state: Mapping[str, Any]) -> str:
    question: str = state.get("original_question") or state["question"]
    return question


def _earlier(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(Speaker, text) of each message before this turn, without tool and empty messages."""
    messages: Sequence[BaseMessage] = convert_to_messages(state.get("messages") or [])
    if "human_message_id" not in state and messages and isinstance(messages[-1], HumanMessage):
        messages = messages[:-1]  # in other graphs: ours record which message asks
    ids = [message.id or "" for message in messages]
    if state.get("human_message_id") in ids:
        messages = messages[: ids.index(state["human_message_id"])]
    said = [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
    ]
    return [(who, text[:LONGEST_SAID]) for who, text in said if text.strip()]


def _written(state: Mapping[str, Any], text: str, who: str = "model") -> Update:
    question = " ".join(text.split()).strip("\"'“”") if isinstance(text, str) else ""
    if not question or len(question) > LONGEST:
        return _kept(state, f"the {who} rewrote the follow-up question to nothing of use")
    emit(
        FollowUpRewritten(
            event="follow_up_rewritten",
            original_question=_original(state),
            question=question,
        )
    )
    return {"question": question}


def _failed(state: Mapping[str, Any], fault: Fault) -> Update:
    return _kept(state, f"rewriting the follow-up question failed: {fault.reason}")


def _kept(state: Mapping[str, Any], reason: str) -> Update:
    return {"notes": [*state["notes"], f"{reason}; it was answered as it is"]}


def add_follow_up(
    graph: TurnGraph[Any, Any, Any, Any], follow_up: FollowUp | None, settings: Settings
) -> str:
    """Add ``rewrite_follow_up`` after ``read_question`` where there is a model, a rule or a custom
    node for it.

    Returns:
        The name of the node after which the question is final.
    """
    if follow_up is None and not graph.replaces("rewrite_follow_up"):
        return "read_question"
    graph.add_step("rewrite_follow_up", rewrite_follow_up(follow_up, settings))
    graph.add_edge("read_question", "rewrite_follow_up")
    return "rewrite_follow_up"
