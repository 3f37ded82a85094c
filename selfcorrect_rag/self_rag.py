"""Self-RAG (Algorithm 1) as a graph.

Each turn of its loop writes one segment on every beam; in short form there is one turn, and a
segment is a whole answer.
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import BaseDocumentCompressor
from langgraph.cache.base import BaseCache
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.stream import CustomTransformer
from langgraph.types import Checkpointer, RetryPolicy

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval, limit_on_decision
from selfcorrect_rag.nodes.generate_and_critique import batch_of, generate_and_critique
from selfcorrect_rag.nodes.judge_sufficiency import judge_sufficiency, needs_judgement
from selfcorrect_rag.nodes.limits import is_ended
from selfcorrect_rag.nodes.node import add_node, cache_policy
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.retrieve import rerank, retrieve
from selfcorrect_rag.nodes.rewrite_follow_up import rewrite_follow_up
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Input, SelfRAGOutput, SelfRAGState

SelfRAG = CompiledStateGraph[SelfRAGState, Any, Input, SelfRAGOutput]


def create_self_rag(
    llm: ReflectionLLM | Model,
    retriever: Retriever | None = None,
    *,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: SelfRAGSettings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
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
            None if every input brings its documents.
        reranker: a LangChain document compressor that reorders or drops retrieved passages.
        follow_up: a model that rewrites questions of later turns to stand alone, from the
            ``messages`` before them; None answers each as it is.
        settings: defaults for every run; ``context=`` overrides them field by field.
        retry_policy: for nodes that call a model or the retriever, before anything is written.
        checkpointer: keeps threads; None keeps nothing.
        cache: keeps the results of nodes that call the model
            (:func:`~selfcorrect_rag.nodes.node.cache_policy`); None disables caching.
        interrupt_before: nodes to pause before.
        interrupt_after: nodes to pause after.
        name: as shown in traces.

    Returns:
        A compiled graph. Its input is :class:`~selfcorrect_rag.state.Input`, its output
        :class:`~selfcorrect_rag.state.SelfRAGOutput`, its context
        :class:`~selfcorrect_rag.settings.SelfRAGSettings` or a dict of some of its fields.

    Raises:
        BadArgument: an argument is of the wrong kind.
        BadSettings: ``settings`` are another graph's.
    """
    graph = self_rag_builder(
        llm,
        retriever,
        reranker=reranker,
        follow_up=follow_up,
        settings=settings,
        retry_policy=retry_policy,
        cached=cache is not None,
    )
    return graph.compile(
        checkpointer=checkpointer,
        cache=cache,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        name=name,
        transformers=[CustomTransformer],
    )


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
    """Return Self-RAG's graph before it is compiled, to which nodes can be added.

    Arguments are :func:`create_self_rag`'s; ``cached`` gives the nodes that call the model a cache
    policy, for ``compile(cache=...)``.
    """
    model, chosen = as_reflection_llm(llm), SelfRAGSettings.of(settings)
    graph: StateGraph[SelfRAGState, Any, Input, SelfRAGOutput] = StateGraph(
        SelfRAGState, SelfRAGSettings, input_schema=Input, output_schema=SelfRAGOutput
    )
    decide, write = decide_retrieval(model, chosen), generate_and_critique(model, chosen)
    decide_policy = write_policy = None
    if cached:
        decide_policy = cache_policy(
            decide, model, [], lambda state, chosen: limit_on_decision(model, state, chosen)
        )
        write_policy = cache_policy(
            write,
            model,
            ["beams", "passages", "candidates", "depth"],
            lambda state, chosen: batch_of(model, state, chosen),
        )
    add_node(graph, read_question(chosen))
    add_node(graph, decide, retry_policy=retry_policy, cache_policy=decide_policy)
    add_node(graph, retrieve(retriever, chosen), retry_policy=retry_policy)
    add_node(graph, judge_sufficiency(model, chosen), retry_policy=retry_policy)
    add_node(graph, write, retry_policy=retry_policy, cache_policy=write_policy)
    add_node(graph, beam_select(model, chosen))
    add_node(graph, write_answer(chosen, llm=model))

    graph.add_edge(START, "read_question")
    if follow_up is None:
        graph.add_edge("read_question", "decide_retrieval")
    else:
        add_node(graph, rewrite_follow_up(follow_up, chosen), retry_policy=retry_policy)
        graph.add_edge("read_question", "rewrite_follow_up")
        graph.add_edge("rewrite_follow_up", "decide_retrieval")
    graph.add_conditional_edges(
        "decide_retrieval",
        _next_segment,
        {"retrieval": "retrieve", "no retrieval": "generate_and_critique"},
    )
    if reranker is not None:
        add_node(graph, rerank(reranker, chosen), retry_policy=retry_policy)
        graph.add_edge("retrieve", "rerank")
    graph.add_conditional_edges(
        "retrieve" if reranker is None else "rerank",
        _after_retrieval,
        {
            "judge": "judge_sufficiency",
            "continue": "generate_and_critique",
            "cut short": "write_answer",
        },
    )
    graph.add_conditional_edges(
        "judge_sufficiency",
        lambda state: "refuse" if state["answer"] else "continue",
        {"refuse": END, "continue": "generate_and_critique"},
    )
    graph.add_conditional_edges(
        "generate_and_critique",
        lambda state: "cut short" if is_ended(state) else "continue",
        {"continue": "beam_select", "cut short": "write_answer"},
    )
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
    return graph


def _next_segment(state: SelfRAGState) -> str:
    wanted = {beam["next"] for beam in state["beams"]}
    if "retrieve" in wanted:
        return "retrieval"
    return "done" if wanted == {None} else "no retrieval"


def _after_retrieval(state: SelfRAGState) -> str:
    if is_ended(state):  # a retriever that failed late has ended the beams that asked
        return "cut short"
    return "judge" if needs_judgement(state) else "continue"
