"""CRAG (Algorithm 1) as a graph.

read_question -> retrieve -> grade_documents, then by action: Correct refines what was retrieved,
Incorrect rewrites the question and searches the web, Ambiguous does both side by side; then
recompose_knowledge -> generate.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from langgraph.cache.base import BaseCache
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from selfcorrect_rag.models.from_name import Evaluator, Model, as_evaluator, as_language_model
from selfcorrect_rag.nodes.base.own_node import OwnNode
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.nodes.judge_sufficiency import add_judge_sufficiency
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.recompose_knowledge import recompose_knowledge
from selfcorrect_rag.nodes.refine_strips import (
    Decompose,
    StripFilter,
    refine_strips,
    select_web_strips,
)
from selfcorrect_rag.nodes.retrieve_documents import retrieve_documents
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUp, add_follow_up
from selfcorrect_rag.nodes.rewrite_query import Rewriter, rewrite_query
from selfcorrect_rag.nodes.web_search import after_search, approval
from selfcorrect_rag.nodes.web_search import web_search as search_the_web
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import Web, as_web_search
from selfcorrect_rag.settings import CRAGContext, CRAGSettings
from selfcorrect_rag.state.crag import CRAGInput, CRAGOutput, CRAGState, blank_crag

CRAG = CompiledStateGraph[CRAGState, CRAGSettings | CRAGContext, CRAGInput, CRAGOutput]


def create_crag(
    llm: Model,
    retriever: Retriever,
    evaluator: Evaluator,
    web_search: Web = None,
    *,
    rewriter: Rewriter | None = None,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
    follow_up: FollowUp | None = None,
    nodes: Mapping[str, OwnNode] | None = None,
    settings: CRAGSettings | CRAGContext | None = None,
    checkpointer: Checkpointer = None,
    cache: BaseCache[Any] | None = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    name: str = "crag",
) -> CRAG:
    """Build the CRAG graph.

    Args:
        llm: any LangChain LLM or chat model, or its name (``"openai:gpt-4o-mini"``), which writes
            the answer.
        retriever: any LangChain retriever or vector store, or a function from a query to documents;
            see :data:`~selfcorrect_rag.search.retriever.Retriever`.
        evaluator: what grades documents and strips, such as
            :class:`~selfcorrect_rag.models.T5Evaluator`, or a chat model or its name.
        web_search: such as :class:`~selfcorrect_rag.search.TavilyWebSearch`; or a LangChain tool,
            retriever or function that searches; None where there is no web.
        rewriter: a model, or a function from the question, that gives search queries; by rule where
            None.
        decompose: a function from a text to its strips, or a LangChain text splitter, in place of
            the setting ``decomposition``.
        strip_filter: a function from the question and strips to whether each is kept, in place of
            the evaluator's scores.
        follow_up: a model or a rule that rewrites questions of later turns to stand alone, from
            the ``messages`` before them
            (:data:`~selfcorrect_rag.nodes.rewrite_follow_up.FollowUp`); None answers each as it is.
        nodes: steps of your own by the names of those that they replace: a Runnable, or a sync or
            async function from the state to an update of it
            (:func:`~selfcorrect_rag.nodes.base.own_node.own_node`).
        settings: defaults for every run; ``context=`` overrides them knob by knob.
        checkpointer: where threads are kept; ``approve_search`` needs one.
        cache: where nodes that ask a model keep their results
            (:func:`~selfcorrect_rag.nodes.base.cached.cached`); None keeps none.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.

    Raises:
        BadArgument: an argument is of the wrong kind, or ``nodes`` has a name that no step has.
        BadSettings: ``settings`` are another graph's.
    """
    model, chosen = as_language_model(llm, "llm"), CRAGSettings.of(settings)
    graph: TurnGraph[CRAGState, Any, CRAGInput, CRAGOutput] = TurnGraph(
        CRAGState, chosen, CRAGInput, CRAGOutput, nodes, cache
    )
    graph.add_step("read_question", read_question(blank_crag, chosen))
    settled = add_follow_up(graph, follow_up, chosen)
    strips = {"decompose": decompose, "strip_filter": strip_filter}
    add_correction(graph, retriever, evaluator, web_search, rewriter, chosen, strips)
    graph.add_step("generate", generate(model, chosen), model)
    graph.add_edge(START, "read_question")
    graph.add_edge(settled, "retrieve")
    add_judge_sufficiency(
        graph,
        model,
        chosen,
        "recompose_knowledge",
        lambda _: "continue",
        {"continue": "generate"},
        "knowledge",
    )
    graph.add_edge("generate", END)
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
    )


def add_correction(
    graph: TurnGraph[Any, Any, Any, Any],
    retriever: Retriever,
    evaluator: Evaluator,
    web_search: Web,
    rewriter: Rewriter | None,
    settings: CRAGSettings,
    strips: Mapping[str, Any],
    cut_short: str | None = None,
) -> None:
    """The nodes from a question to knowledge, which CRAG and Self-CRAG share.

    They begin at ``retrieve`` and end at ``recompose_knowledge``. ``strips`` are the options of
    ``refine_strips``. ``cut_short`` is the node that ends an answer which may have been begun by
    then, where a fault of the evaluator cuts it short.
    """
    judge, web = as_evaluator(evaluator), as_web_search(web_search)
    is_own_web = graph.replaces("web_search")
    graph.begin = lambda: approval(settings, is_own_web)
    graph.add_step("retrieve", retrieve_documents(retriever, settings))
    graph.add_step("grade_documents", grade_documents(judge, settings), judge)
    # What a function of one's own gives is not kept.
    kept_of = None if any(strips.values()) else judge
    graph.add_step("refine_strips", refine_strips(judge, settings, **strips), kept_of)
    graph.add_step("select_web_strips", select_web_strips(judge, settings, **strips), kept_of)
    graph.add_step("rewrite_query", rewrite_query(rewriter, settings))
    graph.add_step("web_search", search_the_web(web, settings, loops=True))
    # It waits for whichever branches were taken.
    graph.add_step("recompose_knowledge", recompose_knowledge(settings), defer=True)

    graph.add_edge("retrieve", "grade_documents")
    # A drawing shows one label for each node, and none that is the node's own name.
    actions: dict[Hashable, str] = {
        "correct": "refine_strips",
        "ambiguous or incorrect": "rewrite_query",
    }
    if cut_short:
        actions["cut short"] = cut_short
    graph.add_conditional_edges("grade_documents", _by_action, actions)
    graph.add_conditional_edges(
        "rewrite_query", _beside_search, {"ambiguous": "refine_strips", "search": "web_search"}
    )
    graph.add_conditional_edges(
        "web_search", after_search, {"searched": "select_web_strips", "not approved": "web_search"}
    )
    graph.add_edge("refine_strips", "recompose_knowledge")
    graph.add_edge("select_web_strips", "recompose_knowledge")


def _by_action(state: CRAGState) -> str:
    if not state["branches"]:
        return "cut short"
    return "ambiguous or incorrect" if "search" in state["branches"] else "correct"


def _beside_search(state: CRAGState) -> list[str]:
    # Refining takes an evaluator, searching the network: side by side they cost the longer one.
    return ["search", *(["ambiguous"] if "refine" in state["branches"] else [])]
