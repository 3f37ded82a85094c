"""Every node works alone and in a graph of one's own, with only the keys that it needs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langgraph.graph import StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from selfcorrect_rag.errors import (
    BadArgument,
    NoCheckpointer,
    RetrievalFailed,
)
from selfcorrect_rag.nodes.beam_select import beam_select
from selfcorrect_rag.nodes.choose_demonstrations import choose_demonstrations
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.generate import generate, read_answer
from selfcorrect_rag.nodes.generate_and_critique import generate_and_critique
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.nodes.judge_sufficiency import judge_sufficiency
from selfcorrect_rag.nodes.read_knowledge import read_knowledge
from selfcorrect_rag.nodes.read_question import read_question
from selfcorrect_rag.nodes.read_rationale import read_rationale
from selfcorrect_rag.nodes.recompose_knowledge import recompose_knowledge
from selfcorrect_rag.nodes.refine_strips import refine_strips, select_web_strips
from selfcorrect_rag.nodes.rerank import rerank
from selfcorrect_rag.nodes.retrieve import retrieve
from selfcorrect_rag.nodes.retrieve_documents import retrieve_documents
from selfcorrect_rag.nodes.rewrite_follow_up import rewrite_follow_up
from selfcorrect_rag.nodes.rewrite_query import rewrite_query
from selfcorrect_rag.nodes.web_search import web_search
from selfcorrect_rag.nodes.write_answer import write_answer
from selfcorrect_rag.nodes.write_rationale import write_rationale
from selfcorrect_rag.settings import CRAGSettings, Settings
from tests.crag_runs import WordEvaluator
from tests.nodes.one_node import beam, candidate
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, segment, timeless
from tests.test_crag import Reversing

QUESTION = "Who wrote Emma?"
PAGES = [Document("Emma is by Jane Austen.", metadata={"title": "Emma"})]
SHOWN = [{"question": "Who wrote Ulysses?", "rationale": "Joyce wrote it."}]


def reflecting() -> ScriptedReflectionLLM:
    return ScriptedReflectionLLM(write=lambda _: segment("Austen.", RELEVANT, FULL, USEFUL))


def chat(text: str = "Jane Austen [1].") -> FakeListChatModel:
    return FakeListChatModel(responses=[text])


def search(query: str) -> list[Document]:
    return PAGES


ENDED = beam(candidate("Austen."), next=None)
STRIPS = [{"document": 0, "text": "Emma is by Jane Austen.", "score": 1.0, "kept": True}]
NODES: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "read_question": (
        lambda: read_question(Settings()),
        {"question": QUESTION},
        "original_question",
    ),
    "rewrite_follow_up": (
        lambda: rewrite_follow_up(chat("Who wrote it?")),
        {"question": "And it?", "messages": [("human", "Hello"), ("ai", "Hi")]},
        "question",
    ),
    "decide_retrieval": (lambda: decide_retrieval(reflecting()), {"question": QUESTION}, "beams"),
    "retrieve": (lambda: retrieve(search), {"question": QUESTION}, "passages"),
    "retrieve_documents": (
        lambda: retrieve_documents(search),
        {"question": QUESTION},
        "passages",
    ),
    "generate_and_critique": (
        lambda: generate_and_critique(reflecting()),
        {"question": QUESTION, "passages": PAGES},
        "candidates",
    ),
    "beam_select": (
        lambda: beam_select(reflecting()),
        {
            "question": QUESTION,
            "passages": PAGES,
            "candidates": [candidate("Austen.")],
            "beams": [beam(retrieved=[0])],
        },
        "beams",
    ),
    "write_answer": (
        write_answer,
        {"question": QUESTION, "passages": PAGES, "beams": [ENDED]},
        "cited_answer",
    ),
    "read_knowledge": (read_knowledge, {"question": QUESTION, "knowledge": PAGES}, "beams"),
    "grade_documents": (
        lambda: grade_documents(WordEvaluator()),
        {"question": QUESTION, "passages": PAGES},
        "action",
    ),
    "refine_strips": (
        lambda: refine_strips(WordEvaluator()),
        {"question": QUESTION, "passages": PAGES},
        "strips",
    ),
    "select_web_strips": (
        lambda: select_web_strips(WordEvaluator()),
        {"question": QUESTION, "web_results": PAGES},
        "web_strips",
    ),
    "rewrite_query": (rewrite_query, {"question": QUESTION}, "web_query"),
    "web_search": (lambda: web_search(search), {"question": QUESTION}, "web_results"),
    "recompose_knowledge": (
        recompose_knowledge,
        {
            "question": QUESTION,
            "branches": ["refine"],
            "passages": PAGES,
            "strips": STRIPS,
            "web_results": PAGES,
            "web_strips": STRIPS,
        },
        "knowledge",
    ),
    "judge_sufficiency": (
        lambda: judge_sufficiency(chat("yes")),
        {"question": QUESTION, "passages": PAGES},
        "sufficiency",
    ),
    "generate": (lambda: generate(chat()), {"question": QUESTION, "knowledge": PAGES}, "written"),
    "read_answer": (
        lambda: read_answer(chat()),
        {"question": QUESTION, "knowledge": PAGES, "written": "Austen [1]."},
        "answer",
    ),
    "rerank": (
        lambda: rerank(Reversing()),
        {"question": QUESTION, "passages": PAGES},
        "passages",
    ),
    "choose_demonstrations": (
        lambda: choose_demonstrations(SHOWN),  # type: ignore[arg-type]
        {"question": QUESTION},
        "demonstrations",
    ),
    "write_rationale": (
        lambda: write_rationale(chat()),
        {"question": QUESTION, "passages": PAGES},
        "written",
    ),
    "read_rationale": (
        read_rationale,
        {
            "question": QUESTION,
            "written": "Document [1] says so. Therefore, the answer is Jane Austen.",
            "passages": PAGES,
            "numbering": [0],
        },
        "answer",
    ),
}
DOCUMENTS = ("passages", "web_results", "knowledge")
EVERY = pytest.mark.parametrize("name", NODES)
OURS = ("route", "usage", "reply_id", "streamed")
"""What differs from run to run, and what a graph of one's own does not have."""


