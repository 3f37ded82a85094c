"""Classification by any chat model: the label that it gives, and each label's probability."""

import math
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat.decisions import (
    DecisionQuestion,
    chosen_label,
    decision_request,
    is_decision_model,
)
from selfcorrect_rag.models.chat.label_probabilities import (
    TOP_LOGPROBS,
    label_probabilities,
    tokens_of,
)
from selfcorrect_rag.models.chat.llm_chat import model_behind
from selfcorrect_rag.models.chat.model_calls import (
    CallResult,
    Calls,
    CallUsage,
    ModelCall,
    arun,
    is_refusal,
    run,
)
from selfcorrect_rag.prompts.labels import LabelMatch, LabelParser

ABSENT = -100.0
"""Log-probability of a label without one: finite, for JSON, with a probability of almost 0."""

Mode = Literal["decisions", "constrained", "logprobs", "structured", "text"]
"""How a model is asked: typed questions to a decision model; constrained decoding on a vLLM server;
log-probabilities; structured output or tool calls; plain text."""
MODES: tuple[Mode, ...] = ("decisions", "constrained", "logprobs", "structured", "text")


class LabelField(NamedTuple):
    """One label that an answer holds."""

    parser: LabelParser
    name: str = ""
    """Prefix of its line, where an answer holds several labels."""
    instructions: str = "Choose the label that the text asks for."
    """What a decision model is asked."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that may be given."""
        return self.parser.labels

    def find(self, text: str) -> LabelMatch | None:
        """Its label in an answer; None without one, or with several lines of its name."""
        if not self.name:
            return self.parser.find(text)
        name = r"\s+".join(map(re.escape, self.name.split()))
        pattern = rf"^(?:[*`#-]|[^\S\n])*{name}[*`]*\s*:[*`]*"
        lines = list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))
        if len(lines) != 1:
            return None
        begin = lines[0].end()
        found = self.parser.find(text[begin:].split("\n", 1)[0])
        return found and LabelMatch(found.label, found.start + begin, found.end + begin)


class Classification(NamedTuple):
    """A prompt, and the fields of labels in its answer.

    With one field the answer is a label; with several it has a line ``name: label`` for each. A
    decision model gets the state and the fields' instructions in place of the prompt.
    """

    prompt: str
    fields: tuple[LabelField, ...]
    state: Mapping[str, Any] | None = None
    """What is judged, as a JSON object; None: the prompt."""


class Prediction(NamedTuple):
    """The label that a model gave."""

    label: str
    logprobs: dict[str, float]
    """Natural log-probability of each label, not normalised over them, at least :data:`ABSENT`."""
    is_hard: bool
    """Whether there are no probabilities: the label then has 0, the others :data:`ABSENT`."""


class ClassificationResult(NamedTuple):
    """The predictions of one classification."""

    predictions: list[Prediction | None]
    """By field; None where two answers were unreadable."""
    usage: CallUsage
    error: Exception | None
    """The provider's error, if it gave no answer."""


@dataclass
class ClassificationCounts:
    """Counts of a :class:`ChatClassifier`'s failures since it was made."""

    classifications: int = 0
    retried: int = 0
    """Classifications asked again because an answer was malformed."""
    absent: int = 0
    """Labels that were unreadable even after the retry."""
    failed: int = 0
    """Classifications that ended in an error of the provider."""


