"""Self-CRAG: CRAG corrects the retrieval, Self-RAG writes from what that leaves (appendix B.2).

read_question -> decide_retrieval -> retrieve -> CRAG's nodes -> recompose_knowledge ->
read_knowledge -> generate_and_critique -> beam_select -> ... -> write_answer. What needs no
evidence skips CRAG; later segments read the same knowledge.
"""

from collections.abc import Mapping
from typing import Any, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.stream import CustomTransformer
from langgraph.types import Checkpointer, RetryPolicy

from selfcorrect_rag.crag import ApprovalGraph, CorrectionParts, add_correction
from selfcorrect_rag.models.from_name import Evaluator, Model, as_reflection_llm
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval, limit_on_decision
from selfcorrect_rag.nodes.generate_and_critique import batch_of, generate_and_critique
from selfcorrect_rag.nodes.judge_sufficiency import judge_sufficiency, needs_judgement
from selfcorrect_rag.nodes.limits import is_ended
from selfcorrect_rag.nodes.node import add_node, cache_policy
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.recompose_knowledge import read_knowledge
from selfcorrect_rag.nodes.refine_strips import Decompose, StripFilter
from selfcorrect_rag.nodes.rewrite_follow_up import rewrite_follow_up
from selfcorrect_rag.nodes.rewrite_query import Rewriter
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.settings import SelfCRAGSettings
from selfcorrect_rag.state import Input, SelfCRAGOutput, SelfCRAGState

SelfCRAG = CompiledStateGraph[SelfCRAGState, Any, Input, SelfCRAGOutput]


def create_self_crag(
    llm: ReflectionLLM | Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    rewriter: Rewriter | None = None,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: SelfCRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "self_crag",
) -> SelfCRAG:
    """Build the Self-CRAG graph.

    Arguments are those of :func:`~selfcorrect_rag.crag.create_crag`, except ``settings``, and
    ``llm``, which reflects or is wrapped as in :func:`~selfcorrect_rag.self_rag.create_self_rag`.
    Its output has the fields of both graphs; candidates and citations point into ``knowledge``.

    Raises:
        BadArgument: an argument is of the wrong kind.
        BadSettings: ``settings`` are another graph's, or have an unknown name.
    """
    graph = self_crag_builder(
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


def self_crag_builder(
    llm: ReflectionLLM | Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    follow_up: Model | None = None,
    settings: SelfCRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
    **parts: Unpack[CorrectionParts],
) -> StateGraph[SelfCRAGState, SelfCRAGSettings, Input, SelfCRAGOutput]:
    """Return the graph of :func:`create_self_crag` before it is compiled."""
    model, chosen = as_reflection_llm(llm), SelfCRAGSettings.of(settings)
    graph = StateGraph(
        SelfCRAGState, SelfCRAGSettings, input_schema=Input, output_schema=SelfCRAGOutput
    )
    decide = decide_retrieval(model, chosen)
    write = generate_and_critique(model, chosen, "knowledge")
    decide_policy = write_policy = None
    if cached:
        decide_policy = cache_policy(
            decide, model, [], lambda state, chosen: limit_on_decision(model, state, chosen)
        )
        write_policy = cache_policy(
            write,
            model,
            ["beams", "knowledge", "candidates", "depth"],
            lambda state, chosen: batch_of(model, state, chosen),
        )
    add_node(graph, read_question(chosen))
    add_node(graph, decide, retry_policy=retry_policy, cache_policy=decide_policy)
    add_node(graph, judge_sufficiency(model, chosen, "knowledge"), retry_policy=retry_policy)
    add_node(graph, read_knowledge())
    add_node(graph, write, retry_policy=retry_policy, cache_policy=write_policy)
    add_node(graph, beam_select(model, chosen, "knowledge"))
    add_node(graph, write_answer(chosen, "knowledge", llm=model))

    graph.add_edge(START, "read_question")
    if follow_up is None:
        graph.add_edge("read_question", "decide_retrieval")
    else:
        add_node(graph, rewrite_follow_up(follow_up, chosen), retry_policy=retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
        graph.add_edge("rewrite_follow_up", "decide_retrieval")
    graph.add_conditional_edges(
        "decide_retrieval",
        _next_segment,
        {"retrieval": "retrieve", "no retrieval": "generate_and_critique"},
    )
    add_correction(
        graph,
        retriever,
        evaluator,
        web_search,
        chosen,
        retry_policy,
        cached=cached,
        cut_short="write_answer",
        **parts,
    )
    graph.add_conditional_edges(
        "recompose_knowledge",
        _with_knowledge,
        {
            "judge": "judge_sufficiency",
            "continue": "read_knowledge",
            "cut short": "write_answer",
            "answered": END,
        },
    )
    graph.add_conditional_edges(
        "judge_sufficiency",
        lambda state: "refuse" if state["answer"] else "continue",
        {"refuse": END, "continue": "read_knowledge"},
    )
    graph.add_edge("read_knowledge", "generate_and_critique")
    graph.add_conditional_edges(
        "generate_and_critique",
        lambda state: "cut short" if is_ended(state) else "continue",
        {"continue": "beam_select", "cut short": "write_answer"},
    )
    graph.add_conditional_edges(
        "beam_select",
        _next_segment,
        {
            "retrieval": "retrieve",
            "retrieved before": "read_knowledge",
            "no retrieval": "generate_and_critique",
            "done": "write_answer",
        },
    )
    graph.add_edge("write_answer", END)
    return graph


def _next_segment(state: SelfCRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:  # later segments read the knowledge of the first correction
        return "retrieved before" if state["branches"] else "retrieval"
    return "done" if wanted == {None} else "no retrieval"


def _with_knowledge(state: SelfCRAGState) -> str:
    if not state["branches"]:  # the deferred step of an earlier, abandoned turn
        return "answered"
    if is_ended(state):  # an evaluator that failed late has ended the beams
        return "cut short"
    return "judge" if needs_judgement(state) else "continue"
