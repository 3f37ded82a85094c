"""CRAG (Algorithm 1) as a graph.

read_question -> retrieve -> grade_documents, then by action: Correct refines what was retrieved,
Incorrect rewrites the question and searches the web, Ambiguous does both side by side; then
recompose_knowledge -> generate -> read_answer.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Self, TypedDict, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.stream import CustomTransformer
from langgraph.types import Checkpointer, Command, RetryPolicy
from langgraph.typing import ContextT, InputT, OutputT, StateT

from selfcorrect_rag.models.from_name import Evaluator, Model, as_evaluator, as_language_model
from selfcorrect_rag.nodes.generate import generate, read_answer
from selfcorrect_rag.nodes.grade_documents import calls_left, grade_documents
from selfcorrect_rag.nodes.judge_sufficiency import judge_sufficiency, needs_judgement
from selfcorrect_rag.nodes.node import add_node, cache_policy
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.recompose_knowledge import recompose_knowledge
from selfcorrect_rag.nodes.refine_strips import (
    Decompose,
    StripFilter,
    refine_strips,
    select_web_strips,
)
from selfcorrect_rag.nodes.retrieve import rerank, retrieve_documents
from selfcorrect_rag.nodes.rewrite_follow_up import rewrite_follow_up
from selfcorrect_rag.nodes.rewrite_query import Rewriter, rewrite_query
from selfcorrect_rag.nodes.web_search import web_search as search_the_web
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import CRAGOutput, CRAGState, Input

CRAG = CompiledStateGraph[CRAGState, Any, Input, CRAGOutput]


class ApprovalGraph(CompiledStateGraph[StateT, ContextT, InputT, OutputT]):
    """A compiled graph in which ``Command(resume=None)`` is a refusal, as any unclear reply is.

    LangGraph 1.2 raises UnboundLocalError for it.
    """

    @classmethod
    def of(cls, compiled: CompiledStateGraph[StateT, ContextT, InputT, OutputT]) -> Self:
        """Return ``compiled`` as such a graph."""
        return cls(**vars(compiled))  # as Pregel.copy makes a copy

    def stream(self, input: Any, *args: Any, **options: Any) -> Any:
        """Stream as LangGraph does."""
        return super().stream(_refused_if_none(input), *args, **options)

    def astream(self, input: Any, *args: Any, **options: Any) -> Any:
        """Stream as LangGraph does."""
        return super().astream(_refused_if_none(input), *args, **options)


def _refused_if_none(given: Any) -> Any:
    if given == Command(resume=None) and isinstance(given, Command):
        return Command(resume=False)
    return given


class CorrectionParts(TypedDict, total=False):
    """Parts of the correction that a graph may be given, as :func:`create_crag` describes them."""

    rewriter: Rewriter | None
    decompose: Decompose | None
    strip_filter: StripFilter | None
    reranker: BaseDocumentCompressor | None


def create_crag(
    llm: Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    rewriter: Rewriter | None = None,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: CRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "crag",
) -> CRAG:
    """Build the CRAG graph.

    Args:
        llm: any LangChain LLM or chat model, or its name (``"openai:gpt-4o-mini"``), which writes
            the answer.
        retriever: any LangChain retriever or vector store, or a function from a query to documents;
            None if every run gives its documents.
        evaluator: grades documents and strips, such as
            :class:`~selfcorrect_rag.models.T5Evaluator`, or a chat model or its name.
        web_search: such as :class:`~selfcorrect_rag.search.TavilyWebSearch`; or a LangChain tool,
            retriever or function that searches; None if there is no web.
        rewriter: a model, or a function from the question, that gives search queries; by rule if
            None.
        decompose: a function from a text to its strips, or a LangChain text splitter, instead of
            the setting ``decomposition``.
        strip_filter: a function from the question and strips to whether each is kept, instead of
            the evaluator's scores.
        reranker: a LangChain document compressor, between retrieval and grading.
        follow_up: a model that rewrites questions of later turns to stand alone.
        settings: defaults for every run; ``context=`` overrides them one by one.
        retry_policy: LangGraph's, for the steps that call a model, a retriever or a search.
        checkpointer: stores threads; ``approve_search`` needs one.
        cache: stores the results of steps that ask a model.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.

    Raises:
        BadArgument: an argument is of the wrong kind.
        BadSettings: ``settings`` are another graph's, or have an unknown name.
    """
    graph = crag_builder(
        llm,
        retriever,
        evaluator,
        web_search,
        rewriter=rewriter,
        decompose=decompose,
        strip_filter=strip_filter,
        reranker=reranker,
        follow_up=follow_up,
        settings=settings,
        retry_policy=retry_policy,
        cached=cache is not None,
    )
    compiled = graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
        transformers=[CustomTransformer],
    )
    return ApprovalGraph.of(compiled)


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
    **parts: Unpack[CorrectionParts],
) -> StateGraph[CRAGState, CRAGSettings, Input, CRAGOutput]:
    """Return the graph of :func:`create_crag` before it is compiled, for nodes of your own."""
    model, chosen = as_language_model(llm, "llm"), CRAGSettings.of(settings)
    graph = StateGraph(CRAGState, CRAGSettings, input_schema=Input, output_schema=CRAGOutput)
    write = generate(model, chosen)
    policy = cache_policy(write, model, ["knowledge"]) if cached else None
    add_node(graph, read_question(chosen))
    add_node(graph, judge_sufficiency(model, chosen, "knowledge"), retry_policy=retry_policy)
    add_node(graph, write, retry_policy=retry_policy, cache_policy=policy)
    add_node(graph, read_answer(model, chosen))

    graph.add_edge(START, "read_question")
    if follow_up is None:
        graph.add_edge("read_question", "retrieve")
    else:
        add_node(graph, rewrite_follow_up(follow_up, chosen), retry_policy=retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
        graph.add_edge("rewrite_follow_up", "retrieve")
    add_correction(
        graph, retriever, evaluator, web_search, chosen, retry_policy, cached=cached, **parts
    )
    graph.add_conditional_edges(
        "recompose_knowledge",
        lambda state: "judge" if needs_judgement(state) else "continue",
        {"judge": "judge_sufficiency", "continue": "generate"},
    )
    graph.add_conditional_edges(
        "judge_sufficiency",
        lambda state: "refuse" if state["answer"] else "continue",
        {"refuse": END, "continue": "generate"},
    )
    graph.add_edge("generate", "read_answer")
    graph.add_edge("read_answer", END)
    return graph


def add_correction(
    graph: StateGraph[Any, Any, Any, Any],
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web,
    settings: CRAGSettings,
    retry_policy: RetryPolicy | None = None,
    *,
    rewriter: Rewriter | None = None,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
    reranker: BaseDocumentCompressor | None = None,
    cached: bool = False,
    cut_short: str | None = None,
) -> None:
    """Add the nodes and edges from ``retrieve`` to ``recompose_knowledge``, which Self-CRAG shares.

    ``cut_short`` is the node that ends an answer in which the evaluator failed.
    """
    judge = as_evaluator(evaluator)
    own: dict[str, Any] = {"decompose": decompose, "strip_filter": strip_filter}
    grade = grade_documents(judge, settings)
    refine = refine_strips(judge, settings, **own)
    select = select_web_strips(judge, settings, **own)
    policies: dict[str, Any] = {}
    if cached:
        policies["grade"] = cache_policy(grade, judge, ["passages"], calls_left)
    if cached and decompose is None and strip_filter is None:
        policies["refine"] = cache_policy(refine, judge, ["passages"], calls_left)
        policies["select"] = cache_policy(select, judge, ["web_results"], calls_left)
    add_node(graph, retrieve_documents(retriever, settings), retry_policy=retry_policy)
    add_node(graph, grade, retry_policy=retry_policy, cache_policy=policies.get("grade"))
    add_node(graph, refine, retry_policy=retry_policy, cache_policy=policies.get("refine"))
    add_node(graph, rewrite_query(rewriter, settings), retry_policy=retry_policy)
    add_node(graph, search_the_web(web_search, settings), retry_policy=retry_policy)
    add_node(graph, select, retry_policy=retry_policy, cache_policy=policies.get("select"))
    add_node(graph, recompose_knowledge(settings), defer=True)  # waits for all branches

    if reranker is not None:
        add_node(graph, rerank(reranker, settings), retry_policy=retry_policy)
        graph.add_edge("retrieve", "rerank")
    graph.add_edge("retrieve" if reranker is None else "rerank", "grade_documents")
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
