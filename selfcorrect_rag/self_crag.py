"""Self-CRAG: CRAG corrects the retrieval, Self-RAG writes from what that leaves (appendix B.2).

read_question -> decide_retrieval -> retrieve -> CRAG's nodes -> recompose_knowledge ->
generate_and_critique -> beam_select -> ... -> write_answer. Questions that need no evidence skip
CRAG; later segments read the same knowledge.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Unpack

from langgraph.graph import END, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import RetryPolicy

from selfcorrect_rag.crag import ApprovalGraph, CRAGOptions, add_correction
from selfcorrect_rag.models.from_name import Evaluator, Model, as_reflection_llm
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nodes.node import split_options
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web
from selfcorrect_rag.self_rag import add_generation
from selfcorrect_rag.settings import SelfCRAGSettings
from selfcorrect_rag.state import Input, SelfCRAGOutput, SelfCRAGState

SelfCRAG = CompiledStateGraph[SelfCRAGState, Any, Input, SelfCRAGOutput]


def create_self_crag(
    llm: ReflectionLLM | Model,
    retriever: Retriever | None,
    evaluator: Evaluator,
    web_search: Web = None,
    **options: Unpack[CRAGOptions],
) -> SelfCRAG:
    """Build the Self-CRAG graph.

    Arguments are those of :func:`~selfcorrect_rag.crag.create_crag`, but ``llm`` is that of
    :func:`~selfcorrect_rag.self_rag.create_self_rag`, and settings are those of both graphs.
    Its output has the fields of both graphs; candidates and citations point into ``knowledge``.
    """
    building, compiling = split_options({"name": "self_crag", **options})
    graph = self_crag_builder(llm, retriever, evaluator, web_search, **building)
    return ApprovalGraph(**vars(graph.compile(**compiling)))


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
    **parts: Any,
) -> StateGraph[SelfCRAGState, SelfCRAGSettings, Input, SelfCRAGOutput]:
    """Return the graph of :func:`create_self_crag` before it is compiled."""
    model, chosen = as_reflection_llm(llm), SelfCRAGSettings.of(settings)
    graph = StateGraph(
        SelfCRAGState, SelfCRAGSettings, input_schema=Input, output_schema=SelfCRAGOutput
    )
    add_generation(graph, model, chosen, "knowledge", follow_up, retry_policy, cached)
    parts["cut_short"] = "write_answer"
    add_correction(graph, retriever, evaluator, web_search, chosen, retry_policy, cached, **parts)

    steps: dict[Hashable, str] = {"retrieval": "retrieve", "continue": "generate_and_critique"}
    graph.add_conditional_edges("decide_retrieval", _next_segment, steps)
    graph.add_conditional_edges(  # the deferred step also runs for an earlier, abandoned turn
        "recompose_knowledge",
        lambda state: "continue" if state["branches"] else "answered",
        {"continue": "generate_and_critique", "answered": END},
    )
    ends = {**steps, "done": "write_answer"}
    graph.add_conditional_edges("beam_select", _next_segment, ends)
    return graph


def _next_segment(state: SelfCRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted and not state["branches"]:
        return "retrieval"  # once: later segments read the knowledge of the first correction
    return "done" if wanted == {None} else "continue"
