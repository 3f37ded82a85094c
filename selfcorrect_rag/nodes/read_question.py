"""read_question: read the turn's question and reset the state."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from selfcorrect_rag.errors import NoQuestion
from selfcorrect_rag.nodes.base.node import Node, Update, current
from selfcorrect_rag.nodes.base.turns import ASK, read_turn
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.documents import as_documents
from selfcorrect_rag.state.intake import admit, admit_question


def read_question(blank: Callable[[], Update] = dict, settings: Settings | None = None) -> Node:
    """Take the question from the input of this turn; reset what an earlier turn left behind.

    Texts longer than the settings allow are cut, and notes say so.

    Args:
        blank: returns the graph's initial state.
        settings: the factory's.
    """

    settings = settings or Settings()

    def run(state: Mapping[str, Any]) -> Update:
        turn = state.get("turn")
        if turn is None and "original_question" not in state:  # no turn of ours has begun
            turn = read_turn(state, shared=True)
        if turn is None:  # a Command jumped here, past __start__
            raise NoQuestion(f"nothing is asked: {ASK}")
        chosen = current(settings)
        question, notes = admit_question(turn["question"], chosen.question_characters)
        given, most = state.get("documents"), chosen.given_documents
        given = given if given is None else as_documents(given)
        if given and len(given) > most:
            notes.append(f"the first {most} of {len(given)} given documents were taken")
        passages = admit((given or [])[:most], chosen.document_characters, "given documents")
        found = {
            "fixed": given is not None,
            "passages": passages.documents,
            "notes": [*notes, *passages.notes],
        }
        read: Update = {**blank(), "question": question, "original_question": question, **found}
        if not turn["by_message"]:
            return {**read, "human_message_id": None, "reply_id": f"answer-{uuid4()}"}
        # add_messages gave a message without an id one, and appended it unless it overwrites the
        # others.
        last = state["messages"][-1].id if state.get("messages") else None
        human = turn["message_id"] or last or ""
        return {**read, "human_message_id": human, "reply_id": f"reply-to-{last or uuid4()}"}

    return Node("read_question", run)
