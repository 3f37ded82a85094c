"""CRAG (Algorithm 1) as a graph.

read_question -> retrieve -> grade_documents, then by action: Correct refines what was retrieved,
Incorrect rewrites the question and searches the web, Ambiguous does both side by side; then
recompose_knowledge -> generate.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import Runnable
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.nodes.base.cached import cached
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.recompose_knowledge import recompose_knowledge
from selfcorrect_rag.nodes.refine_strips import refine_strips, select_web_strips
from selfcorrect_rag.nodes.retrieve_documents import retrieve_documents
from selfcorrect_rag.nodes.rewrite_follow_up import add_follow_up
from selfcorrect_rag.nodes.rewrite_query import rewrite_query
from selfcorrect_rag.nodes.web_search import after_search, approval
from selfcorrect_rag.nodes.web_search import web_search as search_the_web
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.search.web_search import WebSearch
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.crag import CRAGInput, CRAGOutput, CRAGState, blank_crag

CRAG = CompiledStateGraph[CRAGState, CRAGSettings, CRAGInput, CRAGOutput]


def create_crag(
    llm: Runnable[Any, Any],
    retriever: Retriever,
    evaluator: RetrievalEvaluator,
    web_search: WebSearch,
    *,
    rewriter: Runnable[Any, Any] | None = None,
    follow_up: Runnable[Any, Any] | None = None,
    settings: CRAGSettings | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "crag",
) -> CRAG:
    """Build the CRAG graph.

    Args:
        llm: any LangChain LLM or chat model, which writes the answer.
        retriever: any LangChain retriever, or a function from a query to documents; see
            :data:`~selfcorrect_rag.search.retriever.Retriever`.
        evaluator: what grades documents and strips, such as
            :class:`~selfcorrect_rag.models.T5Evaluator`.
        web_search: such as :class:`~selfcorrect_rag.search.TavilyWebSearch`, or a retriever that
            plays the web, :class:`~selfcorrect_rag.search.RetrieverWebSearch`.
        rewriter: a model that rewrites questions into search queries; by rule where None.
        follow_up: a chat model that rewrites questions of later turns to stand alone, from the
            ``messages`` before them; None answers each as it is.
        settings: defaults for every run; ``context=`` overrides them knob by knob.
        checkpointer: where threads are kept; ``approve_search`` needs one.
        cache: where nodes that ask a model keep their results
            (:func:`~selfcorrect_rag.nodes.base.cached.cached`); None keeps none.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.
    """
    settings = CRAGSettings.of(settings)
    graph = TurnGraph(
        CRAGState,
        context_schema=CRAGSettings,
        input_schema=CRAGInput,
        output_schema=CRAGOutput,
    )
    graph.begin = lambda: approval(settings)
    graph.add_node("read_question", read_question(blank_crag, settings))
    asked = add_follow_up(graph, follow_up, settings)
    add_correction(graph, retriever, evaluator, web_search, rewriter, settings, cache)
    graph.add_node("generate", cached(generate(llm, settings), cache, llm, settings))
    graph.add_edge(START, "read_question")
    graph.add_edge(asked, "retrieve")
    graph.add_edge("recompose_knowledge", "generate")
    graph.add_edge("generate", END)
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
    )


def add_correction(
    graph: StateGraph[Any, Any, Any, Any],
    retriever: Retriever,
    evaluator: RetrievalEvaluator,
    web: WebSearch,
    rewriter: Runnable[Any, Any] | None,
    settings: CRAGSettings,
    cache: BaseCache[Any] | None,
    ends: Sequence[str] = (),
) -> None:
    """The nodes from a question to knowledge, which CRAG and Self-CRAG share.

    They begin at ``retrieve`` and end at ``recompose_knowledge``. ``ends`` is ``write_answer``
    where an answer may have been begun by then, which a fault of the evaluator cuts short.
    """
    graph.add_node("retrieve", retrieve_documents(AnyRetriever(retriever), settings))
    for name, step in (
        ("grade_documents", grade_documents(evaluator, settings)),
        ("refine_strips", refine_strips(evaluator, settings)),
        ("select_web_strips", select_web_strips(evaluator, settings)),
    ):
        graph.add_node(name, cached(step, cache, evaluator, settings))
    graph.add_node("rewrite_query", rewrite_query(rewriter, settings))
    graph.add_node("web_search", search_the_web(web, settings))
    # It waits for whichever branches were taken.
    graph.add_node("recompose_knowledge", recompose_knowledge(settings), defer=True)

    graph.add_edge("retrieve", "grade_documents")
    graph.add_conditional_edges(
        "grade_documents", _by_action, ["refine_strips", "rewrite_query", *ends]
    )
    graph.add_conditional_edges("rewrite_query", _beside_search, ["refine_strips", "web_search"])
    graph.add_conditional_edges("web_search", after_search, ["select_web_strips", "web_search"])
    graph.add_edge("refine_strips", "recompose_knowledge")
    graph.add_edge("select_web_strips", "recompose_knowledge")


def _by_action(state: CRAGState) -> str:
    if not state["branches"]:
        return "write_answer"
    return "rewrite_query" if "search" in state["branches"] else "refine_strips"


def _beside_search(state: CRAGState) -> list[str]:
    # Refining takes an evaluator, searching the network: side by side they cost the longer one.
    return ["web_search", *(["refine_strips"] if "refine" in state["branches"] else [])]
