"""recompose_knowledge: combine internal and external knowledge, as the action requires."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT
from selfcorrect_rag.nodes.limits import is_ended
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Grade, Judged, Strip


def recompose_knowledge(settings: CRAGSettings | None = None) -> Node[Any]:
    """Combine the results of the branches (Algorithm 1, lines 3-12).

    Internal knowledge stands first. If nothing is left, the best retrieved document is used, and a
    note says so. A piece is irrelevant, and may not be cited, if the best score of its document and
    its kept strips is below the lower threshold; it is not judged if nothing scored it.
    """

    def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        # LangGraph also runs this deferred step for an earlier, abandoned turn of the thread.
        if not state["branches"] or is_ended(state):
            return {}
        notes = []
        if state["web_failure"]:
            notes.append(f"web search ({state['web_source']}): {state['web_failure']}")
        internal = recompose(state["strips"], state["passages"])
        external = recompose(state["web_strips"], state["web_results"])
        run.emit("knowledge", internal=len(internal), external=len(external))
        knowledge = [*internal, *external]
        lower = state["thresholds"].get("lower", IRRELEVANT)
        judged: list[Judged | None] = [
            None if score is None else "relevant" if score >= lower else "irrelevant"
            for score in (*internal_scores(state), *external_scores(state))
        ]
        if not knowledge and state["grades"]:
            best = max(state["grades"], key=lambda grade: grade["score"])
            knowledge, judged = [state["passages"][best["document"]]], ["irrelevant"]
            notes.append("no knowledge was left: written from the best document retrieved")
        elif not knowledge:
            notes.append("no knowledge was found: written without")
        return {"knowledge": knowledge, "judged": judged, "notes": notes}

    return Node("recompose_knowledge", step, CRAGSettings.of(settings))


def recompose(strips: Sequence[Strip], documents: Sequence[Document]) -> list[Document]:
    """Return knowledge: for each document with kept strips, these in the order of its text."""
    knowledge = []
    for index, document in enumerate(documents):
        texts = [s["text"] for s in strips if s["document"] == index and s["kept"]]
        if texts:
            metadata = dict(document.metadata)
            knowledge.append(Document(" ".join(texts), metadata=metadata, id=document.id))
    return knowledge


def internal_scores(state: Mapping[str, Any]) -> list[float | None]:
    """Return the best score, in [-1, 1], of each retrieved document with kept strips, its own or
    one of theirs; None if nothing scored it."""
    return _best_scores(state["passages"], state["strips"], state["grades"])


def external_scores(state: Mapping[str, Any]) -> list[float | None]:
    """Return the same of each page of the web with kept strips."""
    return _best_scores(state["web_results"], state["web_strips"], [])


def _best_scores(
    documents: Sequence[Document], strips: Sequence[Strip], grades: Sequence[Grade]
) -> list[float | None]:
    best = []
    for i in range(len(documents)):
        kept = [strip for strip in strips if strip["document"] == i and strip["kept"]]
        scores = [strip["score"] for strip in kept if strip["score"] is not None]
        scores += [grade["score"] for grade in grades if grade["document"] == i]
        best += [max(scores, default=None)] if kept else []
    return best
