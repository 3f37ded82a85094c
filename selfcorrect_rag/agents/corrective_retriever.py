"""CRAG's correction as a LangChain retriever."""

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from pydantic import PrivateAttr

from selfcorrect_rag.agents.tool import inside
from selfcorrect_rag.crag import add_correction
from selfcorrect_rag.models.from_name import Evaluator
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.recompose_knowledge import external_scores, internal_scores
from selfcorrect_rag.nodes.refine_strips import Decompose, StripFilter
from selfcorrect_rag.nodes.rewrite_query import Rewriter
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.settings import CRAGContext, CRAGSettings
from selfcorrect_rag.state.crag import CRAGInput, CRAGOutput, CRAGState, blank_crag


class CorrectiveRetriever(BaseRetriever):
    """Retrieves, and corrects what was retrieved (CRAG, Algorithm 1 without its generator).

    It runs the nodes of :func:`~selfcorrect_rag.crag.create_crag` up to ``recompose_knowledge``,
    with their costs: two batches of the evaluator, and one search where the action asks for it. A
    Document is what was kept of one document or page, those of the retriever first. Its metadata
    are the source's own, and

    - ``relevance_score``: its best score, of the document or of a kept strip, in [-1, 1]; None
      where nothing scored it,
    - ``action``: correct, incorrect or ambiguous; None where a limit left no call for grading,
    - ``knowledge``: ``internal`` for the retriever's, ``external`` for the web's.

    What the evaluator judged irrelevant is left out, so the list may be empty.

    Raises:
        Fault: at a call, where the evaluator fails. A retriever or a search that fails finds
            nothing.
        NoCheckpointer: at a call, with ``approve_search`` outside of a graph with a checkpointer.
    """

    _graph: CompiledStateGraph[Any, Any, Any, Any] = PrivateAttr()

    def __init__(
        self,
        retriever: Retriever,
        evaluator: Evaluator,
        web_search: Web = None,
        *,
        rewriter: Rewriter | None = None,
        decompose: Decompose | None = None,
        strip_filter: StripFilter | None = None,
        settings: CRAGSettings | CRAGContext | None = None,
        **fields: Any,
    ) -> None:
        """Correct ``retriever``.

        Arguments are those of :func:`~selfcorrect_rag.crag.create_crag`; ``fields`` are those of
        LangChain's ``BaseRetriever``, such as ``tags``.

        Raises:
            BadArgument: an argument is of the wrong kind.
            BadSettings: ``settings`` are another graph's.
        """
        super().__init__(**fields)
        chosen = CRAGSettings.of(settings)
        graph: TurnGraph[CRAGState, Any, CRAGInput, CRAGOutput] = TurnGraph(
            CRAGState, chosen, CRAGInput, CRAGOutput
        )
        graph.add_step("read_question", read_question(blank_crag, chosen))
        strips = {"decompose": decompose, "strip_filter": strip_filter}
        add_correction(graph, retriever, evaluator, web_search, rewriter, chosen, strips)
        graph.add_edge(START, "read_question")
        graph.add_edge("read_question", "retrieve")
        graph.add_edge("recompose_knowledge", END)
        self._graph = inside(graph.compile(name="correction"))

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        within: Any = {"callbacks": run_manager.get_child()}
        return _documents(self._graph.invoke({"question": query}, within, context={}))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        within: Any = {"callbacks": run_manager.get_child()}
        return _documents(await self._graph.ainvoke({"question": query}, within, context={}))


def _documents(result: Mapping[str, Any]) -> list[Document]:
    """What was kept, without what was judged irrelevant."""
    correction: Any = result
    kinds = {"internal": internal_scores(correction), "external": external_scores(correction)}
    scored = [(kind, score) for kind, scores in kinds.items() for score in scores]
    if not scored:  # the knowledge, if any, is the best of what was dropped
        return []
    return [
        Document(
            piece.page_content,
            metadata={
                **piece.metadata,
                "relevance_score": score,
                "action": result["action"],
                "knowledge": kind,
            },
            id=piece.id,
        )
        for piece, judged, (kind, score) in zip(
            result["knowledge"], result["judged"], scored, strict=True
        )
        if judged != "irrelevant"
    ]
