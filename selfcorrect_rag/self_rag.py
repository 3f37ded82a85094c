"""Self-RAG (Algorithm 1) as a graph.

Each turn of its loop writes one segment on every beam; in short form there is one turn, and a
segment is a whole answer.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import RetryPolicy

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.node import GraphOptions, add_node, cache_policy, split_options
from selfcorrect_rag.nodes.read_question import read_question, rewrite_follow_up
from selfcorrect_rag.nodes.retrieve import retrieve
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Input, SelfRAGOutput, SelfRAGState, Source

SelfRAG = CompiledStateGraph[SelfRAGState, Any, Input, SelfRAGOutput]


def create_self_rag(
    llm: ReflectionLLM | Model, retriever: Retriever | None = None, **options: Unpack[GraphOptions]
) -> SelfRAG:
    """Build the Self-RAG graph.

    Args:
        llm: a model with reflection tokens, e.g.
            :class:`~selfcorrect_rag.models.TransformersReflectionLLM`. Any other chat model or LLM,
            or its name (``"openai:gpt-4o-mini"``), is wrapped
            (:class:`~selfcorrect_rag.models.PromptedReflectionLLM`), and notes say so.
        retriever: any LangChain retriever or vector store, or a function from a query to documents;
            None if every input brings its documents.
        options: :class:`~selfcorrect_rag.nodes.node.GraphOptions`, by name.

    Returns:
        A compiled graph. Its input is :class:`~selfcorrect_rag.state.Input`, its output
        :class:`~selfcorrect_rag.state.SelfRAGOutput`, its context
        :class:`~selfcorrect_rag.settings.SelfRAGSettings` or a dict of some of its fields.
    """
    building, compiling = split_options({"name": "self_rag", **options})
    return self_rag_builder(llm, retriever, **building).compile(**compiling)


def self_rag_builder(
    llm: ReflectionLLM | Model,
    retriever: Retriever | None = None,
    *,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: SelfRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
) -> StateGraph[SelfRAGState, Any, Input, SelfRAGOutput]:
    """Return the graph of :func:`create_self_rag` before it is compiled, to add nodes.

    ``cached`` gives the nodes that call the model a cache policy, for ``compile(cache=...)``.
    """
    model, chosen = as_reflection_llm(llm), SelfRAGSettings.of(settings)
    graph: StateGraph[SelfRAGState, Any, Input, SelfRAGOutput] = StateGraph(
        SelfRAGState, SelfRAGSettings, input_schema=Input, output_schema=SelfRAGOutput
    )
    add_generation(graph, model, chosen, "passages", follow_up, retry_policy, cached)
    add_node(graph, retrieve(retriever, reranker=reranker), retry_policy)
    graph.add_edge("retrieve", "generate_and_critique")
    steps: dict[Hashable, str] = {"retrieval": "retrieve", "no retrieval": "generate_and_critique"}
    graph.add_conditional_edges("decide_retrieval", _next_segment, steps)
    ends = {**steps, "done": "write_answer"}
    graph.add_conditional_edges("beam_select", _next_segment, ends)
    return graph


def add_generation(
    graph: StateGraph[Any, Any, Any, Any],
    model: ReflectionLLM,
    settings: SelfRAGSettings,
    source: Source,
    follow_up: Model | None,
    retry_policy: RetryPolicy | None,
    cached: bool,
) -> None:
    """Add the nodes and edges that Self-CRAG shares, which write from the texts at ``source``.

    The edges that leave decide_retrieval and beam_select are each graph's own.
    """
    # Later nodes read the turn's settings from the state.
    decide, write = decide_retrieval(model), generate_and_critique(model, source=source)
    keys = ["beams", source, "candidates"]
    add_node(graph, read_question(settings))
    add_node(graph, decide, retry_policy, cached and cache_policy(decide, model, []))
    add_node(graph, write, retry_policy, cached and cache_policy(write, model, keys))
    add_node(graph, beam_select(model))
    add_node(graph, write_answer(source=source, llm=model))

    graph.add_edge(START, "read_question")
    if follow_up is None:
        graph.add_edge("read_question", "decide_retrieval")
    else:
        add_node(graph, rewrite_follow_up(follow_up), retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
        graph.add_edge("rewrite_follow_up", "decide_retrieval")
    graph.add_edge("generate_and_critique", "beam_select")
    graph.add_edge("write_answer", END)


def _next_segment(state: SelfRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:
        return "retrieval"
    return "done" if wanted == {None} else "no retrieval"
