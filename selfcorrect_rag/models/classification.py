"""Classification by any chat model: the label that it gives, and each label's probability.

Critique, grading and closed sets all ask through :class:`ChatClassifier`, the one
place that finds out whether a provider gives log-probabilities, structured output, or neither.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat_model import (
    CallResult,
    Calls,
    ModelCall,
    arun,
    is_bad_request,
    run,
    split_reasoning,
)
from selfcorrect_rag.prompts.crag import VerdictParser
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.prompts.reading import LabelMatch, LabelParser, normalized

ABSENT = -100.0
"""Log-probability of a label without one: finite, for JSON, with a probability of almost 0."""
TOP_LOGPROBS = 20
"""``top_logprobs`` of a request, the most that OpenAI and vLLM allow."""

Mode = Literal["logprobs", "structured", "text"]
"""How a model is asked: with log-probabilities, for structured output, or for plain text."""


def tokens_of(message: Any) -> list[dict[str, Any]] | None:
    """Return an answer's tokens with their log-probabilities, in OpenAI's format; None without."""
    logprobs = (getattr(message, "response_metadata", None) or {}).get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return tokens if isinstance(tokens, list) else None


def label_probabilities(
    labels: Sequence[str], tokens: Sequence[Any] | None, text: str, found: LabelMatch
) -> dict[str, float] | None:
    """Return the probability of each of ``labels`` where ``text`` (no reasoning) has ``found``.

    Labels may be split into any tokens, and share their first ones. So at each position of the
    answer where labels differ, an alternative's probability goes to the label that alone can still
    follow. Alternatives that lead to none, or to several that the answer does not pass, are left
    out: the sum is at most 1, and the caller normalises. None without tokens, or if ``found`` has
    no probability.
    """
    # Tokens before or after the text are reasoning, or the end of a turn.
    before = "".join(token["token"] for token in tokens or ()).rfind(text)
    if not tokens or before < 0:
        return None
    start, end = found.start + before, found.end + before
    mass = dict.fromkeys(labels, 0.0)
    place, path, written = 0, 1.0, ""
    for token in tokens:
        chosen, odds = token["token"], math.exp(min(token["logprob"], 0.0))
        begin, place = place, place + len(chosen)
        if place <= start:
            continue
        # Text before the label in its first token is the same for all labels.
        shared = chosen[: max(start - begin, 0)]
        given = {other["token"]: other["logprob"] for other in token.get("top_logprobs") or ()}
        for other, logprob in {**given, chosen: token["logprob"]}.items():
            following = _following(labels, written + normalized(other[len(shared) :]))
            if other.startswith(shared) and len(following) == 1:
                mass[following[0]] += path * math.exp(min(logprob, 0.0))
        written += normalized(chosen[len(shared) :])
        if _following(labels, written) == [found.label]:
            break
        path *= odds
        if begin >= end:  # the label is a prefix of another, and has ended
            mass[found.label] += path
            break
    else:
        mass[found.label] += path
    if not mass[found.label] > 0.0:
        return None
    total = max(math.fsum(mass.values()), 1.0)
    return {label: p / total for label, p in mass.items()}


def _following(labels: Sequence[str], written: str) -> list[str]:
    """Return the labels that ``written`` is a prefix of, or completes."""
    found = []
    for label, name in ((label, normalized(label)) for label in labels):
        # A token may go beyond the label, but not within a word: "Nobody" is not "No".
        is_beyond = written.startswith(name) and not written[len(name) :][:1].isalnum()
        if name.startswith(written) or is_beyond:
            found.append(label)
    return found


class Classification(NamedTuple):
    """A prompt for a label, or for several fields of labels, a line ``name: label`` for each."""

    prompt: str
    fields: tuple[LabelParser | VerdictParser, ...]
    """Parsers of its labels."""
    is_long: bool = False
    """Whether the answer has more text than its labels."""


class Prediction(NamedTuple):
    """The label that a model gave."""

    label: str
    logprobs: dict[str, float]
    """Natural log-probability of each label, not normalised over them, at least :data:`ABSENT`."""
    is_hard: bool
    """Whether there are no probabilities: the label then has 0, the others :data:`ABSENT`."""


@dataclass(eq=False)
class ClassificationResult:
    """The predictions of one classification."""

    task: Classification
    predictions: list[Prediction | None]
    """By field; None if two answers were unreadable."""
    results: list[CallResult]
    """The results of its calls."""
    error: Exception | None = None
    """The provider's error, if it gave no answer."""

    def take(self, mode: Mode, result: CallResult) -> None:
        """Record a call; labels that an earlier one gave stay."""
        self.results.append(result)
        self.error = result.error
        if result.error is None:
            read = _read_structured if mode == "structured" else _read_text
            pairs = zip(self.predictions, read(self.task, result), strict=True)
            self.predictions = [old or new for old, new in pairs]


