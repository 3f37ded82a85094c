"""Resolves model arguments: LangChain objects, our objects, or names."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from selfcorrect_rag.errors import (
    BadArgument,
    MissingExtra,
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
MODELS = 'a LangChain chat model or LLM, or a name such as "openai:gpt-4o-mini"'
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
            if attribute and importlib.util.find_spec(module) is not None:
                made = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise NoLanguageModel(f"cannot import {name} ({error})") from error
    if callable(made) and not isinstance(made, Runnable):
        made = made()
    if made is None:
        unknown = f"{name} is not an importable module:attribute, and"
        try:
            made = require("langchain.chat_models", "agents").init_chat_model(name, **options)
        except MissingExtra as error:
            raise MissingExtra(f"{unknown} {error}") from error
        except Exception as error:  # each provider raises its own errors
            raise NoLanguageModel(
                f"{unknown} its provider does not open it: {safe_message(error)}"
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
    raise BadArgument(f"{argument} must be {MODELS}, got {_kind(given)}")


def as_reflection_llm(given: object) -> ReflectionLLM:
    """Return a ReflectionLLM as it is, any other model wrapped in a PromptedReflectionLLM."""
    if isinstance(given, ReflectionLLM):
        return given
    llm = find_language_model(given) if isinstance(given, str) else given
    behind = models_behind(llm) if isinstance(llm, Runnable) else []
    if any(isinstance(model, ReflectionLLM) for model in behind):
        raise BadArgument(
            f"llm is a ReflectionLLM behind a {type(llm).__name__}, which would lose its "
            "reflection tokens: give the ReflectionLLM itself, set its options where it is made, "
            "and wrap a chat model if you want fallbacks"
        )
    # The model of init_chat_model without a name is made at the call.
    if isinstance(llm, Runnable) and all(
        isinstance(model, BaseLanguageModel) or type(model).__name__ == "_ConfigurableModel"
        for model in behind
    ):
        return PromptedReflectionLLM(llm)
    raise BadArgument(
        "llm must be a ReflectionLLM, such as TransformersReflectionLLM.from_pretrained(...), "
        f"{MODELS}, got {_kind(given)}"
    )


def as_evaluator(given: object) -> RetrievalEvaluator:
    """Return a factory's argument as an evaluator: one of ours, a chat model, or a name.

    A name with a colon is a chat model's, unless it is a path; any other is that of a checkpoint,
    as ``T5Evaluator.from_pretrained`` takes it.
    """
    if isinstance(given, RetrievalEvaluator):
        return given
    if isinstance(given, str) and (":" not in given or Path(given).exists()):
        return T5Evaluator.from_pretrained(given)
    if isinstance(given, ReflectionLLM) or not isinstance(given, str | Runnable):
        raise BadArgument(
            "evaluator must be a RetrievalEvaluator, such as T5Evaluator or one of your own, "
            f"{MODELS}, got {_kind(given)}"
        )
    return ChatEvaluator(as_language_model(given, "evaluator"))


def as_embeddings(given: object) -> Embeddings | None:
    """Return a factory's argument as embeddings: LangChain's, a name as ``"openai:..."``, or
    None."""
    if isinstance(given, str):
        made: Embeddings = require("langchain.embeddings", "agents").init_embeddings(given)
        return made
    if given is None or isinstance(given, Embeddings):
        return given
    raise BadArgument(f"embeddings must be LangChain Embeddings or their name, got {_kind(given)}")


def _kind(given: object) -> str:
    return "None" if given is None else type(given).__name__
