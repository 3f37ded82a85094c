"""The factories' arguments: forms of each argument, for each factory."""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.cache.memory import InMemoryCache
from langgraph.types import RetryPolicy

from selfcorrect_rag.errors import BadArgument, BadSettings, EvaluatorFailed, NoDocument
from selfcorrect_rag.models import from_name
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.nodes.refine_strips import (
    recompose_knowledge,
    refine_strips,
    select_web_strips,
)
from selfcorrect_rag.nodes.retrieve import retrieve, retrieve_documents
from selfcorrect_rag.nodes.rewrite_query import rewrite_query
from selfcorrect_rag.nodes.web_search import web_search
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.nodes.write_rationale import choose_demonstrations, write_rationale
from selfcorrect_rag.settings import GRAPHS as GRAPH_SETTINGS
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings, SelfRAGSettings
from tests.crag_runs import WordEvaluator
from tests.four_graphs import ALL, create
from tests.providers import chat
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, segment
from tests.test_faults import FORMS, stream

TEXT = "Emma is by Jane Austen."
PAGES = [Document(TEXT, metadata={"title": "Emma"})]
SAID = "Jane Austen [1]."
ASK: Any = {"question": "Who wrote Emma?"}


def find(query: str) -> list[Document]:
    return PAGES


async def afind(query: str) -> list[Document]:
    return PAGES


def store() -> InMemoryVectorStore:
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    made.add_documents([Document(f"{TEXT} {i}") for i in range(11)])
    return made


class Broken(FakeListChatModel):
    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise ConnectionError("down")


def run(graph: Any, asynchronous: bool = False, **options: Any) -> dict[str, Any]:
    if asynchronous:
        return dict(asyncio.run(graph.ainvoke(ASK, **options)))
    return dict(graph.invoke(ASK, **options))


def make(name: str, llm: Any = None, retriever: Any = find, **given: Any) -> Any:
    """A graph with ``given`` in place of its usual arguments."""
    corrected = given.pop("evaluator", WordEvaluator()), given.pop("web_search", find)
    reflecting = ScriptedLLM(write=lambda _: segment("Austen.", RELEVANT, FULL, USEFUL))
    return create(name, llm or reflecting, llm or chat(SAID), retriever, *corrected, **given)


GRAPHS = pytest.mark.parametrize("name", ALL)
MODELS: dict[str, Any] = {
    "name": lambda: "acme:talker",
    "fallbacks": lambda: Broken(responses=["x"]).with_fallbacks([chat(SAID)]),
    "alternatives": lambda: chat(SAID).configurable_alternatives(
        ConfigurableField(id="which"), other=Broken(responses=["x"])
    ),
    "bound": lambda: chat(SAID).bind(stop=["\n"]),
}


@tool
def plain(query: str) -> str:
    """Search."""
    return TEXT


@GRAPHS
def test_a_vector_store_or_an_async_function_retrieves(name: str) -> None:
    graph = make(name, retriever=store())
    for asynchronous in (False, True):
        result = run(graph, asynchronous, context={"passages": 6})
        assert [TEXT in d.page_content for d in result["passages"]] == [True] * 6
    assert len(run(graph)["passages"]) == 5
    graph = make(name, retriever=store(), settings={"passages": 7})
    assert len(run(graph)["passages"]) == 7
    graph = make(name, retriever=afind)
    assert run(graph, True)["passages"] == PAGES
    with pytest.raises(NoDocument, match="is async: run the graph with ainvoke or astream"):
        run(graph)


@GRAPHS
@pytest.mark.parametrize("form", MODELS)
def test_models(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_name, "find_language_model", lambda name: chat(SAID))
    graph = make(name, MODELS[form](), follow_up=MODELS[form]())
    for asynchronous in (False, True):
        assert "Jane Austen" in run(graph, asynchronous)["answer"]


