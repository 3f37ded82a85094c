"""Self-RAG (Algorithm 1) as a graph.

read_question -> decide_retrieval -> retrieve -> generate_and_critique -> beam_select -> ...
-> write_answer. Each turn of the loop writes one segment on every beam; in short form there is one
turn, and a segment is a whole answer.
"""

from typing import Any

from langchain_core.runnables import Runnable
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.chat.prompted_llm import reflecting
from selfcorrect_rag.nodes.base.best_effort import is_ended
from selfcorrect_rag.nodes.base.cached import cached
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve import retrieve
from selfcorrect_rag.nodes.rewrite_follow_up import add_follow_up
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.self_rag import (
    SelfRAGInput,
    SelfRAGOutput,
    SelfRAGState,
    blank_self_rag,
)

SelfRAG = CompiledStateGraph[SelfRAGState, SelfRAGSettings, SelfRAGInput, SelfRAGOutput]


def create_self_rag(
    llm: ReflectionLLM | Runnable[Any, Any],
    retriever: Retriever,
    *,
    follow_up: Runnable[Any, Any] | None = None,
    settings: SelfRAGSettings | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "self_rag",
) -> SelfRAG:
    """Build the Self-RAG graph.

    Args:
        llm: a model that reflects, e.g.
            :class:`~selfcorrect_rag.models.TransformersReflectionLLM`. Any other chat model or LLM
            is wrapped (:class:`~selfcorrect_rag.models.PromptedReflectionLLM`), and notes say so.
        retriever: any LangChain retriever, or a function from a query to documents; see
            :data:`~selfcorrect_rag.search.retriever.Retriever`.
        follow_up: a chat model that rewrites questions of later turns to stand alone, from the
            ``messages`` before them; None answers each as it is.
        settings: defaults for every run; ``context=`` overrides them knob by knob.
        checkpointer: where threads are kept; None keeps nothing.
        cache: where nodes that ask a model keep their results
            (:func:`~selfcorrect_rag.nodes.base.cached.cached`); None keeps none.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.

    Returns:
        A compiled graph. Its input is :class:`~selfcorrect_rag.state.SelfRAGInput`, its output
        :class:`~selfcorrect_rag.state.SelfRAGOutput`, its context
        :class:`~selfcorrect_rag.settings.SelfRAGSettings` or a dict of some of its fields.

    Raises:
        TypeError: ``llm`` is no LangChain model.
    """
    llm = reflecting(llm)
    settings = SelfRAGSettings.of(settings)
    graph = TurnGraph(
        SelfRAGState,
        context_schema=SelfRAGSettings,
        input_schema=SelfRAGInput,
        output_schema=SelfRAGOutput,
    )
    graph.add_node("read_question", read_question(blank_self_rag, settings))
    asked = add_follow_up(graph, follow_up, settings)
    graph.add_node(
        "decide_retrieval", cached(decide_retrieval(llm, settings), cache, llm, settings)
    )
    graph.add_node("retrieve", retrieve(AnyRetriever(retriever), settings))
    graph.add_node(
        "generate_and_critique", cached(generate_and_critique(llm, settings), cache, llm, settings)
    )
    graph.add_node("beam_select", beam_select(llm, settings))
    graph.add_node("write_answer", write_answer(settings))

    graph.add_edge(START, "read_question")
    graph.add_edge(asked, "decide_retrieval")
    graph.add_conditional_edges(
        "decide_retrieval", _next_segment, ["retrieve", "generate_and_critique"]
    )
    graph.add_conditional_edges(
        "retrieve", _next_after_retrieval, ["generate_and_critique", "write_answer"]
    )
    graph.add_conditional_edges(
        "generate_and_critique", next_after_writing, ["beam_select", "write_answer"]
    )
    graph.add_conditional_edges(
        "beam_select", _next_segment, ["retrieve", "generate_and_critique", "write_answer"]
    )
    graph.add_edge("write_answer", END)
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
    )


def _next_segment(state: SelfRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:
        return "retrieve"
    return "write_answer" if wanted == {None} else "generate_and_critique"


def next_after_writing(state: SelfRAGState) -> str:
    """Where to go from ``generate_and_critique``: a model that failed late has ended the beams."""
    return "write_answer" if is_ended(state) else "beam_select"


def _next_after_retrieval(state: SelfRAGState) -> str:
    # A retriever that failed late has ended the beams that asked.
    return "write_answer" if is_ended(state) else "generate_and_critique"
