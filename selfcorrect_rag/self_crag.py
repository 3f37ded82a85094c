"""Self-CRAG: CRAG corrects the retrieval, Self-RAG writes from what that leaves (appendix B.2).

read_question -> decide_retrieval -> retrieve -> CRAG's nodes -> recompose_knowledge ->
read_knowledge -> generate_and_critique -> beam_select -> ... -> write_answer. What needs no
evidence skips CRAG; later segments read the same knowledge.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from langgraph.cache.base import BaseCache
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.crag import add_correction
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Evaluator, Model, as_reflection_llm
from selfcorrect_rag.nodes.base.limits import is_ended
from selfcorrect_rag.nodes.base.own_node import OwnNode
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.judge_sufficiency import add_judge_sufficiency
from selfcorrect_rag.nodes.read_knowledge import read_knowledge
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.refine_strips import Decompose, StripFilter
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUp, add_follow_up
from selfcorrect_rag.nodes.rewrite_query import Rewriter
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.self_rag import AFTER_WRITING, next_after_writing
from selfcorrect_rag.settings import SelfCRAGContext, SelfCRAGSettings
from selfcorrect_rag.state.crag import CRAGInput, SelfCRAGOutput, SelfCRAGState, blank_crag
from selfcorrect_rag.state.self_rag import blank_self_rag

SelfCRAG = CompiledStateGraph[
    SelfCRAGState, SelfCRAGSettings | SelfCRAGContext, CRAGInput, SelfCRAGOutput
]


def create_self_crag(
    llm: ReflectionLLM | Model,
    retriever: Retriever,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    rewriter: Rewriter | None = None,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
    follow_up: FollowUp | None = None,
    nodes: Mapping[str, OwnNode] | None = None,
    settings: SelfCRAGSettings | SelfCRAGContext | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "self_crag",
) -> SelfCRAG:
    """Build the Self-CRAG graph.

    Arguments are those of :func:`~selfcorrect_rag.crag.create_crag`, but for ``settings``, and for
    ``llm``, which reflects or is wrapped as in :func:`~selfcorrect_rag.self_rag.create_self_rag`.
    Its output has the fields of both graphs; candidates and citations point into ``knowledge``.

    Raises:
        BadArgument: an argument is of the wrong kind, or ``nodes`` has a name that no step has.
        BadSettings: ``settings`` are another graph's.
    """
    model, chosen = as_reflection_llm(llm), SelfCRAGSettings.of(settings)
    graph: TurnGraph[SelfCRAGState, Any, CRAGInput, SelfCRAGOutput] = TurnGraph(
        SelfCRAGState, chosen, CRAGInput, SelfCRAGOutput, nodes, cache
    )
    graph.add_step(
        "read_question", read_question(lambda: {**blank_crag(), **blank_self_rag()}, chosen)
    )
    settled = add_follow_up(graph, follow_up, chosen)
    graph.add_step("decide_retrieval", decide_retrieval(model, chosen), model)
    strips = {"decompose": decompose, "strip_filter": strip_filter}
    add_correction(
        graph, retriever, evaluator, web_search, rewriter, chosen, strips, "write_answer"
    )
    graph.add_step("read_knowledge", read_knowledge())
    candidates = generate_and_critique(model, chosen, "knowledge")
    graph.add_step("generate_and_critique", candidates, model)
    graph.add_step("beam_select", beam_select(model, chosen, "knowledge"))
    graph.add_step("write_answer", write_answer(chosen, "knowledge", model))

    graph.add_edge(START, "read_question")
    graph.add_edge(settled, "decide_retrieval")
    graph.add_conditional_edges(
        "decide_retrieval",
        _first_segment,
        {"retrieval": "retrieve", "no retrieval": "generate_and_critique"},
    )
    ends: dict[Hashable, str] = {
        "continue": "read_knowledge",
        "cut short": "write_answer",
        "answered": END,
    }
    add_judge_sufficiency(
        graph, model, chosen, "recompose_knowledge", _with_knowledge, ends, "knowledge"
    )
    graph.add_edge("read_knowledge", "generate_and_critique")
    graph.add_conditional_edges("generate_and_critique", next_after_writing, AFTER_WRITING)
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
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
    )


def _first_segment(state: SelfCRAGState) -> str:
    return "retrieval" if state["retrieval"]["retrieve"] else "no retrieval"


def _with_knowledge(state: SelfCRAGState) -> str:
    if not state["branches"]:
        return "answered"
    # An evaluator that failed late has ended the beams.
    return "cut short" if is_ended(state) else "continue"


def _next_segment(state: SelfCRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:
        return "retrieved before" if state["branches"] else "retrieval"
    return "done" if wanted == {None} else "no retrieval"
