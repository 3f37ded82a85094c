"""An LLM as a chat model."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
)

from selfcorrect_rag.prompts.parts import Prompt


class LLMChat(BaseChatModel):
    """An LLM that continues one prompt, as a chat model.

    LangGraph streams tokens of chat models only. The messages of a call are for traces: the LLM
    gets ``prompt``, since a message cannot mark the untrusted parts of a :class:`Prompt`.
    """

    llm: Runnable[Any, str]
    """The LLM, perhaps with bound options or retries."""
    prompt: Prompt | list[BaseMessage]

    @property
    def _llm_type(self) -> str:
        return "llm-chat"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        behind: Any = model_behind(self.llm)
        params: LangSmithParams = behind._get_ls_params(stop, **kwargs)
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self.llm.invoke(self.prompt, _within(run_manager), **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(await self.llm.ainvoke(self.prompt, _within(run_manager), **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for text in self.llm.stream(self.prompt, _within(run_manager), **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for text in self.llm.astream(self.prompt, _within(run_manager), **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))


def models_behind(llm: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """The models in ``llm``, which may have bound options, retries, fallbacks or alternatives, in
    the order in which they are tried."""
    match llm:
        case RunnableBindingBase():
            return models_behind(llm.bound)
        case RunnableWithFallbacks():
            return [model for each in llm.runnables for model in models_behind(each)]
        case RunnableConfigurableAlternatives():
            made = [each for each in llm.alternatives.values() if isinstance(each, Runnable)]
            return [model for each in (llm.default, *made) for model in models_behind(each)]
        case DynamicRunnable():
            return models_behind(llm.default)
    return [llm]


def model_behind(llm: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model in ``llm`` that is tried first."""
    return models_behind(llm)[0]


def model_name(llm: object) -> str:
    """The name of the model in ``llm`` that is tried first: without the path of a local folder, the
    class's where it has none, empty where ``llm`` is no model."""
    model = model_behind(llm) if isinstance(llm, Runnable) else llm
    if isinstance(inner := getattr(model, "model", None), Runnable):
        return model_name(inner)
    if not isinstance(model, BaseChatModel | BaseLLM):
        return ""
    named = model._get_ls_params().get("ls_model_name") or type(model).__name__
    return Path(named).name if Path(named).exists() else named


def is_llm(llm: Runnable[Any, Any]) -> bool:
    """Whether ``llm`` continues plain text, rather than answering messages."""
    return isinstance(model_behind(llm), BaseLLM)


def _within(
    run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
) -> RunnableConfig | None:
    """A config that makes the LLM's run a child of the chat model's, so that they count as one
    call."""
    if run is None:
        return None
    is_sync = isinstance(run, CallbackManagerForLLMRun)
    kind = CallbackManager if is_sync else AsyncCallbackManager
    handlers = run.inheritable_handlers
    return RunnableConfig(callbacks=kind(handlers, handlers, parent_run_id=run.run_id))


def _result(text: str) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])
