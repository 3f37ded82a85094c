"""How long a prompt a model can read, and how long a prompt is."""

from typing import Any

from langchain_core.language_models.base import BaseLanguageModel
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.errors.faults import wrap_errors
from selfcorrect_rag.models.chat.llm_chat import model_behind
from selfcorrect_rag.models.engines.engine import split_context

CHARACTERS_PER_TOKEN = 3
"""For models that do not count tokens by themselves; English has more, so that prompts fit."""


def prompt_limit(
    llm: Runnable[Any, Any], reply_tokens: int, context_tokens: int | None = None
) -> int | None:
    """Most tokens of a prompt; None where nobody says.

    ``context_tokens`` goes before the model's own attribute of that name, and that before the
    ``max_input_tokens`` of a chat model's profile, which leaves out the reply by itself.
    """
    model = model_behind(llm)
    context = context_tokens or getattr(model, "context_tokens", None)
    if context is not None:
        return split_context(context, reply_tokens)[1]
    profile = getattr(model, "profile", None) or {}
    limit: int | None = profile.get("max_input_tokens")
    return limit


def exceeds(llm: Runnable[Any, Any], prompt: str, limit: int) -> bool:
    """Whether a prompt has more tokens than ``limit``, by the model's own count where it has one.

    LangChain's default count is not used: it would fetch another model's tokenizer.

    Raises:
        ModelFailed: its own count raised, as where that asks a provider.
    """
    if len(prompt.encode()) < limit:
        return (
            False  # no tokenizer makes more tokens than bytes, but for the one that it opens with
        )
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
