"""recompose_knowledge: internal and external knowledge, as the action asks for."""

from selfcorrect_rag.nodes.base import Node, Update, emit, plain_node
from selfcorrect_rag.state import CRAGState
from selfcorrect_rag.strips import recompose


def recompose_knowledge() -> Node[CRAGState]:
    """Put together what the branches found (Algorithm 1, lines 3-12).

    Correct has internal knowledge, Incorrect external, Ambiguous both, the internal first. Where
    that leaves nothing, what was retrieved is used after all rather than nothing, best document
    first, and a note says so.
    """

    def run(state: CRAGState) -> Update:
        internal = recompose(state["strips"], state["passages"])
        external = recompose(state["web_strips"], state["web_results"])
        notes = list(state["notes"])
        if state["web_failure"]:
            notes.append(f"web search ({state['web_source']}): {state['web_failure']}")
        knowledge = [*internal, *external]
        if not knowledge and state["grades"]:
            best = max(state["grades"], key=lambda grade: grade["score"])
            knowledge = [state["passages"][best["document"]]]
            notes.append("no knowledge was left: written from the best document retrieved")
        elif not knowledge:
            notes.append("no knowledge was found: written without")
        emit("knowledge", internal=len(internal), external=len(external))
        return {"knowledge": knowledge, "notes": notes}

    return plain_node(run)
