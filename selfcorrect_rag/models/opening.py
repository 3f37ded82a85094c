"""Opening a chat model by the name that a person gives on a command line."""

import importlib
from typing import Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import SelfCorrectError


class NoChatModel(SelfCorrectError, ValueError):
    """A name that leads to no LangChain model."""


def find_chat_model(name: str, **options: Any) -> Runnable[Any, Any]:
    """The chat model or LLM called ``name``: ``module:attribute``, else ``provider:model``.

    The attribute is a LangChain model, or makes one when called without arguments.

    Args:
        options: such as ``temperature``, for a provider's model; an attribute has its own.

    Raises:
        NoChatModel: it does not exist, is something else, or cannot be made.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        return _of_a_provider(name, options, str(error))
    made = found() if not isinstance(found, Runnable) and callable(found) else found
    if not isinstance(made, Runnable):
        raise NoChatModel(f"{name} is {type(made).__name__}, not a LangChain model")
    return made


def _of_a_provider(name: str, options: dict[str, Any], reason: str) -> Runnable[Any, Any]:
    try:
        chat_models = importlib.import_module("langchain.chat_models")
    except ModuleNotFoundError as error:
        raise NoChatModel(
            f"{name} is no importable module:attribute ({reason}); for provider:model: "
            "pip install langchain"
        ) from error
    try:
        made: Runnable[Any, Any] = chat_models.init_chat_model(name, **options)
    except Exception as error:  # each provider raises its own
        raise NoChatModel(f"{name}: {' '.join(str(error).split())}") from error
    return made
