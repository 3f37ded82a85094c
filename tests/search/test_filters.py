"""Filters of a run: what they let through, and that nothing gets around them."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.graph import START, StateGraph

from selfcorrect_rag.search import Index, RetrieverWebSearch
from selfcorrect_rag.search.index import Ranking
from selfcorrect_rag.search.retriever import AnyRetriever, BadFilter, compile_filter
from tests.crag_runs import WordEvaluator
from tests.four_graphs import ALL, create
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, echo, segment

from .stand_ins import Call, WordHash

DOCUMENTS = [
    Document("The plan of Ada.", metadata={"owner": "ada", "year": 2024, "tags": ["a", "b"]}),
    Document("The plan of Ben.", metadata={"owner": "ben", "year": 2026, "tags": ["b"]}),
    Document("The plan of nobody."),
]


def of(owner: Any) -> RunnableConfig:
    return {"configurable": {"filter": {"owner": owner}}}


@pytest.mark.parametrize(
    ("filter", "owners"),
    [
        ({"owner": "ada"}, ["ada"]),
        ({"owner": {"$in": ["ben", "eve"]}}, ["ben"]),
        ({"owner": {"$ne": "ada"}}, ["ben"]),
        ({"year": {"$gte": 2025}}, ["ben"]),
        ({"owner": "ada", "year": 2026}, []),
        ({"$or": [{"owner": "ada"}, {"year": {"$gt": 2024}}]}, ["ada", "ben"]),
        ({"$and": [{"owner": "ada"}]}, ["ada"]),
        ({"tags": {"$contains": "a"}}, ["ada"]),
        ({"owner": {"$lt": 7}}, []),
        ({"nothing": "x"}, []),
    ],
)
def test_filters_let_through(hybrid: Index, filter: dict[str, Any], owners: list[str]) -> None:
    hybrid.add(DOCUMENTS)
    for ranking in ("hybrid", "bm25"):
        found = hybrid.search("plan", 5, filter=filter, ranking=ranking)
        assert sorted(str(d.metadata.get("owner")) for d in found) == owners
    assert [d.metadata["owner"] for d in DOCUMENTS if compile_filter(filter)(d.metadata)] == owners


@pytest.mark.parametrize(
    "filter",
    [
        {},
        [],
        "owner",
        {"$where": 1},
        {"owner": {"$like": "a"}},
        {"owner": None},
        {"$or": []},
        {"year": {"$lt": None}},
        {"owner": {"$in": "adam"}},
        {"$or": [{"owner": "ada"}, {"owner": {"$like": "a"}}]},
    ],
)
def test_what_is_no_filter_is_refused(hybrid: Index, filter: Any) -> None:
    hybrid.add(DOCUMENTS)
    with pytest.raises(BadFilter):
        hybrid.search("plan", filter=filter)


def test_a_rare_match_is_found_behind_many_others(index: Index) -> None:
    index.add(Document(f"A plan {i}.", metadata={"owner": "ben"}) for i in range(400))
    index.add([Document("Another text about a plan of long ago.", metadata={"owner": "ada"})])
    ranking: Ranking = "dense" if index.embeddings else "bm25"
    assert len(index.search("A plan 7", 5, filter={"owner": "ada"}, ranking=ranking)) == 1


def test_copies_of_others_are_not_told(index: Index) -> None:
    index.add(
        Document("The same.", metadata={"source": f"/{owner}.md", "owner": owner})
        for owner in ("ada", "ben")
    )
    (found,) = index.search("same", filter={"owner": "ben"})
    assert (found.metadata["source"], found.metadata.get("sources")) == ("/ben.md", None)


class Careless(BaseRetriever):
    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return DOCUMENTS


@pytest.mark.parametrize(
    "make",
    [Careless, lambda: lambda query: DOCUMENTS, lambda: RunnableLambda(lambda query: DOCUMENTS)],
)
def test_a_retriever_that_ignores_the_filter_leaks_nothing(make: Any, call: Call) -> None:
    retriever = AnyRetriever(make())
    assert [d.metadata["owner"] for d in call(retriever, "invoke", "plan", of("ben"))] == ["ben"]
    assert len(call(retriever, "invoke", "plan", {})) == 3


def test_an_index_gets_the_filter(index: Index, call: Call) -> None:
    index.add(DOCUMENTS)
    for retriever in (index.as_retriever(1), AnyRetriever(index.as_retriever(1))):
        (found,) = call(retriever, "invoke", "plan", of("ben"))
        assert found.metadata["owner"] == "ben"
    web = RetrieverWebSearch(index.as_retriever(3))
    within = RunnableLambda(lambda query: web.search(query, 3))
    assert len(within.invoke("plan", of("ben"))) == 1


def test_a_store_gets_the_filter_in_its_own_language(call: Call) -> None:
    store = InMemoryVectorStore(WordHash())
    store.add_documents(DOCUMENTS)
    retriever = AnyRetriever(store)
    assert [d.metadata["owner"] for d in call(retriever, "invoke", "plan", of("ben"))] == ["ben"]
    own: Any = {"configurable": {"filter": lambda document: "Ada" in document.page_content}}
    assert len(call(retriever, "invoke", "plan", own)) == 1
    with pytest.raises(BadFilter):
        call(AnyRetriever(Careless()), "invoke", "plan", own)


def test_a_function_may_take_the_filter_or_the_config(call: Call) -> None:
    seen: list[Any] = []

    def by_filter(query: str, filter: Any = None) -> list[Document]:
        seen.append(filter)
        return DOCUMENTS

    def by_config(query: str, config: RunnableConfig) -> list[Document]:
        seen.append(config["configurable"]["filter"])
        return DOCUMENTS

    for function in (by_filter, by_config):
        assert len(call(AnyRetriever(function), "invoke", "plan", of("ada"))) == 1
    assert seen == [{"owner": "ada"}, {"owner": "ada"}]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("by", ["config", "context of a parent"])
def test_a_runs_filter_holds_in_every_retrieval(name: str, call: Call, by: str) -> None:
    seen: list[Any] = []

    def find(query: str, filter: Any = None) -> list[Document]:
        seen.append(filter)
        return DOCUMENTS

    again = segment("Once more.", RELEVANT, FULL, USEFUL, next={"[Retrieval]": 1.0})
    llm, web = ScriptedLLM(write=lambda prompt: again), RetrieverWebSearch(find)
    graph = create(name, llm, echo(), find, WordEvaluator(), web)
    options: Any = {"config": of("ada")}
    if by != "config":
        parent = StateGraph(dict, context_schema=dict)
        parent.add_node("ask", graph)
        graph = parent.add_edge(START, "ask").compile()
        options = {"context": {"filter": {"owner": "ada"}}}
    result = call(graph, "invoke", {"question": "What is the plan?"}, **options)
    assert seen == [{"owner": "ada"}] * len(seen)
    assert len(seen) > 1 or name == "instruct_rag"
    assert {d.metadata.get("owner") for d in result["passages"]} == {"ada"}
