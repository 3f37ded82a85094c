"""Anything that retrieves, as a graph's ``retriever`` and as its ``web_search``."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import ToolException, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests

from selfcorrect_rag.errors import BadArgument, ModelFailed, RetrievalFailed, WebSearchFailed
from selfcorrect_rag.search import Index, RetrieverWebSearch, as_web_search
from selfcorrect_rag.search.retriever import AnyRetriever

from .stand_ins import Call, WordHash

FOUND = [Document("Emma is by Jane Austen.", metadata={"title": "Novels"})]


class TestOfLangChain(RetrieversIntegrationTests):
    """LangChain's standard suite."""

    @pytest.fixture(autouse=True)
    def filled(self, tmp_path: Path) -> None:
        self.index = Index(tmp_path / "index", WordHash())
        self.index.add([Document(f"Passage number {i} of the book.") for i in range(10)])

    @property
    def retriever_constructor(self) -> Any:
        def construct(k: int = 5) -> BaseRetriever:
            return self.index.as_retriever(k=k)

        return construct

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {}

    @property
    def retriever_query_example(self) -> str:
        return "passage of the book"


class FindsWhenCalled:
    def __call__(self, query: str) -> tuple[Document, ...]:
        return tuple(FOUND)


@pytest.mark.parametrize(
    "retriever",
    [
        lambda query: FOUND,
        lambda query: [{"page_content": FOUND[0].page_content, "metadata": FOUND[0].metadata}],
        lambda query: (each for each in FOUND),
        FindsWhenCalled(),
        RunnableLambda(lambda query: FOUND),
    ],
)
def test_what_retrieves(retriever: Any, call: Call) -> None:
    assert call(AnyRetriever(retriever), "invoke", "Emma") == FOUND
    assert call(AnyRetriever(retriever), "batch", ["Emma", "Ulysses"]) == [FOUND, FOUND]


def test_a_store_gives_as_many_as_asked_and_an_index_at_most_its_own(index: Index) -> None:
    documents = [Document(f"Passage {i}.") for i in range(9)]
    store = InMemoryVectorStore(WordHash())
    store.add_documents(documents)
    index.add(documents)
    assert len(AnyRetriever(store).invoke("passage", k=7)) == 7
    assert len(AnyRetriever(index.as_retriever(3)).invoke("passage", k=7)) == 3
    assert len(AnyRetriever(index.as_retriever(8)).invoke("passage", k=2)) == 2


@pytest.mark.parametrize("wrong", [None, "text", lambda a, b: [], FakeListLLM(responses=[]), 7])
def test_what_is_no_retriever_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(BadArgument, match="retriever must be a LangChain retriever"):
        AnyRetriever(wrong)


@pytest.mark.parametrize("error", [StopIteration, KeyError, RuntimeError, ModelFailed])
def test_what_raises_is_a_typed_error_in_time(error: type[Exception], call: Call) -> None:
    def find(query: str) -> list[Document]:
        raise error("password=hunter22")

    with pytest.raises(RetrievalFailed, match="the retriever raised") as raised:
        call(AnyRetriever(find), "invoke", "Emma")
    assert "hunter22" not in str(raised.value)


def test_a_retriever_plays_the_web(call: Call) -> None:
    documents = [Document("a", metadata={"source": "own"}), Document("b"), Document("c")]
    web = RetrieverWebSearch(lambda query: documents, name="second corpus")
    found = call(web, "search", "Emma", 2)
    assert [d.page_content for d in found] == ["a", "b"]
    assert [d.metadata["source"] for d in found] == ["own", "second corpus"]


@pytest.mark.parametrize(
    "result",
    [
        "One.",
        ["One."],
        [{"title": "T", "url": "https://a.org", "content": "One."}],
        {"organic": [{"link": "https://a.org", "title": "T", "snippet": "One."}]},
        json.dumps({"results": [{"url": "https://a.org", "raw_content": None, "content": "One."}]}),
    ],
)
def test_results_of_search_tools_are_pages(result: Any, call: Call) -> None:
    @tool
    def find(query: str) -> Any:
        """Search."""
        return result

    web = as_web_search(find)
    (page,) = call(web, "search", "Emma", 5)
    assert (page.page_content, web.name) == ("One.", "find")
    assert page.metadata["source"] in ("https://a.org", "find")


def test_a_tool_that_fails_is_no_page(call: Call) -> None:
    @tool
    def find(query: str) -> str:
        """Search."""
        raise ToolException("no key")

    find.handle_tool_error = True
    for web in (as_web_search(find), as_web_search(lambda query: {"error": "no key"})):
        with pytest.raises(WebSearchFailed, match="no key"):
            call(web, "search", "Emma", 5)


def test_no_web_and_what_is_none() -> None:
    with pytest.raises(WebSearchFailed, match="there is no web search: give web_search="):
        as_web_search(None).search("Emma", 5)
    with pytest.raises(BadArgument, match=r"web_search must be a WebSearch .* got int"):
        as_web_search(7)
