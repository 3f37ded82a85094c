"""A rule as a chat model, for demonstrations of agents without a language model."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from selfcorrect_rag.prompts.parts import as_text

NO_TOOL = "(a rule, not a language model) I can only ask a tool, and none is bound."
NO_QUESTION = "(a rule, not a language model) I was asked nothing."


class RuleChatModel(BaseChatModel):
    """A fake chat model that follows a fixed rule.

    It passes the user's last question to the first bound tool, then repeats the tool's answer with
    an introduction. That is enough to show the wiring of an agent offline: tool calls, streams,
    threads, approval. For anything else take a real model.
    """

    follow_up: Any | None = None
    """Rewrites questions of later turns to stand alone; None passes each on verbatim."""

    @property
    def _llm_type(self) -> str:
        return "nano-rule"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools, of which it uses the first; ``tool_choice`` changes nothing."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = _reply(messages, kwargs.get("tools") or [], self.follow_up)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _reply(
    messages: Sequence[BaseMessage],
    tools: Sequence[dict[str, Any]],
    follow_up: Any | None,
) -> AIMessage:
    questions = [i for i, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not questions:
        return AIMessage(NO_QUESTION)
    last = questions[-1]
    results = [message for message in messages[last:] if isinstance(message, ToolMessage)]
    if results:
        return AIMessage("\n\n".join(_repeated(message) for message in results))
    if not tools:
        return AIMessage(NO_TOOL)
    question = as_text(messages[last].content)
    if follow_up is not None:
        question = follow_up(_said(messages[:last]), question)
    function = tools[0]["function"]
    call = ToolCall(
        name=function["name"],
        args={_argument(function["parameters"]): question},
        id=f"call_{uuid4().hex}",
    )
    return AIMessage("", tool_calls=[call])


def _said(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """What the user asked, and what the tool answered."""
    return [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages
        if isinstance(message, HumanMessage | ToolMessage)
    ]


def _argument(parameters: dict[str, Any]) -> str:
    """The argument that takes a text: the first required one, else the first."""
    return str(next(iter([*parameters.get("required", []), *parameters["properties"]])))


def _repeated(message: ToolMessage) -> str:
    tool = message.name or "the tool"
    return f"(a rule, not a language model, repeats {tool}) {as_text(message.content)}"
