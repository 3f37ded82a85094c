"""Asking a chat model or an LLM for text."""

from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.errors.faults import named
from selfcorrect_rag.models.chat.llm_chat import LLMChat, model_behind
from selfcorrect_rag.prompts.parts import written_text


def ask(llm: Runnable[Any, Any], given: Any, config: RunnableConfig, **options: Any) -> str:
    """The text that a model writes.

    Raises:
        ModelFailed: it raised, or gave what is no text.
    """
    with named(ModelFailed, _name(llm)):
        written = llm.invoke(given, config, **options)
    return _text(llm, written)


async def aask(llm: Runnable[Any, Any], given: Any, config: RunnableConfig, **options: Any) -> str:
    """The async twin of :func:`ask`."""
    with named(ModelFailed, _name(llm)):
        written = await llm.ainvoke(given, config, **options)
    return _text(llm, written)


def _name(llm: Runnable[Any, Any]) -> str:
    behind = model_behind(llm)
    behind = model_behind(behind.llm) if isinstance(behind, LLMChat) else behind
    return f"the model ({type(behind).__name__})"


def _text(llm: Runnable[Any, Any], written: Any) -> str:
    if not isinstance(written, str) and not hasattr(written, "content"):
        kind = "None" if written is None else f"a {type(written).__name__}"
        raise ModelFailed(f"{_name(llm)} gave {kind}", "give a model that gives messages or text")
    return written_text(written)
