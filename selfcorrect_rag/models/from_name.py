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
from selfcorrect_rag.models.chat_evaluator import ChatEvaluator
from selfcorrect_rag.models.chat_model import models_behind
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.models.t5_evaluator import T5Evaluator


class NoLanguageModel(SelfCorrectError, ValueError):
    """A name that does not resolve to a LangChain LLM or chat model."""


def find_language_model(name: str, **options: Any) -> Runnable[Any, Any]:
    """The model called ``name``: ``module:attribute``, or ``provider:model``.

    The attribute is a LangChain LLM or chat model, perhaps bound to options or with retries, or a
    function without arguments that returns one. Other names are passed to LangChain's
    ``init_chat_model`` with ``options``, such as ``temperature=0``.

    Raises:
        NoLanguageModel: the name resolves to neither.
        MissingExtra: it names a provider, and langchain is not installed.
    """
    module, _, attribute = name.partition(":")
    found = _attribute(module, attribute)
    made = found() if not isinstance(found, Runnable) and callable(found) else found
    if made is None:
        made = _of_provider(name, options)
    if not isinstance(made, Runnable):
        raise NoLanguageModel(f"{name} is {type(made).__name__}, not a LangChain model")
    return made


def _attribute(module: str, attribute: str) -> Any:
    try:
        with importing_here():
            if not attribute or importlib.util.find_spec(module) is None:
                return None
            return getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise NoLanguageModel(f"{module}:{attribute} cannot be imported ({error})") from error


def _of_provider(name: str, options: dict[str, Any]) -> Any:
    try:
        return require("langchain.chat_models", "chat").init_chat_model(name, **options)
    except MissingExtra as error:
        raise MissingExtra(f"{name} is no importable module:attribute, and {error}") from error
    except Exception as error:  # each provider raises its own errors
        raise NoLanguageModel(
            f"{name} is no importable module:attribute, and no provider opens it: "
            f"{safe_message(error)}"
        ) from error


Model = Runnable[Any, Any] | str
"""A LangChain chat model or LLM, perhaps with bound options, retries, fallbacks or configurable
fields; or its name, as ``"openai:gpt-4o-mini"``."""
Evaluator = RetrievalEvaluator | Model
"""An evaluator; or a chat or decision model that grades, or its name; or the name of a T5
checkpoint."""
MODELS = 'a LangChain chat model or LLM, or a name such as "openai:gpt-4o-mini"'
_NO_MODELS = (BaseRetriever, BaseTool, BasePromptTemplate, BaseOutputParser)
"""Runnables that are passed by mistake where arguments are swapped."""


def as_language_model(given: object, argument: str) -> Runnable[Any, Any]:
    """A factory's argument as a model: one of LangChain's, or the name of one.

    It may have bound options, retries, fallbacks, configurable fields or alternatives, and may be a
    chain that ends in a model.

    Raises:
        BadArgument: it is something else.
        NoLanguageModel, MissingExtra: see :func:`find_language_model`.
    """
    if isinstance(given, str):
        return find_language_model(given)
    if isinstance(given, Runnable) and not isinstance(given, _NO_MODELS):
        return given
    raise BadArgument(f"{argument} is {_kind(given)}: give {MODELS}")


def as_reflection_llm(given: object) -> ReflectionLLM:
    """A ReflectionLLM as it is; any other model wrapped in a PromptedReflectionLLM.

    Raises:
        BadArgument: it is not a model, or a ReflectionLLM behind retries or fallbacks, which return
            text only.
        NoLanguageModel, MissingExtra: see :func:`find_language_model`.
    """
    if isinstance(given, ReflectionLLM):
        return given
    llm = as_language_model(given, "llm") if isinstance(given, str) else given
    behind = models_behind(llm) if isinstance(llm, Runnable) else [None]
    if any(isinstance(model, ReflectionLLM) for model in behind):
        raise BadArgument(
            f"llm is a ReflectionLLM behind a {type(llm).__name__}, which would lose its "
            "reflection tokens: give the ReflectionLLM itself, set its options where it is made, "
            "and wrap a chat model where you want fallbacks"
        )
    is_model = all(isinstance(m, BaseLanguageModel) or _is_made_late(m) for m in behind)
    if isinstance(llm, Runnable) and is_model:
        return PromptedReflectionLLM(llm)
    raise BadArgument(
        f"llm is {_kind(given)}: give a ReflectionLLM, such as "
        f"TransformersReflectionLLM.from_pretrained(...), {MODELS}"
    )


def _is_made_late(model: object) -> bool:
    """Whether it is ``init_chat_model`` with the model name taken from a run's config."""
    return type(model).__name__ == "_ConfigurableModel"


def as_evaluator(given: object) -> RetrievalEvaluator:
    """A factory's argument as an evaluator: one of ours, a chat or decision model, or a name.

    A name with a colon is a chat model's, unless it is a path; any other is that of a checkpoint,
    as ``T5Evaluator.from_pretrained`` takes it.

    Raises:
        BadArgument: it is something else.
        NoLanguageModel, MissingExtra: see :func:`find_language_model`.
        ModelNotFound, NotAnEvaluator: see ``T5Evaluator.from_pretrained``.
    """
    if isinstance(given, RetrievalEvaluator):
        return given
    if isinstance(given, str) and (":" not in given or Path(given).exists()):
        return T5Evaluator.from_pretrained(given)
    if isinstance(given, str) or (
        isinstance(given, Runnable) and not isinstance(given, (*_NO_MODELS, ReflectionLLM))
    ):
        return ChatEvaluator(as_language_model(given, "evaluator"))
    raise BadArgument(
        f"evaluator is {_kind(given)}: give a RetrievalEvaluator, such as T5Evaluator or one of "
        f"your own, {MODELS}"
    )


def as_embeddings(given: object) -> Embeddings | None:
    """A factory's argument as embeddings: LangChain's, a name such as ``"openai:..."``, or None.

    Raises:
        BadArgument: it is something else.
        MissingExtra: it is a name, and langchain is not installed.
    """
    if isinstance(given, str):
        made: Embeddings = require("langchain.embeddings", "chat").init_embeddings(given)
        return made
    if given is None or isinstance(given, Embeddings):
        return given
    raise BadArgument(f"embeddings is {_kind(given)}: give LangChain Embeddings, or their name")


def _kind(given: object) -> str:
    return "None" if given is None else f"a {type(given).__name__}"
