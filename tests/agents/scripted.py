"""A chat model that calls tools as it is told, and graphs whose answers are known."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from pydantic import Field

from tests.crag_runs import PagesSearch, WordEvaluator
from tests.four_graphs import create
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, document, echo, passage_of, segment

SAID = "Jane Austen [1]."
PARTLY = {"[Partially supported]": 0.8, "[Fully supported]": 0.2}


class ScriptedAgentModel(BaseChatModel):
    """Replies by a function of the messages, and remembers what it read."""

    reply: Callable[[list[BaseMessage]], AIMessage]
    read: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted-agent"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.read.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])


def asking(name: str, *questions: str) -> ScriptedAgentModel:
    """A model that puts all questions to one tool at once, and then says what it read."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            said = [m for m in messages if isinstance(m, ToolMessage)]
            return AIMessage(" | ".join(str(m.content) for m in said[-len(questions) :]))
        calls = [ToolCall(name=name, args={"question": q}, id=f"call {q}") for q in questions]
        return AIMessage("", tool_calls=calls)

    return ScriptedAgentModel(reply=reply)


def saying(text: str = SAID, *tools: str, **fields: Any) -> ScriptedAgentModel:
    """A model that calls these tools at once, if there are any, and then says the text."""
    asked = {"question": "Who?"}
    calls = [ToolCall(name=name, args=asked, id=f"{i}") for i, name in enumerate(tools)]

    def reply(messages: list[BaseMessage]) -> AIMessage:
        if tools and not isinstance(messages[-1], ToolMessage):
            return AIMessage("", tool_calls=calls)
        return AIMessage(text, **fields)

    return ScriptedAgentModel(reply=reply)


def say(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def tool_messages(result: Any) -> list[ToolMessage]:
    return [m for m in result["messages"] if isinstance(m, ToolMessage)]


def reflecting(issup: Any = FULL, **fields: Any) -> ScriptedLLM:
    """Answers with the question and the title of the passage that it reads."""

    def write(prompt: str) -> Any:
        question = prompt.split("Instruction:\n")[1].split("\n\n###")[0]
        if "<paragraph>" not in prompt:
            return segment(f"Unread: {question}", USEFUL)
        judgements = [RELEVANT, *([] if issup is None else [issup]), USEFUL]
        return segment(f"{passage_of(prompt)} for {question}", *judgements)

    return ScriptedLLM(write=write, **fields)


def self_rag(issup: Any = FULL, retrieval: float = 0.9, **options: Any) -> Any:
    found = [document("Emma", source="notes"), document("Ulysses")]
    llm = reflecting(issup, retrieval=retrieval)
    return create("self_rag", llm, None, lambda query: found, **options)


def crag(text: str = "Gold is here.", llm: Any = None, **options: Any) -> Any:
    """Its answer is what it was given; ``text`` decides the action."""

    def find(query: str) -> list[Document]:
        return [document("Doc", f"{text} {query}", source="notes")]

    parts = find, WordEvaluator(), PagesSearch()
    return create("crag", None, llm or echo(), *parts, **options)


def self_crag(issup: Any = FULL, text: str = "Gold is here.", **options: Any) -> Any:
    found = [document("Doc", text, source="notes")]
    parts = (lambda query: found), WordEvaluator(), PagesSearch()
    return create("self_crag", reflecting(issup), None, *parts, **options)


def instruct_rag(rationale: str = "", **options: Any) -> Any:
    says = rationale or "Document [1] names the author. The answer is Jane Austen."
    llm, found = RunnableLambda(lambda messages: says), [document("Emma", source="notes")]
    return create("instruct_rag", None, llm, lambda query: found, **options)


GRAPHS: Sequence[Callable[..., Any]] = (self_rag, crag, self_crag, instruct_rag)


def unstated_names(answer: str, passages: Sequence[Document], question: str) -> Any:
    """The spans of names, but for first words, that no passage has."""
    stated = "".join(f"{passage.metadata} {passage.page_content}" for passage in passages)
    found = re.finditer(r"(?<=\w )[A-Z]\w+", answer)
    return [{"start": m.start(), "end": m.end()} for m in found if m[0] not in stated]
