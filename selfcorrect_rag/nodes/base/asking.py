"""Asking a chat model or an LLM for text, or for one of a few labels."""

from collections.abc import Generator
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import ModelFailed, wrap_errors
from selfcorrect_rag.models.chat_model import LLMChat, model_behind, written_text
from selfcorrect_rag.models.classification import (
    ChatClassifier,
    Classification,
    LabelField,
    Prediction,
)
from selfcorrect_rag.nodes.base.node import Call, call
from selfcorrect_rag.nodes.base.usage import counted_calls
from selfcorrect_rag.prompts.labels import LabelParser


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


def choose(
    classifier: ChatClassifier, prompt: str, labels: LabelParser
) -> Generator[Call, Any, Prediction | None]:
    """The label that a model answers a prompt with; None where two answers were unreadable.

    Raises:
        ModelFailed: it raised.
    """
    asked = [Classification(prompt, (LabelField(labels),))]
    ask, aask = classifier.classify, classifier.aclassify
    (result,) = yield from call(ask, aask, asked, within=counted_calls(1))
    with wrap_errors(ModelFailed, f"the model ({type(model_behind(classifier.model)).__name__})"):
        if result.error is not None:
            raise result.error
    (said,) = result.predictions
    return said