@GRAPHS
def test_a_follow_up_is_rewritten_before_anything_is_retrieved(name: str) -> None:
    queries: list[str] = []
    graph = make(name, retriever=lambda q: queries.append(q) or PAGES, follow_up=chat("And when?"))
    graph.invoke({"messages": [("user", "Who?"), ("ai", "Jane."), ("user", "When?")]})
    assert queries == ["And when?"]


def test_settings_of_either_graph_are_a_context_of_self_crag() -> None:
    graph = make("self_crag", settings={"rewrite": False})
    for settings in (SelfRAGSettings(mode="always"), CRAGSettings(passages=3)):
        assert run(graph, context=settings)["web_query"] == ASK["question"]


CALLING = {
    "self_rag": "decide_retrieval generate_and_critique retrieve",
    "crag": "grade_documents refine_strips select_web_strips retrieve rewrite_query web_search "
    "generate",
    "self_crag": "decide_retrieval generate_and_critique grade_documents refine_strips "
    "select_web_strips retrieve rewrite_query web_search",
    "instruct_rag": "retrieve write_rationale",
}
UNCACHED = {"retrieve", "rewrite_query", "web_search", "generate", "write_rationale"}
READ = {"decide_retrieval": set[str](), "select_web_strips": {"web_results"}}
"""Keys of the state on which a cached result depends, by node, if it is not the passages."""
KEYS = ("beams", "candidates", "knowledge", "passages", "web_results")


@GRAPHS
def test_nodes_that_call_are_retried_and_cached_unless_they_answer_or_search(name: str) -> None:
    calling, policy = {*CALLING[name].split()}, RetryPolicy(max_attempts=2)
    given = {"retry_policy": policy, "cache": InMemoryCache(), "follow_up": chat(SAID)}
    for options, retried, cached in (
        (given, calling | {"rewrite_follow_up"}, calling - UNCACHED),
        ({}, set[str](), set[str]()),
    ):
        graph = make(name, **options)
        builder, nodes = graph.builder, graph.builder.nodes
        schemas = (builder.input_schema, builder.output_schema, builder.context_schema)
        kind = GRAPH_SETTINGS[name].graph.replace("-", "")
        assert [s.__name__ for s in schemas] == ["Input", f"{kind}Output", f"{kind}Settings"]
        assert graph.name == name
        tries = {n: each.retry_policy[3] for n, each in nodes.items() if each.retry_policy}
        assert tries == dict.fromkeys(retried, 2)
        assert {n for n in nodes if nodes[n].cache_policy} == cached
        assert all(nodes[n].retry_policy is None for n in nodes.keys() - retried)
        source = "knowledge" if name == "self_crag" else "passages"
        read = {**READ, "generate_and_critique": {"beams", "candidates", source}}
        for node in cached:
            key = nodes[node].cache_policy.key_func
            assert {k for k in KEYS if key({k: [1]}) != key({})} == read.get(node, {"passages"})


