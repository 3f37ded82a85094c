"""Prompt limits of models, and prompt lengths in tokens."""

from typing import Any

from langchain_core.language_models.base import BaseLanguageModel
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import ModelFailed, wrap_errors
from selfcorrect_rag.models.chat.llm_chat import model_behind
from selfcorrect_rag.models.engines.engine import split_context

CHARACTERS_PER_TOKEN = 3
"""Estimate for models that cannot count tokens; low for English, so that prompts fit."""


def prompt_limit(
    llm: Runnable[Any, Any], reply_tokens: int, context_tokens: int | None = None
) -> int | None:
    """Maximum tokens of a prompt; None if unknown.

    By ``context_tokens``, else the model's attribute of that name, else ``max_input_tokens`` of a
    chat model's profile, which excludes the reply already.
    """
    model = model_behind(llm)
    context = context_tokens or getattr(model, "context_tokens", None)
    if context is not None:
        return split_context(context, reply_tokens)[1]
    profile = getattr(model, "profile", None) or {}
    limit: int | None = profile.get("max_input_tokens")
    return limit


def exceeds(llm: Runnable[Any, Any], prompt: str, limit: int) -> bool:
    """Whether a prompt has more tokens than ``limit``, by the model's own count if it has one.

    LangChain's default count is not used: it would fetch another model's tokenizer.

    Raises:
        ModelFailed: its own count raised, for example by a request to a provider.
    """
    if len(prompt.encode()) < limit:
        return False  # no tokenizer makes more tokens than bytes, plus a first one
    model = model_behind(llm)
    if isinstance(model, BaseLanguageModel) and _counts(model):
        with wrap_errors(ModelFailed, f"the model ({type(model).__name__})"):
            return model.get_num_tokens(prompt) > limit
    return len(prompt) > limit * CHARACTERS_PER_TOKEN


def _counts(model: BaseLanguageModel[Any]) -> bool:
    kind = type(model)
    return (
        model.custom_get_token_ids is not None
        or kind.get_token_ids is not BaseLanguageModel.get_token_ids
        or kind.get_num_tokens is not BaseLanguageModel.get_num_tokens
    )
