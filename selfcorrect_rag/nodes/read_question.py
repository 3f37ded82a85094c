"""read_question: read the turn's question, settings and documents, and reset the state."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from langchain_core.messages import HumanMessage, convert_to_messages
from langgraph.types import Overwrite

from selfcorrect_rag.errors import BadSettings, NoQuestion
from selfcorrect_rag.intake import Admitted, admit, admit_question, as_documents
from selfcorrect_rag.nodes.node import ASK, Node, Run, Update
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import blank_state


def read_question(settings: Settings, first: Callable[[Any], Update] = lambda _: {}) -> Node[Any]:
    """Begin a turn with the question of this turn's input, and fix its settings.

    The question is ``question``, else the last message if a human wrote it. Texts longer than the
    settings allow are cut, and notes say so. ``first`` gives further keys for the turn's settings.

    Raises:
        NoQuestion: at a run whose input asks nothing.
        NoDocument: at a run with documents that are something else.
        BadSettings: at a run with settings in ``configurable``, or of another graph.
    """

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        _refuse_configurable(run)
        question, message = _read_turn(state)
        question, notes = admit_question(question, run.settings.question_characters)
        given = state.get("documents")
        passages = Admitted([], [])
        if given is not None:
            documents, most = as_documents(given), run.settings.given_documents
            if len(documents) > most:
                notes.append(f"the first {most} of {len(documents)} given documents were taken")
            passages = await run.compute(
                admit,
                documents[:most],
                run.settings.document_characters,
                "given documents",
                characters=sum(len(document.page_content) for document in documents[:most]),
            )
        return {
            **blank_state(),
            "candidates": Overwrite([]),
            "settings": run.settings.set_fields(),
            "original_question": question,
            "standalone_question": question,
            "fixed": given is not None,
            "passages": passages.documents,
            "notes": Overwrite([*notes, *passages.notes]),
            "human_message_id": None if message is None else message.id or "",
            "reply_id": f"answer-{uuid4()}" if message is None else f"reply-to-{message.id}",
            **first(run.settings),
        }

    return Node("read_question", step, settings, begins_turn=True)


def _read_turn(state: Mapping[str, Any]) -> tuple[str, HumanMessage | None]:
    """Return the question of an input, and the message that asks it, if one does."""
    question = state.get("question")
    if not isinstance(question, str | None):
        raise NoQuestion(f"question must be text, got {type(question).__name__}: {ASK}")
    given: Any = state.get("messages") or []
    try:
        last = convert_to_messages(given[-1:])[-1] if given else None
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


def _refuse_configurable(run: Run[Any]) -> None:
    """Refuse settings in ``configurable``, where a graph would ignore them.

    A LangGraph server copies the context there; values that the context gives too are fine.
    """
    given = run.config.get("configurable") or {}
    for name in given.keys() & type(run.settings).model_fields.keys():
        if given[name] != getattr(run.settings, name):
            reason = f'a setting is given as context={{"{name}": ...}}, not in configurable'
            raise BadSettings(reason, name)
