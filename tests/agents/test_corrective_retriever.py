"""CRAG's correction as a retriever."""

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from selfcorrect_rag import CorrectiveRetriever
from selfcorrect_rag.errors import BadSettings
from tests.crag_runs import AMBIGUOUS, CORRECT, PagesSearch, WordEvaluator, document, run
from tests.scripted import THREAD


def corrective(*texts: str, **options: Any) -> CorrectiveRetriever:
    found = [document(text) for text in texts]
    return CorrectiveRetriever(lambda query: found, WordEvaluator(), PagesSearch(), **options)


def found(retriever: Any, query: str = "Who wrote Emma?") -> list[Document]:
    """Return its documents, sync and async alike."""
    documents: list[Document] = retriever.invoke(query)
    assert asyncio.run(retriever.ainvoke(query)) == documents
    return documents


def test_the_filter_of_a_run_holds() -> None:
    within: Any = {"configurable": {"filter": {"title": "Gold 2."}}}
    retriever = corrective("Gold 1.", "Gold 2.")
    found = [retriever.invoke("Who?", within), asyncio.run(retriever.ainvoke("Who?", within))]
    inside = StateGraph(MessagesState, dict[str, Any]).add_edge(START, "ask")
    inside.add_node("ask", lambda state: found.append(retriever.invoke("Who?")) or {"messages": []})
    inside.compile().invoke({"messages": []}, context=within["configurable"])
    assert [[d.page_content for d in some] for some in found] == [["Gold 2."]] * 3


WEB = ("Gold of the web.", 0.9, "external")
UNSCORED = [(text, None, "external") for text in ("Gold of the web.", "Worthless.")]


@pytest.mark.parametrize(
    ("texts", "settings", "action", "wanted"),
    [
        (CORRECT, {}, "correct", [("Gold is here.", 0.9, "internal")]),
        (AMBIGUOUS, {}, "ambiguous", [("Vague words.", 0.0, "internal"), WEB]),
        ([], {}, "incorrect", [WEB]),
        (["Noise."], {"select": False}, "incorrect", UNSCORED),
    ],
)
def test_what_is_kept_and_why(texts: list[str], settings: Any, action: str, wanted: Any) -> None:
    documents = found(corrective(*texts, settings=settings))
    data = [(d.page_content, d.metadata) for d in documents]
    assert [(text, m["relevance_score"], m["knowledge"]) for text, m in data] == wanted
    assert {m["action"] for _, m in data} == {action}
    assert [d.page_content for d in run(texts, **settings)["knowledge"]] == [t for t, _ in data]


def test_what_was_judged_irrelevant_is_left_out() -> None:
    """CRAG's answer is written from it all the same, and does not cite it."""
    nothing: Any = {"settings": {"strip_threshold": 1.0}}
    assert found(corrective("Gold.", **nothing)) == []
    assert run(["Gold."], strip_threshold=1.0)["knowledge"]
    low: Any = {"settings": {"strip_threshold": -1.0, "lower": 0.5, "upper": 0.6}}
    assert [d.page_content for d in found(corrective("Gold.", "Vague.", **low))] == ["Gold."]


def calling(retriever: Any, **options: Any) -> Any:
    def look(state: Any) -> Any:
        found = retriever.invoke("Who?")
        return {"messages": [AIMessage(d.page_content, name=d.metadata["action"]) for d in found]}

    outer = StateGraph(MessagesState, context_schema=dict)
    outer.add_node("look", look)
    outer.add_edge(START, "look")
    return outer.compile(**options)


def test_its_own_settings_count_in_a_graph_with_others() -> None:
    graph = calling(corrective("Gold.", settings={"upper": 0.95}))
    result = graph.invoke({"messages": []}, context={"upper": 0.1, "web_results": 1})
    assert [m.name for m in result["messages"]] == ["ambiguous", "ambiguous"]


def test_a_person_approves_where_the_outer_graph_has_a_checkpointer() -> None:
    retriever = corrective("Noise.", settings={"approve_search": True})
    with pytest.raises(BadSettings, match="needs a checkpointer"):
        retriever.invoke("Who?")
    graph = calling(retriever, checkpointer=InMemorySaver())
    assert graph.invoke({"messages": []}, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume=True), THREAD)
    assert [m.content for m in result["messages"]] == ["Gold of the web."]


async def test_its_nodes_are_traced_below_it() -> None:
    events = corrective("Gold.").astream_events("Who?", version="v2")
    traced = [(event["name"], len(event["parent_ids"])) async for event in events]
    assert ("grade_documents", 2) in traced


def test_wrong_settings_are_refused_when_it_is_made() -> None:
    with pytest.raises(BadSettings, match="CRAG has no such setting"):
        corrective(settings={"uper": 1})
