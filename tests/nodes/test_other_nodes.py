"""The reranker of retrieve, and rewrite_follow_up."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.nodes.read_question import rewrite_follow_up
from selfcorrect_rag.nodes.retrieve import retrieve
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, document, passage_of, segment
from tests.test_node import both, invoke

DOCUMENTS = [document("A"), document("B")]
THREAD: Any = {"configurable": {"thread_id": "1"}}


# rerank


class Reversing(BaseDocumentCompressor):
    """Keeps the last two documents, best last."""

    fails: bool = False
    changes: str = ""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        if self.fails:
            raise ValueError("no reranker today")
        kept = [*reversed(documents)][:2]
        return [
            Document(d.page_content + self.changes, id=d.id, metadata={**d.metadata, "score": 1.0})
            for d in kept
        ]


def ranked(reranker: Any, *titles: str, asynchronous: bool = False, **given: Any) -> Any:
    llm = ScriptedReflectionLLM(write=lambda p: segment(passage_of(p), RELEVANT, FULL))
    graph = create_self_rag(llm, lambda _: [document(t) for t in titles], reranker=reranker)
    return invoke(graph, {"question": "Who?", **given}, asynchronous)


@both
def test_self_rag_writes_from_what_the_reranker_kept(asynchronous: bool) -> None:
    result = ranked(Reversing(), "A", "B", "C", asynchronous=asynchronous)
    assert [c["text"] for c in result["candidates"]] == ["C", "B"]
    given = ranked(Reversing(), documents=[document("X"), document("Y"), document("Z")])
    assert [c["text"] for c in given["candidates"]] == ["Z", "Y"]


@both
def test_a_failing_reranker_leaves_the_passages(asynchronous: bool) -> None:
    result = ranked(Reversing(fails=True), "A", "B", "C", asynchronous=asynchronous)
    assert [c["passage"] for c in result["candidates"]] == [0, 1, 2]
    assert "the reranker raised ValueError: no reranker today" in result["notes"][0]
    with pytest.raises(BadArgument, match="document compressor, got function"):
        retrieve(None, reranker=lambda documents, query: documents)  # type: ignore[arg-type]


# rewrite_follow_up

EARLIER = [HumanMessage("Who built it?"), ToolMessage("x", tool_call_id="1"), AIMessage("Ann.")]


def rewriter(prompts: list[str], text: str = "When was Ann born?") -> Any:
    def rewrite(messages: Any) -> AIMessage:
        prompts.append(messages[-1].content)
        return AIMessage(text)

    return RunnableLambda(rewrite)


@both
def test_a_follow_up_is_rewritten_from_the_conversation(asynchronous: bool) -> None:
    prompts: list[str] = []
    llm = ScriptedReflectionLLM(write=lambda _: segment("Red.", RELEVANT, FULL))
    queries: list[str] = []

    def find(query: str) -> list[Document]:
        queries.append(query)
        return DOCUMENTS

    graph = create_self_rag(llm, find, follow_up=rewriter(prompts), checkpointer=InMemorySaver())
    for question in ("Who built it?", "When was she born?"):
        asked: Any = {"messages": [("user", question)]}
        if asynchronous:
            result = asyncio.run(graph.ainvoke(asked, THREAD))
        else:
            result = graph.invoke(asked, THREAD)
    assert queries == ["Who built it?", "When was Ann born?"], "a first turn is not rewritten"
    assert result["question"] == "When was Ann born?"
    assert result["original_question"] == "When was she born?"
    (prompt,) = prompts
    assert "user: Who built it?\nassistant: Red. [1]" in prompt
    assert "When was she born?" in prompt


@both
@pytest.mark.parametrize("text", ["", " \n", "x" * 1001])
def test_an_unusable_rewrite_answers_the_original_question(text: str, asynchronous: bool) -> None:
    state = {"question": "And then?", "messages": [*EARLIER, HumanMessage("And then?")]}
    node = rewrite_follow_up(rewriter([], text))
    update = invoke(node, state, asynchronous)
    assert "standalone_question" not in update
    assert "answered the original question" in update["notes"][0]


@both
def test_a_failing_rewriter_answers_the_original_question(asynchronous: bool) -> None:
    def fail(_: Any) -> Any:
        raise ConnectionError("down")

    state = {"question": "And then?", "messages": [*EARLIER, HumanMessage("And then?")]}
    update = invoke(rewrite_follow_up(RunnableLambda(fail)), state, asynchronous)
    assert update["notes"] == [
        "rewriting the follow-up question failed: the model (RunnableLambda) raised "
        "ConnectionError: down; answered the original question"
    ]


def test_a_rule_is_not_a_model() -> None:
    with pytest.raises(BadArgument, match="follow_up"):
        rewrite_follow_up(lambda earlier, question: question)  # type: ignore[arg-type]
