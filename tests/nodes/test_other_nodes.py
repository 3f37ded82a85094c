"""The reranker of retrieve, and rewrite_follow_up."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.nodes.read_question import rewrite_follow_up
from tests.crag_runs import WordEvaluator
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, document, passage_of, segment
from tests.test_node import both, chat, invoke

A, B = DOCUMENTS = [document("A"), document("B")]
THREAD: Any = {"configurable": {"thread_id": "1"}}


class Reversing(BaseDocumentCompressor):
    """Keeps the last two documents, best last."""

    fails: bool = False

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        if self.fails:
            raise ValueError("no reranker today")
        return [*reversed(documents)][:2]


def ranked(reranker: Any, asynchronous: bool, **given: Any) -> Any:
    llm = ScriptedReflectionLLM(write=lambda p: segment(passage_of(p), RELEVANT, FULL))
    graph = create_self_rag(llm, lambda _: [document(t) for t in "ABC"], reranker=reranker)
    return invoke(graph, {"question": "Who?", **given}, asynchronous)


@both
def test_answers_are_written_from_what_the_reranker_kept(asynchronous: bool) -> None:
    result = ranked(Reversing(), asynchronous)
    assert [c["text"] for c in result["candidates"]] == ["C", "B"]
    given = ranked(Reversing(), asynchronous, documents=[document(t) for t in "XYZ"])
    assert [c["text"] for c in given["candidates"]] == ["Z", "Y"]
    evaluator = WordEvaluator()
    crag = create_crag(chat("Yes."), lambda _: [A, A, B], evaluator, reranker=Reversing())
    assert invoke(crag, {"question": "Who?"}, asynchronous)["passages"] == [B, A]
    assert evaluator.calls[0] == ["B // About B.", "About A."]


@both
def test_a_failing_reranker_leaves_the_passages(asynchronous: bool) -> None:
    result = ranked(Reversing(fails=True), asynchronous)
    assert [c["passage"] for c in result["candidates"]] == [0, 1, 2]
    assert "the reranker raised ValueError: no reranker today" in result["notes"][0]


EARLIER = [HumanMessage("Who built it?"), ToolMessage("x", tool_call_id="1"), AIMessage("Ann.")]


@both
def test_a_follow_up_is_rewritten_from_the_conversation(asynchronous: bool) -> None:
    prompts, queries = list[str](), list[str]()
    llm = ScriptedReflectionLLM(write=lambda _: segment("Red.", RELEVANT, FULL))

    def rewrite(messages: Any) -> str:
        prompts.append(messages[-1].content)
        return "When was Ann born?"

    def find(query: str) -> list[Document]:
        queries.append(query)
        return DOCUMENTS

    model = RunnableLambda(rewrite)
    graph = create_self_rag(llm, find, follow_up=model, checkpointer=InMemorySaver())
    bound = graph.with_config(THREAD)
    for question in ("Who built it?", "When was she born?"):
        result = invoke(bound, {"messages": [("user", question)]}, asynchronous)
    assert queries == ["Who built it?", "When was Ann born?"], "a first turn is not rewritten"
    assert result["question"] == "When was Ann born?"
    assert result["original_question"] == "When was she born?"
    (prompt,) = prompts
    assert "user: Who built it?\nassistant: Red. [1]" in prompt
    assert "When was she born?" in prompt


@both
@pytest.mark.parametrize(
    ("model", "note"),
    [
        (chat(" \n"), "was empty or too long"),
        (chat("x" * 1001), "was empty or too long"),
        (RunnableLambda(lambda _: 1 / 0), "raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_rewrite_that_fails_answers_the_original_question(
    model: Any, note: str, asynchronous: bool
) -> None:
    state = {"question": "And then?", "messages": [*EARLIER, HumanMessage("And then?")]}
    update = invoke(rewrite_follow_up(model), state, asynchronous)
    assert "standalone_question" not in update
    assert update["notes"][0].endswith(f"{note}; answered the original question")
