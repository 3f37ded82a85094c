"""recompose_knowledge: combine internal and external knowledge, as the action requires."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.events import KnowledgeRecomposed
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT
from selfcorrect_rag.nodes.base.limits import is_ended
from selfcorrect_rag.nodes.base.node import Node, Update, current, emit
from selfcorrect_rag.nodes.base.strips import recompose
from selfcorrect_rag.settings import CRAGSettings, SelfCRAGSettings
from selfcorrect_rag.state.crag import Correction, CRAGState, Grade, Judged, Strip
from selfcorrect_rag.state.sources import source_of


def recompose_knowledge(settings: CRAGSettings | None = None) -> Node:
    """Combine the results of the branches (Algorithm 1, lines 3-12).

    Correct has internal knowledge, Incorrect external, Ambiguous both, the internal first. Where
    that leaves nothing, the retrieved documents are used after all, best first, and a note says so.
    Each piece keeps the evaluator's judgement, which decides whether it may be cited.
    """
    settings = CRAGSettings.of_step(settings)

    def run(state: CRAGState) -> Update:
        if state.get("branches") == []:
            # LangGraph runs this step for an earlier turn of the thread that failed or was
            # abandoned.
            return {}
        if is_ended(state):  # a fault has ended the run
            return {}
        notes = [*state["notes"], *state["web_notes"]]
        searched = "web_search" in state["costs"] and "select_web_strips" not in state["costs"]
        if state["web_results"] and searched:
            # The parallel branch failed, so LangGraph cancelled this one after its search and
            # before its strips were selected; a resumed thread does not search again.
            state = {**state, "web_strips": _whole(state["web_results"])}
            notes.append("the pages of the web were taken whole: the search was broken off")
        internal = recompose(state["strips"], state["passages"])
        external = recompose(state["web_strips"], state["web_results"])
        if state["web_failure"]:
            notes.append(f"web search ({state['web_source']}): {state['web_failure']}")
        knowledge, judged = [*internal, *external], _judged(state)
        if not knowledge and state["grades"]:
            best = max(state["grades"], key=lambda grade: grade["score"])
            knowledge, judged = [state["passages"][best["document"]]], ["irrelevant"]
            notes.append("no knowledge was left: written from the best document retrieved")
        elif not knowledge:
            notes.append("no knowledge was found: written without")
        emit(KnowledgeRecomposed(event="knowledge", internal=len(internal), external=len(external)))
        chosen = current(settings)
        if isinstance(chosen, SelfCRAGSettings) and chosen.contexts == "all":
            at = len(internal)
            parts = {
                "internal": (internal, judged[:at]),
                "external": (external, judged[at:]),
                "combined": ([*internal, *external], judged),
            }
            some = {kind: part for kind, part in parts.items() if part[0]}
            if some:
                knowledge = [_joined(kind, found) for kind, (found, _) in some.items()]
                judged = [_best(of) for _, of in some.values()]
        return {"knowledge": knowledge, "judged": judged, "notes": notes}

    return Node("recompose_knowledge", run)


def _whole(documents: Sequence[Document]) -> list[Strip]:
    return [
        Strip(document=i, text=document.page_content, score=None, kept=True)
        for i, document in enumerate(documents)
    ]


def _judged(state: CRAGState) -> list[Judged | None]:
    """The judgement of each document with kept strips, internal ones first.

    A piece is irrelevant where the best score of its document and its kept strips is below the
    lower threshold.
    """
    lower = state["thresholds"].get("lower", IRRELEVANT)
    scores = [*internal_scores(state), *external_scores(state)]
    return [None if s is None else "relevant" if s >= lower else "irrelevant" for s in scores]


def internal_scores(state: Correction) -> list[float | None]:
    """The best score of each retrieved document with kept strips: its own, or one of theirs.

    In [-1, 1]; None where nothing scored it.
    """
    return _best_scores(state["passages"], state["strips"], state["grades"])


def external_scores(state: Correction) -> list[float | None]:
    """The same of each page of the web with kept strips."""
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


def _best(judged: Sequence[Judged | None]) -> Judged | None:
    """The best judgement among pieces that are merged into one."""
    if "relevant" in judged:
        return "relevant"
    return None if None in judged else "irrelevant"


def _joined(kind: str, found: Sequence[Document]) -> Document:
    """Several pieces merged into one passage, with the first one's title and all their sources."""
    sources = ", ".join(dict.fromkeys(filter(None, map(source_of, found))))
    return Document(
        " ".join(document.page_content for document in found),
        metadata={"title": found[0].metadata.get("title") or "", "source": sources},
        id=f"{kind} knowledge",
    )
