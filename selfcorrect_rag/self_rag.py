"""Self-RAG (Algorithm 1) as a graph.

read_question -> decide_retrieval -> retrieve -> generate_and_critique -> beam_select -> ...
-> write_answer. Each turn of the loop writes one segment on every beam; in short form there is one
turn, and a segment is a whole answer.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from langgraph.cache.base import BaseCache
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.base.limits import is_ended
from selfcorrect_rag.nodes.base.own_node import OwnNode
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.judge_sufficiency import add_judge_sufficiency
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve import retrieve
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUp, add_follow_up
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import SelfRAGContext, SelfRAGSettings
from selfcorrect_rag.state.self_rag import (
    SelfRAGInput,
    SelfRAGOutput,
    SelfRAGState,
    blank_self_rag,
)

SelfRAG = CompiledStateGraph[
    SelfRAGState, SelfRAGSettings | SelfRAGContext, SelfRAGInput, SelfRAGOutput
]


def create_self_rag(
    llm: ReflectionLLM | Model,
    retriever: Retriever,
    *,
    follow_up: FollowUp | None = None,
    nodes: Mapping[str, OwnNode] | None = None,
    settings: SelfRAGSettings | SelfRAGContext | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "self_rag",
) -> SelfRAG:
    """Build the Self-RAG graph.

    Args:
        llm: a model that reflects, e.g.
            :class:`~selfcorrect_rag.models.TransformersReflectionLLM`. Any other chat model or LLM,
            or its name (``"openai:gpt-4o-mini"``), is wrapped
            (:class:`~selfcorrect_rag.models.PromptedReflectionLLM`), and notes say so.
        retriever: any LangChain retriever or vector store, or a function from a query to documents;
            see :data:`~selfcorrect_rag.search.retriever.Retriever`.
        follow_up: a model or a rule that rewrites questions of later turns to stand alone, from
            the ``messages`` before them
            (:data:`~selfcorrect_rag.nodes.rewrite_follow_up.FollowUp`); None answers each as it is.
        nodes: steps of your own by the names of those that they replace: a Runnable, or a sync or
            async function from the state to an update of it
            (:func:`~selfcorrect_rag.nodes.base.own_node.own_node`).
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
        BadArgument: an argument is of the wrong kind, or ``nodes`` has a name that no step has.
        BadSettings: ``settings`` are another graph's.
    """
    model, settings = as_reflection_llm(llm), SelfRAGSettings.of(settings)
    graph: TurnGraph[SelfRAGState, Any, SelfRAGInput, SelfRAGOutput] = TurnGraph(
        SelfRAGState, settings, SelfRAGInput, SelfRAGOutput, nodes, cache
    )
    graph.add_step("read_question", read_question(blank_self_rag, settings))
    settled = add_follow_up(graph, follow_up, settings)
    graph.add_step("decide_retrieval", decide_retrieval(model, settings), model)
    graph.add_step("retrieve", retrieve(retriever, settings))
    graph.add_step("generate_and_critique", generate_and_critique(model, settings), model)
    graph.add_step("beam_select", beam_select(model, settings))
    graph.add_step("write_answer", write_answer(settings, llm=model))

    graph.add_edge(START, "read_question")
    graph.add_edge(settled, "decide_retrieval")
    graph.add_conditional_edges(
        "decide_retrieval",
        _next_segment,
        {"retrieval": "retrieve", "no retrieval": "generate_and_critique"},
    )
    ends: dict[Hashable, str] = {"continue": "generate_and_critique", "cut short": "write_answer"}
    add_judge_sufficiency(graph, model, settings, "retrieve", _next_after_retrieval, ends)
    graph.add_conditional_edges("generate_and_critique", next_after_writing, AFTER_WRITING)
    graph.add_conditional_edges(
        "beam_select",
        _next_segment,
        {
            "retrieval": "retrieve",
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


def _next_segment(state: SelfRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:
        return "retrieval"
    return "done" if wanted == {None} else "no retrieval"


AFTER_WRITING: dict[Hashable, str] = {"continue": "beam_select", "cut short": "write_answer"}
"""Labels of the edges behind ``generate_and_critique``, and their nodes."""


def next_after_writing(state: SelfRAGState) -> str:
    """Where to go from ``generate_and_critique``: a model that failed late has ended the beams."""
    return "cut short" if is_ended(state) else "continue"


def _next_after_retrieval(state: SelfRAGState) -> str:
    # A retriever that failed late has ended the beams that asked.
    return "cut short" if is_ended(state) else "continue"
