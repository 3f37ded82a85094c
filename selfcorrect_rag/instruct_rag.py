"""InstructRAG (Algorithm 1) at inference, and the baselines it is compared with, as a graph.

read_question -> retrieve -> choose_demonstrations -> write_rationale. Without retrieval the
question goes to write_rationale at once; modes without demonstrations, and a retrieval that found
nothing, skip choose_demonstrations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import RetryPolicy

from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.node import GraphOptions, add_node, split_options
from selfcorrect_rag.nodes.read_question import read_question, rewrite_follow_up
from selfcorrect_rag.nodes.retrieve import retrieve_documents
from selfcorrect_rag.nodes.write_rationale import choose_demonstrations, write_rationale
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import InstructRAGSettings, Mode
from selfcorrect_rag.state import Input, InstructRAGOutput, InstructRAGState

InstructRAG = CompiledStateGraph[InstructRAGState, Any, Input, InstructRAGOutput]


def create_instruct_rag(
    llm: Model,
    retriever: Retriever | None,
    demonstrations: Sequence[Mapping[str, Any]] | None = None,
    **options: Unpack[GraphOptions],
) -> InstructRAG:
    """Build the InstructRAG graph.

    Args:
        llm: writes the rationale; as for :func:`~selfcorrect_rag.crag.create_crag`.
        retriever: gives documents, best first; as for :func:`~selfcorrect_rag.crag.create_crag`.
        demonstrations: questions with rationales (for ``icl``) or with answers (``few_shot``); a
            run that needs others raises BadDemonstrations. None if there are none.
        options: :class:`GraphOptions`, by name.
    """
    building, compiling = split_options({"name": "instruct_rag", **options})
    return instruct_rag_builder(llm, retriever, demonstrations, **building).compile(**compiling)


def instruct_rag_builder(
    llm: Model,
    retriever: Retriever | None,
    demonstrations: Sequence[Mapping[str, Any]] | None = None,
    *,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: InstructRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
) -> StateGraph[InstructRAGState, InstructRAGSettings, Input, InstructRAGOutput]:
    """Return the graph of :func:`create_instruct_rag` before it is compiled.

    ``cached`` has no effect: its one model call writes the answer, which a cache may not replay.
    """
    model, chosen = as_language_model(llm, "llm"), InstructRAGSettings.of(settings)
    default: Mode = "icl" if demonstrations else "instruct"
    graph = StateGraph(
        InstructRAGState, InstructRAGSettings, input_schema=Input, output_schema=InstructRAGOutput
    )
    first = read_question(chosen, lambda turn: {"prompt_mode": turn.prompt_mode or default})
    add_node(graph, first)
    graph.add_edge(START, "read_question")
    if follow_up is not None:
        add_node(graph, rewrite_follow_up(follow_up), retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
    graph.add_conditional_edges(
        "read_question" if follow_up is None else "rewrite_follow_up",
        lambda state: "no retrieval" if state["prompt_mode"] == "no_retrieval" else "retrieval",
        {"retrieval": "retrieve", "no retrieval": "write_rationale"},
    )
    add_node(graph, retrieve_documents(retriever, chosen, reranker), retry_policy)
    graph.add_conditional_edges(
        "retrieve",
        _after_retrieval,
        {"demonstrations": "choose_demonstrations", "no demonstrations": "write_rationale"},
    )
    add_node(graph, choose_demonstrations(demonstrations or ()))
    graph.add_edge("choose_demonstrations", "write_rationale")
    add_node(graph, write_rationale(model), retry_policy)
    graph.add_edge("write_rationale", END)
    return graph


def _after_retrieval(state: InstructRAGState) -> str:
    shows = state["passages"] and state["prompt_mode"] in ("icl", "few_shot")
    return "demonstrations" if shows else "no demonstrations"
