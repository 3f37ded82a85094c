"""InstructRAG (Algorithm 1) at inference, and the baselines it is compared with, as a graph.

read_question -> retrieve -> choose_demonstrations -> write_rationale -> read_rationale. Without
retrieval the question goes to write_rationale at once; modes without demonstrations, and a
retrieval that found nothing, skip choose_demonstrations.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.models.from_name import Model, as_embeddings, as_language_model
from selfcorrect_rag.nodes.base.node import Update, current
from selfcorrect_rag.nodes.base.own_node import OwnNode
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.choose_demonstrations import choose_demonstrations
from selfcorrect_rag.nodes.judge_sufficiency import add_judge_sufficiency
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.read_rationale import read_rationale
from selfcorrect_rag.nodes.retrieve_documents import retrieve_documents
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUp, add_follow_up
from selfcorrect_rag.nodes.write_rationale import write_rationale
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import InstructRAGContext, InstructRAGSettings
from selfcorrect_rag.state.instruct_rag import (
    InstructRAGInput,
    InstructRAGOutput,
    InstructRAGState,
    blank_instruct_rag,
)

InstructRAG = CompiledStateGraph[
    InstructRAGState, InstructRAGSettings | InstructRAGContext, InstructRAGInput, InstructRAGOutput
]


def create_instruct_rag(
    llm: Model,
    retriever: Retriever,
    demonstrations: Sequence[Mapping[str, Any]] = (),
    *,
    embeddings: Embeddings | str | None = None,
    follow_up: FollowUp | None = None,
    nodes: Mapping[str, OwnNode] | None = None,
    settings: InstructRAGSettings | InstructRAGContext | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "instruct_rag",
) -> InstructRAG:
    """Build the InstructRAG graph.

    Args:
        llm: any LangChain LLM or chat model, or its name (``"openai:gpt-4o-mini"``), which writes
            the rationale.
        retriever: any LangChain retriever or vector store, or a function from a query to documents,
            best first; see :data:`~selfcorrect_rag.search.retriever.Retriever`.
        demonstrations: questions with rationales (mode ``icl``) or with answers (``few_shot``).
        embeddings: for ``selection="nearest"``; LangChain's, or their name.
        follow_up: a model or a rule that rewrites questions of later turns to stand alone, from
            the ``messages`` before them
            (:data:`~selfcorrect_rag.nodes.rewrite_follow_up.FollowUp`); None answers each as it is.
        nodes: steps of your own by the names of those that they replace: a Runnable, or a sync or
            async function from the state to an update of it
            (:func:`~selfcorrect_rag.nodes.base.own_node.own_node`).
        settings: defaults for every run; ``context=`` overrides them knob by knob.
        checkpointer: where threads are kept.
        cache: where nodes that ask a model keep their results
            (:func:`~selfcorrect_rag.nodes.base.cached.cached`); None keeps none.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.

    Raises:
        BadArgument: an argument is of the wrong kind, or ``nodes`` has a name that no step has.
        BadSettings: ``settings`` are another graph's.
        BadDemonstrations: at a run, where the mode shows demonstrations and those given will not
            do.
    """
    model, defaults = as_language_model(llm, "llm"), InstructRAGSettings.of(settings)

    def blank() -> Update:
        mode = current(defaults).mode or defaults.mode or ("icl" if demonstrations else "instruct")
        return blank_instruct_rag(mode)

    graph: TurnGraph[InstructRAGState, Any, InstructRAGInput, InstructRAGOutput] = TurnGraph(
        InstructRAGState, defaults, InstructRAGInput, InstructRAGOutput, nodes, cache
    )
    graph.add_step("read_question", read_question(blank, defaults))
    settled = add_follow_up(graph, follow_up, defaults)
    graph.add_step("retrieve", retrieve_documents(retriever, defaults))
    shown = choose_demonstrations(demonstrations, as_embeddings(embeddings), defaults)
    graph.add_step("choose_demonstrations", shown)
    graph.add_step("write_rationale", write_rationale(model, defaults), model)
    graph.add_step("read_rationale", read_rationale())

    graph.add_edge(START, "read_question")
    graph.add_conditional_edges(
        settled, _by_mode, {"retrieval": "retrieve", "no retrieval": "write_rationale"}
    )
    ends: dict[Hashable, str] = {
        "demonstrations": "choose_demonstrations",
        "no demonstrations": "write_rationale",
    }
    add_judge_sufficiency(graph, model, defaults, "retrieve", _after_retrieval, ends)
    graph.add_edge("choose_demonstrations", "write_rationale")
    graph.add_edge("write_rationale", "read_rationale")
    graph.add_edge("read_rationale", END)
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
    )


def _by_mode(state: InstructRAGState) -> str:
    return "no retrieval" if state["mode"] == "no_retrieval" else "retrieval"


def _after_retrieval(state: InstructRAGState) -> str:
    shows = state["passages"] and state["mode"] in ("icl", "few_shot")
    return "demonstrations" if shows else "no demonstrations"
