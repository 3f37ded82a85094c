"""A rule as a chat model, for demonstrations of agents without a language model."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool


class RuleChatModel(BaseChatModel):
    """A fake chat model that follows a fixed rule.

    It passes the user's last question to the first bound tool, then repeats the tool's answer with
    an introduction. That is enough to show the wiring of an agent offline: tool calls, streams,
    threads, approval. For anything else use a real model.
    """

    @property
    def _llm_type(self) -> str:
        return "rule"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools, of which the model uses the first; ``tool_choice`` changes nothing."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        reply = _reply(messages, kwargs.get("tools") or [])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    asked = [i for i, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not asked or not tools:
        return AIMessage("(a rule, not a language model) I can only ask a tool a question.")
    results = [message for message in messages[asked[-1] :] if isinstance(message, ToolMessage)]
    if results:
        said = "a rule, not a language model, repeats"
        return AIMessage("\n\n".join(f"({said} {m.name or 'the tool'}) {m.text}" for m in results))
    function = tools[0]["function"]
    parameters = function["parameters"]
    argument = next(iter([*parameters.get("required", []), *parameters["properties"]]))
    args = {argument: messages[asked[-1]].text}
    call = ToolCall(name=function["name"], args=args, id=f"call_{uuid4().hex}")
    return AIMessage("", tool_calls=[call])
