"""Scripted chat models in the shapes that providers' answers have."""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

Piece = tuple[str, float] | tuple[str, float, dict[str, float]]
"""A token of an answer, its probability, and those of what could have stood in its place."""


class Refused(Exception):
    """A provider's error for an unknown option."""

    status_code = 400


class RateLimited(Exception):
    """A provider's error for too many calls."""

    status_code = 429

    def __init__(self) -> None:
        super().__init__("slow down")


def content(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Tokens as ``response_metadata["logprobs"]["content"]`` holds them."""
    tokens = []
    for text, p, *rest in pieces:
        odds = {text: p, **(rest[0] if rest else {})}
        top = [{"token": other, "logprob": math.log(q)} for other, q in odds.items()]
        tokens.append({**top[0], "top_logprobs": top})
    return tokens


class Provider(BaseChatModel):
    """Answers a prompt by a function of its text, and remembers prompts and options."""

    answer: Callable[[str], Any]
    """Gives text, tokens with probabilities, a message, or an error to raise."""
    takes: frozenset[str] = frozenset()
    """Options that it knows; others are ignored."""
    refuses: frozenset[str] = frozenset()
    """Options that it answers with an error."""
    calls: list[tuple[str, dict[str, Any]]] = Field(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def prompts(self) -> list[str]:
        return [prompt for prompt, _ in self.calls]

    @property
    def _llm_type(self) -> str:
        return "provider"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._message(messages, kwargs))])

    def _message(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        prompt = "\n".join(str(message.content) for message in messages)
        with self._lock:
            self.calls.append((prompt, options))
        if refused := self.refuses & options.keys():
            raise Refused(f"unknown: {sorted(refused)}")
        given = self.answer(prompt)
        if isinstance(given, Exception):
            raise given
        if isinstance(given, AIMessage):
            return given
        if isinstance(given, str):
            given = [(given, 1.0)] if given else []
        text = "".join(piece[0] for piece in given)
        usage = {"input_tokens": 10, "output_tokens": len(given), "total_tokens": 10 + len(given)}
        if "tools" in options:
            (tool,) = options["tools"]
            call = {"name": tool["function"]["name"], "args": self._arguments(text), "id": "1"}
            return AIMessage("", tool_calls=[call], usage_metadata=usage)
        said = {"content": content(given)} if "logprobs" in self.takes & options.keys() else None
        return AIMessage(text, response_metadata={"logprobs": said}, usage_metadata=usage)

    def _arguments(self, text: str) -> dict[str, Any]:
        labels = [line.rsplit(": ", 1)[-1] for line in text.splitlines()]
        return {f"label_{number}": label for number, label in enumerate(labels, start=1)}


def chat(*answers: str) -> FakeListChatModel:
    """A chat model that gives these answers by turns, and streams by the character."""
    return FakeListChatModel(responses=list(answers))


def saying(text: str) -> Provider:
    """A model that gives this answer to whatever it is asked."""
    return Provider(answer=lambda prompt: text)


class ToolCaller(Provider):
    """One that can call tools, which LangChain makes structured output of."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])


LOGPROBS = {"takes": frozenset({"logprobs"})}
"""A server in the shape of OpenAI's."""
REFUSES = {"refuses": frozenset({"logprobs"})}