@EVERY
def test_alone_sync_and_async_alike(name: str) -> None:
    make, state, key = NODES[name]
    update = make().invoke(state)
    again = asyncio.run(make().ainvoke(state))
    assert update[key]
    first, second = ({k: v for k, v in u.items() if k not in OURS} for u in (update, again))
    assert timeless(first) == timeless(second)
    (step,) = getattr(update["route"], "value", update["route"])
    assert step["failed"] is None


@EVERY
def test_in_a_graph_with_only_its_keys(name: str) -> None:
    make, state, key = NODES[name]
    schema: Any = TypedDict("schema", dict.fromkeys([*state, key], Any))  # type: ignore[misc]
    builder = StateGraph(schema)
    builder.add_node("mine", make())
    builder.set_entry_point("mine")
    graph: Any = builder.compile()
    alone = make().invoke(state)[key]
    assert graph.invoke(state)[key] == alone
    assert asyncio.run(graph.ainvoke(state))[key] == alone


@dataclass
class Given:
    question: str
    passages: list[Document]


class GivenModel(BaseModel):
    question: str
    passages: list[Document]


@pytest.mark.parametrize("kind", [Given, GivenModel])
def test_a_state_may_be_a_dataclass_or_a_model(kind: Any) -> None:
    given = kind(question=QUESTION, passages=PAGES)
    assert grade_documents(WordEvaluator()).invoke(given)["action"]


@pytest.mark.parametrize(
    "make",
    [rewrite_follow_up, decide_retrieval, generate_and_critique, generate, write_rationale],
)
def test_what_is_no_model_is_refused_when_the_node_is_made(make: Callable[..., Any]) -> None:
    with pytest.raises(BadArgument, match="must be"):
        make(search)


def test_a_search_that_must_be_approved_is_not_made_where_nobody_can_be_asked() -> None:
    node = web_search(lambda query: pytest.fail("searched"), CRAGSettings(approve_search=True))
    with pytest.raises(NoCheckpointer):
        node.invoke({"question": QUESTION})


def test_faults_and_the_limit_of_time_hold_alone() -> None:
    def down(query: str) -> list[Document]:
        raise ConnectionError("down")

    with pytest.raises(RetrievalFailed, match="down"):
        retrieve(down).invoke({"question": QUESTION})
    assert retrieve_documents(down).invoke({"question": QUESTION})["passages"] == []