class ChatClassifier:
    """Asks any LangChain chat model or LLM to choose among labels.

    The first call detects the mode from its answers: log-probabilities of the answer's tokens,
    structured output, plain text, in this order; a mode that the provider refuses, or ignores, is
    not tried again. An answer without a readable label is retried once, with a reminder of the
    labels, and then counts as absent. So does an error of the provider. Threads and event loops may
    share one.
    """

    def __init__(self, model: Runnable[Any, Any], *, max_concurrency: int = 8) -> None:
        """Classify with ``model``, in at most ``max_concurrency`` concurrent calls."""
        if max_concurrency < 1:  # async calls would wait for ever
            raise ValueError(f"max_concurrency must be at least 1, got {max_concurrency}")
        self.model, self.max_concurrency = model, max_concurrency
        self.mode: Mode | None = None
        """None before it is detected."""

    def classify(self, classifications: Sequence[Classification]) -> list[ClassificationResult]:
        """Return the result of each classification, in their order."""
        return run(self.calls(classifications), self.max_concurrency)

    async def aclassify(
        self, classifications: Sequence[Classification]
    ) -> list[ClassificationResult]:
        """The async twin of :meth:`classify`."""
        return await arun(self.calls(classifications), self.max_concurrency)

    def calls(self, classifications: Sequence[Classification]) -> Calls[list[ClassificationResult]]:
        every = [
            ClassificationResult(task, [None] * len(task.fields), []) for task in classifications
        ]
        if every and self.mode is None:
            yield from self._detect_mode(every[0])
        if self.mode is not None:
            new = [each for each in every if not each.results]
            yield from self._ask(self.mode, new)
            retried = [each for each in every if each.error is None and None in each.predictions]
            yield from self._ask(self.mode, retried, is_retry=True)
        else:  # the first call failed
            for each in every:
                each.error = every[0].error
        return every

    def _ask(
        self, mode: Mode, tasks: Sequence[ClassificationResult], is_retry: bool = False
    ) -> Calls[None]:
        results = yield [self._call(mode, each.task, is_retry) for each in tasks]
        for each, result in zip(tasks, results, strict=True):
            each.take(mode, result)

    def _detect_mode(self, first: ClassificationResult) -> Calls[None]:
        """Set :attr:`mode` by the first classification; it stays None if the provider fails."""
        modes: tuple[Mode, ...] = ("logprobs", "structured", "text")
        for mode in modes:
            if mode == "text" and first.error is None and None not in first.predictions:
                self.mode = mode  # an answer without log-probabilities is one in plain text
                return
            try:
                call = self._call(mode, first.task)
            except (NotImplementedError, AttributeError, TypeError, ValueError, NameError):
                continue  # no structured output; LangChain's fallbacks say so by a NameError
            (result,) = yield [call]
            first.predictions = [None] * len(first.task.fields)
            first.take(mode, result)
            if result.error is None and _is_supported(mode, result):
                self.mode = mode
                return
            if result.error is not None and not is_bad_request(result.error):
                return

    def _call(self, mode: Mode, task: Classification, is_retry: bool = False) -> ModelCall:
        prompt = task.prompt
        if is_retry:
            prompt += f"\n\n{_reminder(task)}"
        if mode == "text":
            return self.model, prompt
        if mode == "structured":
            structured = self.model.with_structured_output  # type: ignore[attr-defined]
            return structured(_schema(task), include_raw=True), prompt
        # A token has at least one character, so this many tokens never cut a label.
        longest = sum(len(f.name) + 3 + max(map(len, f.labels)) for f in task.fields)
        limit = {} if task.is_long else {"max_tokens": longest}
        asked = {"temperature": 0, "logprobs": True, "top_logprobs": TOP_LOGPROBS, **limit}
        return self.model.bind(**asked), prompt


def _is_supported(mode: Mode, result: CallResult) -> bool:
    """Return whether an answer shows that the model supports this mode."""
    if mode == "structured":  # of a text such as "1: no", LangChain's JSON parser reads 1
        return isinstance(result.answer, dict) and isinstance(result.answer.get("parsed"), Mapping)
    if mode == "logprobs":  # with its token limit, a model that thinks aloud never gets to a label
        has_tokens = tokens_of(result.answer) is not None
        return has_tokens and not split_reasoning(as_text(result.answer.content))[1]
    return True


def _schema(task: Classification) -> dict[str, Any]:
    properties = {
        f"label_{number}": {
            "type": "string",
            "enum": list(field.labels),
            "description": field.name or "The label that the answer begins with.",
        }
        for number, field in enumerate(task.fields, start=1)
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
    if len(task.fields) == 1:
        return f"Answer with nothing but one of these: {' or '.join(task.fields[0].labels)}"
    lines = "\n".join(f"{field.name}: {' or '.join(field.labels)}" for field in task.fields)
    return f"Answer with these lines and nothing else, each with one of its labels:\n{lines}"


def _read_structured(task: Classification, result: CallResult) -> list[Prediction | None]:
    parsed = result.answer.get("parsed")
    given = parsed if isinstance(parsed, Mapping) else {}
    predictions: list[Prediction | None] = []
    for number, field in enumerate(task.fields, start=1):
        value = normalized(str(given.get(f"label_{number}")).strip(" ."))
        same = [label for label in field.labels if normalized(label) == value]
        predictions.append(_hard(field, same[0]) if same else None)
    return predictions


def _read_text(task: Classification, result: CallResult) -> list[Prediction | None]:
    """Return the predictions of a text answer by field, with probabilities if it has any."""
    tokens, text = tokens_of(result.answer), result.text
    predictions: list[Prediction | None] = []
    for field in task.fields:
        found = field.find(text)
        mass = found and label_probabilities(field.labels, tokens, text, found)
        if found and mass:
            logs = {k: max(math.log(p), ABSENT) if p > 0.0 else ABSENT for k, p in mass.items()}
            predictions.append(Prediction(found.label, logs, is_hard=False))
        else:
            predictions.append(_hard(field, found.label) if found else None)
    return predictions


def _hard(field: LabelParser | VerdictParser, given: str) -> Prediction:
    return Prediction(given, {x: 0.0 if x == given else ABSENT for x in field.labels}, is_hard=True)
