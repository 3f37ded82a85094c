"""The text that a model wrote, from the step that asked it to the one that answers with it."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from selfcorrect_rag.nodes.node import Run, Update


def written(state: Mapping[str, Any], run: Run[Any], text: str) -> Update:
    """Return the update with a model's text and the message that streamed it, if any."""
    streamed = None
    if run.message is not None and run.message.id:  # else nothing streamed it
        name = run.message.response_metadata.get("model_name")
        turn = state["route"][0]["turn"] if state["route"] else ""
        streamed = {"turn": turn, "id": run.message.id, "model_name": name}
    return {"written": text, "streamed": streamed}


def continue_message(state: Mapping[str, Any], run: Run[Any]) -> None:
    """Let the run's reply continue the message that streamed the text in this turn.

    A text from the cache was streamed in another turn, as another message.
    """
    streamed, route = state.get("streamed"), state["route"]
    if streamed and streamed["turn"] == (route[0]["turn"] if route else ""):
        name = streamed["model_name"]
        metadata = {"model_name": name} if name else {}
        run.message = AIMessage("", id=streamed["id"], response_metadata=metadata)
