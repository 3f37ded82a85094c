"""Every sync call behaves as its async twin."""

from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.errors import NoQuestion, RetrievalFailed
from selfcorrect_rag.state import Segment
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    segment,
    timeless,
)

CONTEXTS: list[dict[str, Any]] = [
    {},
    {"mode": "always", "depth": 2},
    {"mode": "never"},
    {"closed_set": True},
    {"hard_constraints": ["[Fully supported]"]},
]


def write(prompt: str) -> Segment:
    going = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}
    if prompt.count("<paragraph>") == 1:
        return segment("One.", RELEVANT, FULL, next=going)
    return segment("Two.", RELEVANT, FULL, USEFUL)


def build() -> Any:
    documents = [document("A"), document("B")]
    return create_self_rag(ScriptedReflectionLLM(write=write), lambda query: documents)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
async def test_stream_and_astream(context: dict[str, Any]) -> None:
    graph = build()
    modes = ["updates", "custom", "values"]
    options: dict[str, Any] = {"stream_mode": modes, "context": context}
    question = {"question": "Who?"}
    now = list(graph.stream(question, **options))
    later = [chunk async for chunk in graph.astream(question, **options)]
    assert timeless(now) == timeless(later)


async def test_errors_are_the_same() -> None:
    def broken(query: str) -> list[Document]:
        raise TimeoutError("slow index")

    graph = create_self_rag(ScriptedReflectionLLM(write=write), broken)
    for question, error in (("", NoQuestion), ("Who?", RetrievalFailed)):
        with pytest.raises(error) as now:
            graph.invoke({"question": question})
        with pytest.raises(error) as later:
            await graph.ainvoke({"question": question})
        assert str(now.value) == str(later.value)


async def test_one_failure_leaves_the_others_answers() -> None:
    graph = build()
    questions = [{"question": "Who?"}, {"question": " "}, {"question": "Why?"}]
    results = await graph.abatch(questions, return_exceptions=True)
    assert isinstance(results[1], NoQuestion)
    assert [results[i]["answer"] for i in (0, 2)] == ["One. Two.", "One. Two."]