class Tokenizer(Protocol):
    """The interface of a transformers tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...


class ChatClassifier:
    """Asks any LangChain chat model, LLM or decision model to choose among labels.

    A decision model answers typed questions. Of any other model the first call detects the mode
    from its answers: constrained decoding on a vLLM server, log-probabilities of the answer's
    tokens, structured output, plain text, in this order; a mode that the provider refuses, or that
    gives no log-probabilities, is not tried again. An answer
    without a readable label is retried once, with a reminder of the labels, and then counts as
    absent. So does an error of the provider; its Retry-After is respected once
    (:func:`~selfcorrect_rag.models.chat.model_calls.retry_after`).

    Threads and event loops may share one.
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Classify with ``model``.

        Args:
            model: a chat model, an LLM or a decision model, perhaps bound to options or with
                retries.
            max_concurrency: maximum number of concurrent calls for one :meth:`classify`.
            tokenizer: tokenizer of the model, if a vLLM server serves it. With it, the
                log-probabilities of the labels' own tokens are read; without, those of the top 20
                tokens.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; some call must be made")
        self.model, self.max_concurrency, self._tokenizer = model, max_concurrency, tokenizer
        self.mode: Mode | None = "decisions" if is_decision_model(model) else None
        """The mode; None before it is detected."""
        self.counts = ClassificationCounts()
        self._lock = threading.Lock()
        self._finding: Future[None] | None = None

    def classify(self, classifications: Sequence[Classification]) -> list[ClassificationResult]:
        """The result of each classification, in their order."""
        return run(self.calls(classifications), self.max_concurrency)

    async def aclassify(
        self, classifications: Sequence[Classification]
    ) -> list[ClassificationResult]:
        """The async twin of :meth:`classify`."""
        return await arun(self.calls(classifications), self.max_concurrency)

    def calls(self, classifications: Sequence[Classification]) -> Calls[list[ClassificationResult]]:
        """The calls of :meth:`classify`, as a generator."""
        every = [_Pending(classification) for classification in classifications]
        if every and self.mode is None:
            yield from self._find_mode(every[0])
        if self.mode is None:
            for pending in every:
                pending.error = every[0].error
        else:
            while unanswered := [pending for pending in every if pending.is_open]:
                results = yield [self._call(self.mode, p.task, p.is_retry) for p in unanswered]
                for pending, result in zip(unanswered, results, strict=True):
                    pending.take(self.mode, result)
        with self._lock:
            for pending in every:
                self.counts.classifications += 1
                self.counts.retried += pending.is_retry
                self.counts.failed += pending.error is not None
                self.counts.absent += pending.predictions.count(None)
        return [pending.result() for pending in every]

    def _find_mode(self, pending: "_Pending") -> Calls[None]:
        """Detect :attr:`mode` by the first classification, unless another call is doing so."""
        mine: Future[None] = Future()
        while True:
            with self._lock:
                if self.mode is not None:
                    return
                others = self._finding = self._finding or mine
            if others is mine:
                break
            yield others
            if not others.done():  # it cannot be waited for
                break
        try:
            for mode in MODES[1:]:  # a decision model is known by its class
                if mode == "logprobs" and pending.results[-1].error is None:
                    continue  # requested, but not returned
                if mode == "text" and pending.is_answered:
                    self.mode = mode
                    return
                try:
                    call = self._call(mode, pending.task)
                except (NotImplementedError, AttributeError, TypeError, ValueError, NameError):
                    continue  # no structured output; LangChain's fallbacks say so by a NameError
                (result,) = yield [call]
                pending.start(mode, result)
                if result.error is None and _is_supported(mode, result):
                    self.mode = mode
                    return
                if result.error is not None and not is_refusal(result.error):
                    return
        finally:
            with self._lock:
                if self._finding is mine:
                    self._finding = None
            mine.set_result(None)

    def _call(self, mode: Mode, task: Classification, is_retry: bool = False) -> ModelCall:
        prompt = f"{task.prompt}\n\n{_reminder(task)}" if is_retry else task.prompt
        match mode:
            case "decisions":
                questions = {
                    name: DecisionQuestion(field.instructions, field.labels)
                    for name, field in _named_fields(task).items()
                }
                state = task.prompt if task.state is None else task.state
                return ModelCall(self.model, decision_request(self.model, state, questions))
            case "text":
                return ModelCall(self.model, prompt)
            case "structured":
                structured = self.model.with_structured_output  # type: ignore[attr-defined]
                return ModelCall(structured(_schema(task), include_raw=True), prompt)
            case "logprobs":
                return ModelCall(self.model.bind(**_logprob_options(task)), prompt)
            case "constrained":
                extra = {**own_extra_body(self.model), "structured_outputs": _constraint(task)}
                if self._tokenizer is not None:
                    extra["logprob_token_ids"] = label_ids(self._tokenizer, task)
                return ModelCall(
                    self.model.bind(**_logprob_options(task), extra_body=extra), prompt
                )


class _Pending:
    """A classification in progress."""

    def __init__(self, task: Classification) -> None:
        self.task = task
        self.predictions: list[Prediction | None] = [None] * len(task.fields)
        self.error: Exception | None = None
        self.results: list[CallResult] = []
        self.is_retry = False
        self._answers = 0

    @property
    def is_open(self) -> bool:
        return self.error is None and self._answers < 2 and None in self.predictions

    @property
    def is_answered(self) -> bool:
        return self.error is None and None not in self.predictions

    def start(self, mode: Mode, result: CallResult) -> None:
        """Record a first answer; with several, in different modes, the last one counts."""
        self.predictions, self.is_retry = [None] * len(self.predictions), False
        self._answers = 0
        self.take(mode, result)

    def take(self, mode: Mode, result: CallResult) -> None:
        """Record an answer to the prompt, with or without the reminder."""
        self.results.append(result)
        self.error = result.error
        if result.error is not None:
            return
        self._answers += 1
        match mode:
            case "decisions":
                read = read_decisions(self.task, result.answer)
            case "structured":
                read = read_structured(self.task, result.answer.get("parsed"))
            case _:
                read = read_text(self.task, result)
        self.predictions = [old or new for old, new in zip(self.predictions, read, strict=True)]
        self.is_retry |= self._answers == 1 and None in self.predictions

    def result(self) -> ClassificationResult:
        return ClassificationResult(self.predictions, CallUsage.of(self.results), self.error)


