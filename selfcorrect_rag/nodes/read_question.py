"""read_question and rewrite_follow_up: begin a turn with its question, settings and documents."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages
from langgraph.types import Overwrite

from selfcorrect_rag.errors import BadSettings, Fault, NoQuestion
from selfcorrect_rag.intake import admit_question, as_documents
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.node import ASK, Node, Run, Update, ask
from selfcorrect_rag.prompts.chat import follow_up_prompt
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import blank_state

RECENT, MAX_MESSAGE = 10, 4_000
"""A follow-up is rewritten from the last messages, and so many characters of each."""
MAX_QUESTION = 1_000
"""Characters of a rewritten question; a model that writes more has answered, not rewritten."""


def read_question(settings: Settings, first: Callable[[Any], Update] = lambda _: {}) -> Node[Any]:
    """Begin a turn with the question of this turn's input, and fix its settings.

    The question is ``question``, else the last message if a human wrote it. Texts longer than the
    settings allow are cut, and notes say so. ``first`` gives further keys for the turn's settings.
    """

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        chosen, configurable = run.settings, run.config.get("configurable") or {}
        for name in configurable.keys() & type(chosen).model_fields.keys():
            copied = chosen.merged({name: configurable[name]})  # by a server, from the context
            if getattr(copied, name) != getattr(chosen, name):
                reason = f'a setting is given as context={{"{name}": ...}}, not in configurable'
                raise BadSettings(reason, name)
        question, message = _read_turn(state)
        question, notes = admit_question(question, chosen.question_characters)
        given, passages = state.get("documents"), list[Document]()
        if given is not None:
            documents, most = as_documents(given), chosen.given_documents
            if len(documents) > most:
                notes.append(f"the first {most} of {len(documents)} given documents were taken")
            passages, admitted = await run.admit(documents[:most], "given documents")
            notes += admitted
        return {
            **blank_state(),
            "candidates": Overwrite([]),
            "settings": {name: value for name, value in chosen if name in chosen.model_fields_set},
            "original_question": question,
            "standalone_question": question,
            "fixed": given is not None,
            "passages": passages,
            "notes": Overwrite(notes),
            "human_message_id": None if message is None else message.id or "",
            **first(chosen),
        }

    return Node("read_question", step, settings, begins_turn=True)


def _read_turn(state: Mapping[str, Any]) -> tuple[str, HumanMessage | None]:
    """Return the question of an input, and the message that asks it, if one does."""
    question = state.get("question")
    if not isinstance(question, str | None):
        raise NoQuestion(f"question must be text, got {type(question).__name__}: {ASK}")
    given: Any = state.get("messages") or []
    try:
        last = convert_to_messages([given[-1]])[0] if given else None
    except (NotImplementedError, ValueError, TypeError) as error:
        raise NoQuestion(
            f"messages must hold messages, got {type(given).__name__}: {ASK}"
        ) from error
    message = last if isinstance(last, HumanMessage) else None
    written = as_text(message.content).strip() if message else ""
    asked = (question or "").strip() or written
    if not asked:
        missing = "the messages end with no human message"
        raise NoQuestion(f"{missing if last and not message else 'the question is empty'}: {ASK}")
    return asked, message if asked == written else None


def rewrite_follow_up(follow_up: Model, settings: Settings | None = None) -> Node[Any]:
    """Rewrite a question that refers to the conversation as a standalone one, by one model call;
    not on a first turn.

    ``original_question`` keeps the user's own words. If the model fails or its output is unusable,
    the original question is answered and a note says so.
    """
    model = as_language_model(follow_up, "follow_up")

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        earlier = _earlier(state)
        if not earlier:
            return {}
        original = state.get("original_question") or state["question"]
        text = await ask(run, model, follow_up_prompt(earlier[-RECENT:], original))
        question = " ".join(text.split()).strip("\"'“”")
        if not question or len(question) > MAX_QUESTION:
            return _unchanged("the model's rewrite of the follow-up question was empty or too long")
        run.emit("follow_up_rewritten", original_question=original, question=question)
        return {"standalone_question": question, "question": question}

    def failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
        return _unchanged(f"rewriting the follow-up question failed: {fault.reason}")

    return Node("rewrite_follow_up", step, settings or Settings(), failed)


def _unchanged(why: str) -> Update:
    return {"notes": [f"{why}; answered the original question"]}


def _earlier(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(Speaker, text) of each message before this turn, without tool and empty messages."""
    messages = convert_to_messages(state.get("messages") or [])
    if "human_message_id" not in state and messages and isinstance(messages[-1], HumanMessage):
        messages = messages[:-1]  # in other graphs: ours record which message asks
    asked = state.get("human_message_id")
    places = [i for i, message in enumerate(messages) if (message.id or "") == asked]
    messages = messages[: max(places, default=None)]
    said = [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
    ]
    return [(who, text[:MAX_MESSAGE]) for who, text in said if text.strip()]
