"""Plain RAG as a graph, the baseline of every comparison: retrieve, read all, answer."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.generate import generate, read_answer
from selfcorrect_rag.nodes.node import Node, Run, Update, add_node
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve import retrieve_documents
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import CRAGSettings, Settings
from selfcorrect_rag.state import CRAGState, Input, Output

KNOBS = frozenset({*Settings.model_fields, "passages", "instruction"})
"""The settings of CRAG that plain RAG has a use for."""
PlainRAG = CompiledStateGraph[CRAGState, CRAGSettings, Input, Output]


def create_plain_rag(
    llm: Model,
    retriever: Retriever | None,
    *,
    settings: CRAGSettings | None = None,
    name: str = "rag",
) -> PlainRAG:
    """Build the graph. CRAG's last step writes the answer from all passages in one prompt (Self-RAG
    section 4.2); a ReflectionLLM reads them as one passage. Nothing is judged: every passage counts
    as relevant and may be cited.

    Args:
        llm: any LangChain LLM or chat model, or its name.
        retriever: as for the other graphs; None: the model answers by itself.
        settings: those of :data:`KNOBS` have an effect.
        name: as shown in traces.
    """
    model, chosen = as_language_model(llm, "llm"), CRAGSettings.of(settings)
    graph = StateGraph(CRAGState, CRAGSettings, input_schema=Input, output_schema=Output)
    steps = [
        read_question(chosen),
        generate(model, chosen, apart=False),
        read_answer(model, chosen),
    ]
    if retriever is not None:
        steps[1:1] = [retrieve_documents(retriever, chosen), Node("read_all", _read_all, chosen)]
    for step in steps:
        add_node(graph, step)
    names = [START, *(str(step.name) for step in steps), END]
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    return graph.compile(name=name)


def _read_all(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
    passages = state["passages"]
    return {"knowledge": passages, "judged": ["relevant"] * len(passages)}
