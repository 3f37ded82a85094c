"""Completions by any chat model, with their probability if the provider gives it."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import EngineFailed, describe_error, hint
from selfcorrect_rag.models.chat.classification import Tokenizer, own_extra_body
from selfcorrect_rag.models.chat.label_probabilities import tokens_of
from selfcorrect_rag.models.chat.model_calls import (
    CallResult,
    Calls,
    CallUsage,
    ModelCall,
    is_refusal,
)
from selfcorrect_rag.prompts.chat import END, answer_prompt
from selfcorrect_rag.prompts.critique import Instance

_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Providers' metadata keys of the finish reason: OpenAI and Gemini, Anthropic, Ollama, Bedrock."""
_CUT = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
"""Their values for an end at the token limit, in lower case."""
_END = re.compile(re.escape(END), re.IGNORECASE)


class ChatCompletion(NamedTuple):
    """A text that a model wrote."""

    text: str
    is_open: bool
    """Whether the answer continues after it."""
    finish_reason: Literal["end", "length", "stop"]
    mean_logprob: float | None
    """Mean of its tokens' log-probabilities; None where the provider gives none."""
    tokens: int
    usage: CallUsage


def was_cut(message: Any) -> bool:
    """Whether a model's answer ended at its token limit.

    False also without a finish reason, as with plain text.
    """
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    reasons = [metadata.get(key) for key in _REASONS]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return any(str(reason).lower() in _CUT for reason in reasons)


class ChatCompleter:
    """Asks a chat model for answers; detects supported options by refusals."""

    def __init__(self, model: Runnable[Any, Any], *, tokenizer: Tokenizer | None = None) -> None:
        """Use ``model``, a chat model or an LLM; ``tokenizer`` as for a ChatClassifier."""
        self.model, self._tokenizer, self._level = model, tokenizer, 0

    def calls(
        self,
        wanted: Sequence[tuple[Instance, bool]],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> Calls[list[ChatCompletion]]:
        """An answer to each instance, or only its next sentence where its flag is set.

        Raises:
            EngineFailed: the model gave none of them.
        """
        prompts = [answer_prompt(instance, sentence=sentence) for instance, sentence in wanted]
        levels = self._option_levels(max_tokens, sampling)
        tried: list[list[CallResult]] = [[] for _ in prompts]
        for level in range(self._level, len(levels)):
            waiting = [i for i, results in enumerate(tried) if not results or _refused(results)]
            if not waiting:
                break
            bound = self.model.bind(**levels[level])
            results = yield [ModelCall(bound, prompts[i]) for i in waiting]
            for i, result in zip(waiting, results, strict=True):
                tried[i].append(result)
            if len(waiting) == len(prompts) and any(r.error is None for r in results):
                self._level = max(self._level, level)  # below, all were refused
        errors = [error for results in tried if (error := results[-1].error) is not None]
        if errors and len(errors) == len(tried):
            message = f"the model gave no answer ({describe_error(errors[0])})"
            raise EngineFailed(message, hint(errors[0])) from errors[0]
        return [
            _completion(results, sentence, stop)
            for results, (_, sentence) in zip(tried, wanted, strict=True)
        ]

    def _option_levels(self, max_tokens: int, sampling: dict[str, Any]) -> list[dict[str, Any]]:
        """Options to bind, from all to none."""
        limited = {**sampling, "max_tokens": max_tokens}
        full = {**limited, "logprobs": True}
        if self._tokenizer is not None:
            # On vLLM, requests for chosen ids disturb top-k log-probabilities of concurrent ones.
            full["extra_body"] = {**own_extra_body(self.model), "logprob_token_ids": [0]}
        return [full, limited, {}]


def _refused(results: Sequence[CallResult]) -> bool:
    error = results[-1].error
    return error is not None and is_refusal(error)


def _completion(
    results: Sequence[CallResult], sentence: bool, stop: Sequence[str]
) -> ChatCompletion:
    result, usage = results[-1], CallUsage.of(results)
    text = result.text
    finish_reason: Literal["end", "length", "stop"] = "end"
    if was_cut(result.message):
        finish_reason = "length"
    if any(s in text for s in stop):
        text = text[: min(text.find(s) for s in stop if s in text)]
        finish_reason = "stop"
    end = _END.search(text) if sentence else None
    text = text[: end.start()] if end else text
    is_open = sentence and not end and bool(text.strip()) and finish_reason == "end"
    logprobs = [token.logprob for token in tokens_of(result.message) or ()]
    return ChatCompletion(
        text=text.strip(),
        is_open=is_open,
        finish_reason=finish_reason,
        mean_logprob=math.fsum(logprobs) / len(logprobs) if logprobs else None,
        tokens=len(logprobs) or usage.tokens,
        usage=usage,
    )