SETTINGS: list[tuple[Any, Any]] = [
    *((node, SelfRAGSettings(passages=3)) for node in (
        partial(retrieve, find),
        partial(decide_retrieval, chat(SAID)),
        partial(generate_and_critique, chat(SAID)),
        partial(beam_select, chat(SAID)),
        write_answer,
    )),
    *((node, CRAGSettings(passages=3)) for node in (
        partial(retrieve_documents, find),
        partial(grade_documents, WordEvaluator()),
        partial(refine_strips, WordEvaluator()),
        partial(select_web_strips, WordEvaluator()),
        partial(rewrite_query, None),
        partial(web_search, find),
        recompose_knowledge,
        partial(generate, chat(SAID)),
    )),
    *((node, InstructRAGSettings(passages=3)) for node in (
        partial(choose_demonstrations, []),
        partial(write_rationale, chat(SAID)),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("node", "settings"), SETTINGS)
def test_a_node_alone_takes_settings_or_their_defaults(node: Any, settings: Any) -> None:
    assert (node(settings).settings, node().settings) == (settings, type(settings)())


REFUSED: list[tuple[str, Any, str]] = [
    ("llm", store().as_retriever(), "llm must be .*, got VectorStoreRetriever"),
    ("retriever", chat(SAID), "FakeListChatModel"),
    ("retriever", plain, "StructuredTool"),
    ("retriever", lambda: PAGES, "function"),
    ("reranker", find, "reranker must be a LangChain document compressor, got function"),
    ("follow_up", find, "follow_up must be .*, got function"),
]
REFUSED_CORRECTION: list[tuple[str, Any, str]] = [
    ("evaluator", find, "evaluator must be .*, got function"),
    ("web_search", chat(SAID), "web_search must be .* got FakeListChatModel"),
    ("rewriter", 7, "rewriter must be .*, got int"),
    ("strip_filter", 0.5, "strip_filter must be a function, got float"),
]


@GRAPHS
def test_what_does_not_fit_is_refused(name: str) -> None:
    for argument, given, message in (*REFUSED, *(REFUSED_CORRECTION if "crag" in name else ())):
        with pytest.raises(BadArgument, match=message):
            make(name, **{argument: given})


@GRAPHS
def test_a_setting_among_the_arguments_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(BadSettings, match=r'passages: .* settings=\{"passages": ...\}'):
        make(name, passages=3)


def test_a_strip_filter_of_ones_own(recwarn: pytest.WarningsRecorder) -> None:
    long = [Document("".join(f"{n} is named in this sentence. " * 3 for n in ("Emma", "Nobody")))]

    async def keep(question: str, strips: list[str]) -> list[bool]:
        return ["Emma" in strip for strip in strips]

    class Never(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            assert len(passages) == 1, "strips are the filter's"
            return [1.0]

    options: dict[str, Any] = {"retriever": lambda query: long, "evaluator": Never()}
    graph = make("crag", **options, strip_filter=keep)
    strips = run(graph, True)["strips"]
    scored = [(s["text"][:6], s["score"], s["kept"]) for s in strips]
    assert scored == [("Emma i", 1.0, True), ("Nobody", -1.0, False)]
    with pytest.raises(EvaluatorFailed, match="filter is async; run the graph with ainvoke"):
        run(graph)
    gc.collect()
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


@FORMS
@pytest.mark.parametrize("name", ["crag", "self_crag"])
async def test_models_that_own_parts_ask_are_counted_and_not_heard(name: str, form: str) -> None:
    """A web search, a filter of strips, a rewriter, a retriever, an evaluator."""

    def asking(part: str, result: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any) -> Any:
            chat(f"Not heard, {part}.").invoke("?")
            return result(*given)

        return ask

    class Asks(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            chat("Not heard, evaluator.").invoke("?")
            return super().score(question, passages)

    parts = {"web_search": asking("web", find), "rewriter": asking("rewriter", str)}
    retriever = asking("retriever", lambda query: [Document("Of Ulysses.")])
    graph = make(name, retriever=retriever, evaluator=Asks(), **parts)
    filtered = make(name, strip_filter=asking("filter", lambda q, strips: [True]))
    costs = {"retrieve": 1, "grade_documents": 1, "rewrite_query": 1, "web_search": 1}
    selecting = {"select_web_strips": 1}
    for its, counted, kept in ((graph, costs | selecting, False), (filtered, selecting, True)):
        parts = await stream(its, form, ASK, stream_mode=["messages", "values"])
        said = "".join(part[0].text for mode, part in parts if mode == "messages")
        assert "Austen" in said
        assert "Not heard" not in said
        result = [part for mode, part in parts if mode == "values"][-1]
        assert [strip["kept"] for strip in result["web_strips"]] == [kept]
        route = result["route"]
        assert {r["step"]: r["model_calls"] for r in route if r["step"] in counted} == counted
