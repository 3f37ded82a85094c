"""CRAG's correction as a LangChain retriever."""

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, patch_config
from langgraph.graph import END, START, StateGraph
from pydantic import PrivateAttr

from selfcorrect_rag.agents.tool import Graph, run_inside
from selfcorrect_rag.crag import add_correction
from selfcorrect_rag.models.from_name import Evaluator
from selfcorrect_rag.nodes.node import add_node
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.refine_strips import StripFilter, strip_scores
from selfcorrect_rag.nodes.rewrite_query import Rewriter
from selfcorrect_rag.search.retriever import Retriever, run_filter
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import CRAGOutput, CRAGState, Input


class CorrectiveRetriever(BaseRetriever):
    """Retrieves, and corrects what was retrieved (CRAG, Algorithm 1 without its generator).

    It runs the nodes of :func:`~selfcorrect_rag.crag.create_crag` up to ``recompose_knowledge``. A
    Document is what was kept of one document or page, those of the retriever first, with
    ``relevance_score`` (its best score, in [-1, 1]; None if nothing scored it), ``action`` (None if
    a limit left no call for grading) and ``knowledge`` (``internal`` or ``external``) in its
    metadata. A retriever or a search that fails finds nothing.
    """

    _graph: Graph = PrivateAttr()

    def __init__(
        self,
        retriever: Retriever,
        evaluator: Evaluator,
        web_search: Web = None,
        *,
        rewriter: Rewriter | None = None,
        strip_filter: StripFilter | None = None,
        reranker: BaseDocumentCompressor | None = None,
        settings: CRAGSettings | Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Correct ``retriever``: arguments are those of :func:`~selfcorrect_rag.crag.create_crag`;
        ``fields`` are those of LangChain's ``BaseRetriever``, such as ``tags``."""
        super().__init__(**fields)
        chosen = CRAGSettings.of(settings)
        graph = StateGraph(CRAGState, CRAGSettings, input_schema=Input, output_schema=CRAGOutput)
        add_node(graph, read_question(chosen))
        graph.add_edge(START, "read_question")
        graph.add_edge("read_question", "retrieve")
        parts: Any = {"rewriter": rewriter, "strip_filter": strip_filter, "reranker": reranker}
        add_correction(graph, retriever, evaluator, web_search, chosen, **parts)
        graph.add_edge("recompose_knowledge", END)
        self._graph = run_inside(graph.compile(name="correction"))

    def invoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> list[Document]:
        return super().invoke(input, config, run=_within_filter(config))

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **_: Any
    ) -> list[Document]:
        return await super().ainvoke(input, config, run=_within_filter(config))

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, run: RunnableConfig | None = None
    ) -> list[Document]:
        within = patch_config(run, callbacks=run_manager.get_child())
        return _documents(self._graph.invoke({"question": query}, within, context={}))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, run: RunnableConfig | None = None
    ) -> list[Document]:
        within = patch_config(run, callbacks=run_manager.get_child())
        return _documents(await self._graph.ainvoke({"question": query}, within, context={}))


def _within_filter(config: RunnableConfig | None) -> RunnableConfig:
    """Return the run's config, with the filter of the graph that the retriever is called in."""
    run = ensure_config(config)
    wanted = run_filter(run)
    return run if wanted is None else patch_config(run, configurable={"filter": wanted})


def _documents(result: Mapping[str, Any]) -> list[Document]:
    """Return what was kept, without what was judged irrelevant."""
    internal, external = strip_scores(result)
    scored = [*(("internal", s) for s in internal), *(("external", s) for s in external)]
    if not scored:  # the knowledge, if any, is the best of what was dropped
        return []
    found = []
    pieces = zip(result["knowledge"], result["judged"], scored, strict=True)
    for piece, judged, (kind, score) in pieces:
        if judged != "irrelevant":
            added = {"relevance_score": score, "action": result["action"], "knowledge": kind}
            found.append(piece.model_copy(update={"metadata": {**piece.metadata, **added}}))
    return found
