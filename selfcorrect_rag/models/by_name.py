"""Any LangChain model by name, for commands."""

import importlib
import importlib.util
from typing import Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import MissingExtra, SelfCorrectError, require


class NoLanguageModel(SelfCorrectError, ValueError):
    """A name that leads to no LangChain LLM or chat model."""


def find_language_model(name: str, **options: Any) -> Runnable[Any, Any]:
    """The model called ``name``: ``module:attribute``, or ``provider:model``.

    The attribute is a LangChain LLM or chat model, perhaps bound to options or with retries, or
    makes one when called without arguments. A name that leads to no attribute goes to LangChain's
    ``init_chat_model``, with ``options``, such as ``temperature=0``.

    Raises:
        NoLanguageModel: it leads to neither.
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
    except Exception as error:  # each provider has errors of its own
        reason = " ".join(str(error).split())
        raise NoLanguageModel(
            f"{name} is neither an importable module:attribute nor a provider:model ({reason})"
        ) from error
