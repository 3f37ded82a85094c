"""recompose_knowledge: internal and external knowledge, as the action asks for."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.crag_state import CRAGState
from selfcorrect_rag.events import KnowledgeRecomposed
from selfcorrect_rag.nodes.base import Node, Update, current, emit, plain_node
from selfcorrect_rag.settings import CRAGSettings, SelfCRAGSettings
from selfcorrect_rag.strips import recompose


def recompose_knowledge(settings: CRAGSettings) -> Node[CRAGState]:
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
        emit(KnowledgeRecomposed(event="knowledge", internal=len(internal), external=len(external)))
        chosen = current(settings)
        if isinstance(chosen, SelfCRAGSettings) and chosen.contexts == "all":
            parts = {"internal": internal, "external": external, "combined": [*internal, *external]}
            joined = [_joined(kind, found) for kind, found in parts.items() if found]
            knowledge = joined or knowledge
        return {"knowledge": knowledge, "notes": notes}

    return plain_node(run)


def _joined(kind: str, found: Sequence[Document]) -> Document:
    """One passage of several pieces, under the title of the first."""
    sources = ", ".join(
        str(d.metadata.get("source") or d.metadata.get("title") or "") for d in found
    )
    return Document(
        " ".join(document.page_content for document in found),
        metadata={"title": found[0].metadata.get("title") or "", "source": sources},
        id=f"{kind} knowledge",
    )
