"""Middleware that annotates an agent's answer with what its tools cited."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.runtime import Runtime

from selfcorrect_rag.errors import require
from selfcorrect_rag.nodes.base.annotations import cited_message
from selfcorrect_rag.state.common import Citation

require("langchain", "agents")
from langchain.agents.middleware import AgentMiddleware, AgentState  # noqa: E402


class CitationMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Annotates what an agent says with the citations of the tools that it called.

    The tools are those of :func:`~selfcorrect_rag.as_tool`, called since the user's last message.
    Each ``[n]`` of the agent's text becomes an annotation, as in the graphs' own replies. A number
    of two different sources does not: it could be either.
    """

    def after_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Annotate the model's message, if it cites."""
        messages: Sequence[AnyMessage] = state["messages"]
        asked = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
        artifacts = [m.artifact for m in messages[asked:] if isinstance(m, ToolMessage)]
        told = {
            (citation["number"], citation["text"]): citation
            for artifact in artifacts
            if isinstance(artifact, Mapping) and "original_question" in artifact
            for citation in artifact["citations"]
        }
        uses = Counter(number for number, _ in told)
        return annotation(state, [each for each in told.values() if uses[each["number"]] == 1])


def annotation(state: AgentState[Any], citations: Sequence[Citation]) -> dict[str, Any] | None:
    """The update with the agent's last message, annotated; None where it cites none of these."""
    last = state["messages"][-1]
    cited = cited_message(last, citations) if isinstance(last, AIMessage) else last
    return None if cited is last else {"messages": [cited]}
