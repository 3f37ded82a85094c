"""Documents that arrive as JSON: from a client, and into a thread that somebody edits."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_rag
from selfcorrect_rag.errors import NoDocument
from selfcorrect_rag.search.retriever import AnyRetriever
from selfcorrect_rag.intake import MOST_DOCUMENTS, aas_documents
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, echo, segment, timeless

WIRED: Any = {"page_content": "Gold.", "metadata": {"title": "G"}, "id": "1", "type": "Document"}
GOLD = Document("Gold.", metadata={"title": "G"}, id="1")


def build(graph: str, **options: Any) -> Any:
    def find(query: str) -> list[Document]:
        return [Document("Noise.")]

    match graph:
        case "self_rag":
            llm = ScriptedReflectionLLM(write=lambda p: segment("It is.", RELEVANT, FULL, USEFUL))
            return create_self_rag(llm, find, **options)
        case "crag":
            return create_crag(echo(), find, WordEvaluator(), PagesWebSearch(), **options)
        case _:
            return create_instruct_rag(echo(), find, **options)


GRAPHS = ["self_rag", "crag", "instruct_rag"]


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_callers_documents_as_json(graph: str) -> None:
    as_json = build(graph).invoke({"question": "What is it?", "documents": [WIRED]})
    assert as_json["passages"] == [GOLD]
    as_objects = build(graph).invoke({"question": "What is it?", "documents": [GOLD]})
    assert timeless(as_json) == timeless(as_objects)


@pytest.mark.parametrize("graph", GRAPHS)
def test_documents_of_a_thread_edited_as_json(graph: str) -> None:
    graph = build(graph, checkpointer=InMemorySaver(), interrupt_after=["retrieve"])
    thread: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"question": "What is it?"}, thread)
    graph.update_state(thread, {"passages": [WIRED]})
    result = graph.invoke(None, thread)
    assert result["passages"] == [GOLD]
    assert result["answer"]


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_turn_that_an_edit_begins_with_documents_as_json(graph: str) -> None:
    graph = build(graph, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    asked = {"question": "What is it?", "documents": [WIRED]}
    edited = graph.update_state(thread, asked, as_node="__start__")
    assert graph.invoke(None, edited)["passages"] == [GOLD]
    with pytest.raises(NoDocument, match="the input gave"):
        graph.update_state(thread, {**asked, "documents": 5}, as_node="__start__")


@pytest.mark.parametrize("wrong", ["text", {"text": "x"}, {"page_content": None}, 3])
@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_no_document(graph: str, wrong: Any) -> None:
    for given in ([WIRED, wrong], wrong):
        with pytest.raises(NoDocument, match=r"the input gave .*: give a list of Documents"):
            build(graph).invoke({"question": "What is it?", "documents": given})


def endless(query: str) -> Iterator[Document]:
    return (Document(f"{query} {n}") for n in count())


def endless_generator(query: str) -> Iterator[Document]:
    yield from endless(query)


async def endless_async(query: str) -> AsyncIterator[Document]:
    for document in endless(query):
        yield document


@pytest.mark.parametrize("retriever", [endless, endless_generator])
def test_documents_without_end_are_read_to_a_number(retriever: Any) -> None:
    found = AnyRetriever(retriever)
    assert len(found.invoke("q")) == MOST_DOCUMENTS
    assert len(asyncio.run(found.ainvoke("q"))) == MOST_DOCUMENTS


def test_async_documents_without_end_are_too() -> None:
    assert len(asyncio.run(AnyRetriever(endless_async).ainvoke("q"))) == MOST_DOCUMENTS
    assert len(asyncio.run(aas_documents(endless_async("q"), "a page"))) == MOST_DOCUMENTS
