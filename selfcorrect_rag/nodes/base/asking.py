"""Asking a chat model or an LLM for text."""

from collections.abc import Generator
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.errors.faults import wrap_errors
from selfcorrect_rag.models.chat.llm_chat import LLMChat, model_behind
from selfcorrect_rag.nodes.base.node import Call, call
from selfcorrect_rag.prompts.parts import written_text


def ask(
    llm: Runnable[Any, Any], given: Any, config: RunnableConfig, **options: Any
) -> Generator[Call, Any, str]:
    """The text that a model writes: ``text = yield from ask(llm, prompt, config)``.

    Raises:
        ModelFailed: it raised, or returned no text.
    """
    behind = model_behind(llm)
    behind = model_behind(behind.llm) if isinstance(behind, LLMChat) else behind
    name = f"the model ({type(behind).__name__})"
    written = yield from call(
        llm.invoke, llm.ainvoke, given, config, within=wrap_errors(ModelFailed, name), **options
    )
    if not isinstance(written, str) and not hasattr(written, "content"):
        kind = "None" if written is None else f"a {type(written).__name__}"
        raise ModelFailed(f"{name} gave {kind}", "give a model that gives messages or text")
    return written_text(written)
