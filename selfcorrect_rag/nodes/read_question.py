"""read_question: take the turn's question and start with a clean slate."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from selfcorrect_rag.errors import NoQuestion
from selfcorrect_rag.nodes.base import Node, Update, plain_node
from selfcorrect_rag.turns import ASK


def read_question(blank: Callable[[], Update]) -> Node[Any]:
    """Take the question from the input of this turn; reset what an earlier turn left behind.

    ``blank`` gives the graph's state before anything has happened.
    """

    def run(state: Mapping[str, Any]) -> Update:
        turn = state.get("turn")
        if turn is None:  # as where a run is sent here past __start__
            raise NoQuestion(f"nothing is asked: {ASK}")
        documents = state.get("documents")
        found = {"fixed": documents is not None, "passages": documents or []}
        asked = {"question": turn["question"], "asked": turn["question"], "asked_by": None}
        if not turn["by_message"]:
            return {**blank(), **asked, "reply_id": f"answer-{uuid4()}", **found}
        # A message that came without an id was given one when it joined the others, at their end:
        # unless it was to overwrite them.
        last = state["messages"][-1].id if state["messages"] else None
        asked["asked_by"] = turn["message_id"] or last or ""
        return {**blank(), **asked, "reply_id": f"reply-to-{last or uuid4()}", **found}

    return plain_node(run)
