"""Text by any chat model, with its probability where the provider gives log-probabilities."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.errors.faults import hint
from selfcorrect_rag.errors.messages import describe_error
from selfcorrect_rag.models.chat.choices import own_extra
from selfcorrect_rag.models.chat.forms import Tokenizer
from selfcorrect_rag.models.chat.label_probabilities import tokens_of
from selfcorrect_rag.models.chat.rounds import Call, Cost, Outcome, Rounds, is_refusal
from selfcorrect_rag.prompts.aspect import Instance
from selfcorrect_rag.prompts.chat import END, writing_prompt

_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Where providers say why a text ended: OpenAI and Gemini, Anthropic, Ollama, Bedrock."""
_CUT = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
"""What they call an end at the limit of tokens, some in capitals."""
_END = re.compile(re.escape(END), re.IGNORECASE)


class Written(NamedTuple):
    """What a model wrote."""

    text: str
    is_open: bool
    """Whether the answer goes on after it."""
    finish_reason: Literal["end", "length", "stop"]
    mean_logprob: float | None
    """Of its tokens; None where the provider gives none."""
    tokens: int
    cost: Cost


def was_cut(message: Any) -> bool:
    """Whether a model's answer ended at its limit of tokens.

    False also where nothing says so: a model that gives plain text never does.
    """
    said = getattr(message, "response_metadata", None) or {}
    incomplete = said.get("incomplete_details")  # of OpenAI's Responses
    reasons = [said.get(key) for key in _REASONS]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return any(str(reason).lower() in _CUT for reason in reasons)


class Writer:
    """Asks a chat model for answers; which options it takes shows as it refuses others."""

    def __init__(self, model: Runnable[Any, Any], *, tokenizer: Tokenizer | None = None) -> None:
        """Write with ``model``, a chat model or an LLM; ``tokenizer`` as for ``Chooser``."""
        self.model, self._tokenizer, self._level = model, tokenizer, 0

    def rounds(
        self,
        asked: Sequence[tuple[Instance, bool]],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> Rounds[list[Written]]:
        """An answer to each instance, or its next sentence where the flag beside it says so.

        Raises:
            EngineFailed: the model gave none of them.
        """
        prompts = [writing_prompt(instance, sentence=sentence) for instance, sentence in asked]
        ways = self._ways(max_tokens, sampling)
        tried: list[list[Outcome]] = [[] for _ in prompts]
        for level in range(self._level, len(ways)):
            waiting = [i for i, outcomes in enumerate(tried) if not outcomes or _refused(outcomes)]
            if not waiting:
                break
            calls = [Call(self.model.bind(**ways[level]), prompts[i]) for i in waiting]
            outcomes = yield calls
            for i, outcome in zip(waiting, outcomes, strict=True):
                tried[i].append(outcome)
            if len(waiting) == len(prompts) and any(o.error is None for o in outcomes):
                self._level = max(self._level, level)  # below, all were refused
        errors = [error for outcomes in tried if (error := outcomes[-1].error) is not None]
        if errors and len(errors) == len(tried):
            said = f"the model gave no answer ({describe_error(errors[0])})"
            raise EngineFailed(said, hint(errors[0])) from errors[0]
        return [
            _written(outcomes, sentence, stop)
            for outcomes, (_, sentence) in zip(tried, asked, strict=True)
        ]

    def _ways(self, max_tokens: int, sampling: dict[str, Any]) -> list[dict[str, Any]]:
        """Options to bind, from the most that may be taken to none."""
        limited = {**sampling, "max_tokens": max_tokens}
        full = {**limited, "logprobs": True}
        if self._tokenizer is not None:
            # On vLLM, chosen ids in one request spoil other log-probabilities beside it.
            full["extra_body"] = {**own_extra(self.model), "logprob_token_ids": [0]}
        return [full, limited, {}]


def _refused(outcomes: Sequence[Outcome]) -> bool:
    error = outcomes[-1].error
    return error is not None and is_refusal(error)


def _written(outcomes: Sequence[Outcome], sentence: bool, stop: Sequence[str]) -> Written:
    outcome, cost = outcomes[-1], Cost.of(outcomes)
    text = outcome.text
    finish_reason: Literal["end", "length", "stop"] = "end"
    if was_cut(outcome.message):
        finish_reason = "length"
    if any(s in text for s in stop):
        text = text[: min(text.find(s) for s in stop if s in text)]
        finish_reason = "stop"
    end = _END.search(text) if sentence else None
    text = text[: end.start()] if end else text
    is_open = sentence and not end and bool(text.strip()) and finish_reason == "end"
    logprobs = [token.logprob for token in tokens_of(outcome.message) or ()]
    return Written(
        text=text.strip(),
        is_open=is_open,
        finish_reason=finish_reason,
        mean_logprob=math.fsum(logprobs) / len(logprobs) if logprobs else None,
        tokens=len(logprobs) or cost.tokens,
        cost=cost,
    )