def _is_supported(mode: Mode, result: CallResult) -> bool:
    """Whether an answer shows that the model supports this mode."""
    match mode:
        case "constrained" | "logprobs":
            return tokens_of(result.answer) is not None
        case "structured":
            return isinstance(result.answer, dict) and result.answer.get("parsed") is not None
        case _:
            return True


def own_extra_body(model: Runnable[Any, Any]) -> Mapping[str, Any]:
    """A model's own ``extra_body``, which a bound one would replace."""
    bound = getattr(model, "kwargs", {}).get("extra_body")
    return bound or getattr(model_behind(model), "extra_body", None) or {}


# Requests


def _logprob_options(task: Classification) -> dict[str, Any]:
    # A token has at least one character, so this many tokens never cut a label.
    longest = sum(len(field.name) + 3 + max(map(len, field.labels)) for field in task.fields)
    return {
        "temperature": 0,
        "max_tokens": longest,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
    }


def _constraint(task: Classification) -> dict[str, Any]:
    """vLLM's ``structured_outputs`` for the labels."""
    if len(task.fields) == 1:
        return {"choice": list(task.fields[0].labels)}
    lines = (
        f"{re.escape(field.name)}: ({'|'.join(map(re.escape, field.labels))})"
        for field in task.fields
    )
    return {"regex": "\n".join(lines)}


def label_ids(tokenizer: Tokenizer, task: Classification) -> list[int]:
    """The token ids of the labels, at most 128, which is vLLM's limit."""
    texts = [
        text
        for field in task.fields
        for label in field.labels
        for text in (label, f" {label}", label.strip("[]"))
    ]
    ids = (i for text in texts for i in tokenizer.encode(text, add_special_tokens=False))
    return list(dict.fromkeys(ids))[:128]


def _named_fields(task: Classification) -> dict[str, LabelField]:
    return {f"label_{number}": field for number, field in enumerate(task.fields, start=1)}


def _schema(task: Classification) -> dict[str, Any]:
    """A JSON schema with a property for each field."""
    properties = {
        name: {
            "type": "string",
            "enum": list(field.labels),
            "description": field.name or "The label that the answer begins with.",
        }
        for name, field in _named_fields(task).items()
    }
    return {
        "title": "judgement",
        "description": "What is answered.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _reminder(task: Classification) -> str:
    """Text added to the prompt after a malformed answer."""
    if len(task.fields) == 1:
        return f"Answer with nothing but one of these: {' or '.join(task.fields[0].labels)}"
    lines = "\n".join(f"{field.name}: {' or '.join(field.labels)}" for field in task.fields)
    return f"Answer with these lines and nothing else, each with one of its labels:\n{lines}"


# Answers


def read_decisions(task: Classification, response: object) -> list[Prediction | None]:
    """The predictions of a decision model's response, by field."""
    found = [
        chosen_label(response, name, field.labels) for name, field in _named_fields(task).items()
    ]
    return [each and _soft(*each) for each in found]


def read_structured(task: Classification, parsed: Any) -> list[Prediction | None]:
    """The predictions of a structured output, by field."""
    given = parsed if isinstance(parsed, Mapping) else {}
    return [
        _hard(field, field.parser.find(str(given.get(name, ""))))
        for name, field in _named_fields(task).items()
    ]


def read_text(task: Classification, result: CallResult) -> list[Prediction | None]:
    """The predictions of a text answer by field, with probabilities where it has any."""
    tokens, text = tokens_of(result.answer), result.text
    predictions: list[Prediction | None] = []
    for field in task.fields:
        found = field.find(text)
        mass = found and label_probabilities(field.labels, tokens, text, found)
        if found and mass:
            predictions.append(_soft(found.label, mass))
        else:
            predictions.append(_hard(field, found))
    return predictions


def _soft(label: str, mass: Mapping[str, float]) -> Prediction:
    logs = {k: max(math.log(p), ABSENT) if p > 0.0 else ABSENT for k, p in mass.items()}
    return Prediction(label, logs, is_hard=False)


def _hard(field: LabelField, found: LabelMatch | None) -> Prediction | None:
    if found is None:
        return None
    logprobs = {label: 0.0 if label == found.label else ABSENT for label in field.labels}
    return Prediction(found.label, logprobs, is_hard=True)
