"""CRAG (Algorithm 1) as a graph.

read_question -> retrieve -> grade_documents, then by action: Correct refines what was retrieved,
Incorrect rewrites the question and searches the web, Ambiguous does both side by side; then
recompose_knowledge -> generate.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, RetryPolicy
from langgraph.typing import ContextT, InputT, OutputT, StateT

from selfcorrect_rag.models.from_name import Evaluator, Model, as_evaluator, as_language_model
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.nodes.node import GraphOptions, add_node, cache_policy, split_options
from selfcorrect_rag.nodes.read_question import read_question, rewrite_follow_up
from selfcorrect_rag.nodes.refine_strips import (
    StripFilter,
    recompose_knowledge,
    refine_strips,
    select_web_strips,
)
from selfcorrect_rag.nodes.retrieve import retrieve_documents
from selfcorrect_rag.nodes.rewrite_query import Rewriter, rewrite_query
from selfcorrect_rag.nodes.web_search import web_search as search_the_web
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import CRAGOutput, CRAGState, Input

CRAG = CompiledStateGraph[CRAGState, Any, Input, CRAGOutput]


class CRAGOptions(GraphOptions, total=False):
    """The options of CRAG's and Self-CRAG's factories."""

    rewriter: Rewriter | None
    """A model or function that makes a search query of the question; None makes it by rule."""
    strip_filter: StripFilter | None
    """A function of the question and the strips that returns whether each is kept."""


class ApprovalGraph(CompiledStateGraph[StateT, ContextT, InputT, OutputT]):
    """A compiled graph in which ``Command(resume=None)``, at which LangGraph 1.2 raises
    UnboundLocalError, is a refusal, as any unclear reply is."""

    def stream(self, input: Any, *args: Any, **options: Any) -> Any:
        return super().stream(_refused_if_none(input), *args, **options)

    def astream(self, input: Any, *args: Any, **options: Any) -> Any:
        return super().astream(_refused_if_none(input), *args, **options)


def _refused_if_none(given: Any) -> Any:
    is_none = isinstance(given, Command) and given == Command(resume=None)
    return Command(resume=False) if is_none else given


def create_crag(
    llm: Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    **options: Unpack[CRAGOptions],
) -> CRAG:
    """Build the CRAG graph.

    Args:
        llm: any LangChain LLM or chat model, or its name (``"openai:gpt-4o-mini"``), which writes
            the answer.
        retriever: any LangChain retriever or vector store, or a function from a query to documents;
            None if every run gives its documents.
        evaluator: grades documents and strips, such as
            :class:`~selfcorrect_rag.models.T5Evaluator`, or a chat model or its name.
        web_search: such as :class:`~selfcorrect_rag.search.TavilyWebSearch`, or any LangChain tool,
            retriever or function that searches; None if there is no web.
        options: :class:`CRAGOptions`, by name.
    """
    building, compiling = split_options({"name": "crag", **options})
    graph = crag_builder(llm, retriever, evaluator, web_search, **building)
    return ApprovalGraph(**vars(graph.compile(**compiling)))  # as Pregel.copy makes a copy


def crag_builder(
    llm: Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    follow_up: Model | None = None,
    settings: CRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
    **parts: Any,
) -> StateGraph[CRAGState, CRAGSettings, Input, CRAGOutput]:
    """Return the graph of :func:`create_crag` before it is compiled, for nodes of your own."""
    model, chosen = as_language_model(llm, "llm"), CRAGSettings.of(settings)
    graph = StateGraph(CRAGState, CRAGSettings, input_schema=Input, output_schema=CRAGOutput)
    add_node(graph, read_question(chosen))
    add_node(graph, generate(model), retry_policy)

    graph.add_edge(START, "read_question")
    if follow_up is None:
        graph.add_edge("read_question", "retrieve")
    else:
        add_node(graph, rewrite_follow_up(follow_up), retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
        graph.add_edge("rewrite_follow_up", "retrieve")
    add_correction(graph, retriever, evaluator, web_search, chosen, retry_policy, cached, **parts)
    graph.add_edge("recompose_knowledge", "generate")
    graph.add_edge("generate", END)
    return graph


def add_correction(
    graph: StateGraph[Any, Any, Any, Any],
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web,
    settings: CRAGSettings,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
    *,
    rewriter: Rewriter | None = None,
    strip_filter: StripFilter | None = None,
    reranker: BaseDocumentCompressor | None = None,
    cut_short: str | None = None,
) -> None:
    """Add the nodes and edges from ``retrieve`` to ``recompose_knowledge``, which Self-CRAG shares.

    ``cut_short`` is the node that ends an answer in which the evaluator failed.
    """
    judge = as_evaluator(evaluator)
    grade = grade_documents(judge, settings)
    calls = int(isinstance(rewriter, str | Runnable))  # a function makes none
    refine = refine_strips(judge, strip_filter=strip_filter, rewriter_calls=calls)
    select = select_web_strips(judge, strip_filter=strip_filter)
    add_node(graph, grade, retry_policy, cached and cache_policy(grade, judge, ["passages"]))
    cached = cached and strip_filter is None
    add_node(graph, refine, retry_policy, cached and cache_policy(refine, judge, ["passages"]))
    add_node(graph, select, retry_policy, cached and cache_policy(select, judge, ["web_results"]))
    add_node(graph, retrieve_documents(retriever, settings, reranker), retry_policy)
    add_node(graph, rewrite_query(rewriter), retry_policy)
    add_node(graph, search_the_web(web_search, settings), retry_policy)
    add_node(graph, recompose_knowledge(), defer=True)  # waits for all branches

    graph.add_edge("retrieve", "grade_documents")
    # A drawing shows a label for each branch.
    branches: dict[Hashable, str] = {"refine": "refine_strips", "search": "rewrite_query"}
    if cut_short:
        branches["cut short"] = cut_short
    graph.add_conditional_edges(
        "grade_documents", lambda state: state["branches"] or ["cut short"], branches
    )
    graph.add_edge("refine_strips", "recompose_knowledge")
    graph.add_edge("rewrite_query", "web_search")
    graph.add_edge("web_search", "select_web_strips")
    graph.add_edge("select_web_strips", "recompose_knowledge")
