"""Resolves model arguments: LangChain objects, our objects, or names."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from selfcorrect_rag.errors import (
    BadArgument,
    SelfCorrectError,
    importing_here,
    require,
    safe_message,
)
from selfcorrect_rag.models.chat_model import models_behind
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import ChatEvaluator, RetrievalEvaluator
from selfcorrect_rag.models.t5_evaluator import T5Evaluator

Model = Runnable[Any, Any] | str
"""A LangChain chat model or LLM, perhaps with bound options, retries, fallbacks or configurable
fields; or its name, such as ``"openai:gpt-4o-mini"``."""
Evaluator = RetrievalEvaluator | Model
"""An evaluator; or a chat model that grades, or its name; or the name of a T5 checkpoint."""
_NO_MODELS = (BaseRetriever, BaseTool, BasePromptTemplate, BaseOutputParser)
"""Runnables that are passed by mistake if arguments are swapped."""


class NoLanguageModel(SelfCorrectError, ValueError):
    """A name that does not resolve to a LangChain LLM or chat model."""


def find_language_model(name: str, **options: Any) -> Runnable[Any, Any]:
    """Return the model called ``name``: ``module:attribute``, or ``provider:model``.

    The attribute is a LangChain LLM or chat model, perhaps bound to options or with retries, or a
    function without arguments that returns one. Other names are passed to LangChain's
    ``init_chat_model`` with ``options``, such as ``temperature=0``.
    """
    module, _, attribute = name.partition(":")
    made: Any = None
    try:
        with importing_here():
            if attribute and importlib.util.find_spec(module):
                made = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise NoLanguageModel(f"cannot import {name} ({error})") from error
    if callable(made) and not isinstance(made, Runnable):
        made = made()
    if made is None:
        init_chat_model = require("langchain.chat_models", "agents").init_chat_model
        try:
            made = init_chat_model(name, **options)
        except Exception as error:  # each provider raises its own errors
            raise NoLanguageModel(
                f"cannot open {name}: {safe_message(error)} (it is not a module:attribute either)"
            ) from error
    if not isinstance(made, Runnable):
        raise NoLanguageModel(f"{name} must be a LangChain model, got {type(made).__name__}")
    return made


def as_language_model(given: object, argument: str) -> Runnable[Any, Any]:
    """Return a factory's argument as a model; it may be a chain that ends in one."""
    if isinstance(given, str):
        return find_language_model(given)
    if isinstance(given, Runnable) and not isinstance(given, _NO_MODELS):
        return given
    raise BadArgument(
        f"{argument} must be a LangChain chat model or LLM, or a name such as "
        f'"openai:gpt-4o-mini", got {type(given).__name__}'
    )


def as_writer(given: object) -> Runnable[Any, Any]:
    """Return a model, or a ReflectionLLM that is not behind anything."""
    llm = as_language_model(given, "llm")
    if any(each is not llm and isinstance(each, ReflectionLLM) for each in models_behind(llm)):
        raise BadArgument(
            f"llm is a ReflectionLLM behind a {type(llm).__name__}, which would lose its "
            "reflection tokens: give the ReflectionLLM itself"
        )
    return llm


def as_reflection_llm(given: object) -> ReflectionLLM:
    """Return a ReflectionLLM as it is, any other model wrapped in a PromptedReflectionLLM."""
    llm = as_writer(given)
    return llm if isinstance(llm, ReflectionLLM) else PromptedReflectionLLM(llm)


def as_evaluator(given: object) -> RetrievalEvaluator:
    """Return a factory's argument as an evaluator: one of ours, a chat model, or a name.

    A name with a colon is a chat model's, unless it is a path; any other is that of a checkpoint,
    as ``T5Evaluator.from_pretrained`` takes it.
    """
    if isinstance(given, RetrievalEvaluator):
        return given
    if isinstance(given, str) and (":" not in given or Path(given).exists()):
        return T5Evaluator.from_pretrained(given)
    if isinstance(given, ReflectionLLM):
        raise BadArgument("evaluator must be a RetrievalEvaluator or a chat model")
    return ChatEvaluator(as_language_model(given, "evaluator"))
