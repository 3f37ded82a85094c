"""Plain RAG as a graph, the baseline of every comparison: retrieve, read, answer.

read_question -> retrieve -> read_all -> generate; without retrieval read_question -> generate. The
answer is written by CRAG's own last step from all passages at once.
"""

from typing import Any

from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph

from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.node import Node, Update
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve_documents import retrieve_documents
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import CRAGContext, CRAGSettings, Settings
from selfcorrect_rag.state import Output, blank_common
from selfcorrect_rag.state import CRAGInput, CRAGState
from selfcorrect_rag.intake import Documents

KNOBS = frozenset({*Settings.model_fields, "passages", "instruction"})
"""The settings of CRAG that plain RAG has a use for."""


class PlainRAGOutput(Output, total=False):
    """The answer, and what was read for it."""

    passages: Documents
    """The documents retrieved or given, best first; the answer's numbers point into them."""
    cited_answer: str


PlainRAG = CompiledStateGraph[CRAGState, CRAGSettings | CRAGContext, CRAGInput, PlainRAGOutput]


def create_plain_rag(
    llm: Model,
    retriever: Retriever | None,
    *,
    settings: CRAGSettings | CRAGContext | None = None,
    name: str = "rag",
) -> PlainRAG:
    """Build the graph.

    All passages stand in one prompt (Self-RAG section 4.2): a chat model gets them numbered, a
    ReflectionLLM as one passage, also where it reads apart otherwise; it cites nothing then.
    Nothing is judged: all that is retrieved counts as relevant, and may be cited.

    Args:
        llm: any LangChain LLM or chat model, or its name.
        retriever: as for the other graphs; None: the model answers by itself.
        settings: those of ``KNOBS`` have an effect.
        name: as shown in traces.
    """
    model, chosen = as_language_model(llm, "llm"), CRAGSettings.of(settings)
    graph: TurnGraph[CRAGState, Any, CRAGInput, PlainRAGOutput] = TurnGraph(
        CRAGState, chosen, CRAGInput, PlainRAGOutput
    )
    graph.add_step("read_question", read_question(_blank, chosen))
    graph.add_step("generate", generate(model, chosen, apart=False))
    graph.add_edge(START, "read_question")
    if retriever is None:
        graph.add_edge("read_question", "generate")
    else:
        graph.add_step("retrieve", retrieve_documents(retriever, chosen))
        graph.add_step("read_all", Node("read_all", _read_all))
        graph.add_edge("read_question", "retrieve")
        graph.add_edge("retrieve", "read_all")
        graph.add_edge("read_all", "generate")
    graph.add_edge("generate", END)
    return graph.compile(name=name)


def _blank() -> Update:
    """Without CRAG's grades and action, by which its results are known."""
    return {**blank_common(), "cited_answer": "", "knowledge": [], "judged": []}


def _read_all(state: CRAGState) -> Update:
    passages = state["passages"]
    return {"knowledge": passages, "judged": ["relevant"] * len(passages)}
