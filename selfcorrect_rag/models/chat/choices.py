"""Which of a few labels a chat model chooses, and how probable it finds each of them."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat.forms import (
    Choice,
    Form,
    Tokenizer,
    constraint,
    label_ids,
    options,
    read_structured,
    read_text,
    reminder,
    schema,
)
from selfcorrect_rag.models.chat.label_probabilities import tokens_of
from selfcorrect_rag.models.chat.llm_chat import model_behind
from selfcorrect_rag.models.chat.rounds import Call, Cost, Outcome, Rounds, arun, is_refusal, run

Way = Literal["constrained", "logprobs", "structured", "text"]
"""How a model is asked: a vLLM server that can write nothing but labels; any that gives
log-probabilities; structured output or tool calls; plain text."""
WAYS: tuple[Way, ...] = ("constrained", "logprobs", "structured", "text")


class Answer(NamedTuple):
    """What came of a form."""

    choices: list[Choice | None]
    """By slot; None where nothing readable came, twice."""
    cost: Cost
    error: Exception | None
    """Of the provider, where it gave no answer."""


@dataclass
class ChoiceCounts:
    """What a :class:`Chooser` missed since it was made."""

    forms: int = 0
    retried: int = 0
    """Forms asked again because an answer was malformed."""
    absent: int = 0
    """Labels that could not be read, also then."""
    failed: int = 0
    """Forms that ended in an error of the provider."""


class Chooser:
    """Asks any LangChain chat model or LLM to choose among labels.

    What the model can do is found out by the first call, from what comes back: choices constrained
    on a vLLM server, log-probabilities of the answer's tokens, structured output, plain text, in
    this order; a way that the provider refuses, or that gives no log-probabilities, is not tried
    again. An answer without a readable label is asked for once more, with a reminder of the
    labels, and counts as absent after that. So does an error of the provider; one that says when
    to come back is waited for once (:func:`~selfcorrect_rag.models.chat.rounds.patience`).

    Several threads and event loops may share one.
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Ask ``model``.

        Args:
            model: a chat model or an LLM, perhaps bound to options or with retries.
            max_concurrency: most calls at a time for one :meth:`choose`.
            tokenizer: of the model that a vLLM server serves. With it, the log-probabilities of
                the labels' own tokens are read; without, those of the 20 likeliest tokens.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; some call must be made")
        self.model, self.max_concurrency, self._tokenizer = model, max_concurrency, tokenizer
        self.way: Way | None = None
        """How the model is asked; None before the first answer."""
        self.counts = ChoiceCounts()
        self._lock = threading.Lock()
        self._finding: Future[None] | None = None

    def choose(self, forms: Sequence[Form]) -> list[Answer]:
        """The answer to each form, in their order."""
        return run(self.rounds(forms), self.max_concurrency)

    async def achoose(self, forms: Sequence[Form]) -> list[Answer]:
        """The async twin of :meth:`choose`."""
        return await arun(self.rounds(forms), self.max_concurrency)

    def rounds(self, forms: Sequence[Form]) -> Rounds[list[Answer]]:
        """:meth:`choose` as rounds of calls, to be part of larger ones."""
        askings = [_Asking(form) for form in forms]
        if askings and self.way is None:
            yield from self._find_way(askings[0])
        if self.way is None:
            for asking in askings:
                asking.error = askings[0].error
        else:
            while unanswered := [asking for asking in askings if asking.is_open]:
                calls = [self._call(self.way, a.form, a.is_retry) for a in unanswered]
                outcomes = yield calls
                for asking, outcome in zip(unanswered, outcomes, strict=True):
                    asking.take(self.way, outcome)
        self._count(askings)
        return [asking.answer() for asking in askings]

    def _find_way(self, asking: "_Asking") -> Rounds[None]:
        """Settle :attr:`way` by asking the first form, unless somebody else is doing so."""
        mine: Future[None] = Future()
        while True:
            with self._lock:
                if self.way is not None:
                    return
                others = self._finding = self._finding or mine
            if others is mine:
                break
            yield others
            if not others.done():  # it cannot be waited for
                break
        try:
            for way in WAYS:
                if way == "logprobs" and asking.outcomes[-1].error is None:
                    continue  # they were asked for, and did not come
                if way == "text" and asking.is_answered:
                    self.way = way
                    return
                try:
                    call = self._call(way, asking.form)
                except (NotImplementedError, AttributeError, TypeError, ValueError):
                    continue  # the model has no structured output
                (outcome,) = yield [call]
                asking.start(way, outcome)
                if outcome.error is None and _came(way, outcome):
                    self.way = way
                    return
                if outcome.error is not None and not is_refusal(outcome.error):
                    return
        finally:
            with self._lock:
                if self._finding is mine:
                    self._finding = None
            mine.set_result(None)

    def _call(self, way: Way, form: Form, is_retry: bool = False) -> Call:
        prompt = f"{form.prompt}\n\n{reminder(form)}" if is_retry else form.prompt
        match way:
            case "text":
                return Call(self.model, prompt)
            case "structured":
                structured = self.model.with_structured_output  # type: ignore[attr-defined]
                return Call(structured(schema(form), include_raw=True), prompt)
            case "logprobs":
                return Call(self.model.bind(**options(form)), prompt)
            case "constrained":
                extra = {**own_extra(self.model), "structured_outputs": constraint(form)}
                if self._tokenizer is not None:
                    extra["logprob_token_ids"] = label_ids(self._tokenizer, form)
                return Call(self.model.bind(**options(form), extra_body=extra), prompt)

    def _count(self, askings: "Sequence[_Asking]") -> None:
        with self._lock:
            for asking in askings:
                self.counts.forms += 1
                self.counts.retried += asking.is_retry
                self.counts.failed += asking.error is not None
                self.counts.absent += asking.choices.count(None)


class _Asking:
    """One form, while it is asked."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.choices: list[Choice | None] = [None] * len(form.slots)
        self.error: Exception | None = None
        self.outcomes: list[Outcome] = []
        self.is_retry = False
        self._answers = 0

    @property
    def is_open(self) -> bool:
        return self.error is None and self._answers < 2 and None in self.choices

    @property
    def is_answered(self) -> bool:
        return self.error is None and None not in self.choices

    def start(self, way: Way, outcome: Outcome) -> None:
        """Take a first answer; of several, in different ways, the last one counts."""
        self.choices, self.is_retry = [None] * len(self.choices), False
        self._answers = 0
        self.take(way, outcome)

    def take(self, way: Way, outcome: Outcome) -> None:
        """Take an answer to the form, or to the form with its reminder."""
        self.outcomes.append(outcome)
        self.error = outcome.error
        if outcome.error is not None:
            return
        self._answers += 1
        if way == "structured":
            read = read_structured(self.form, outcome.answer.get("parsed"))
        else:
            read = read_text(self.form, outcome)
        self.choices = [old or new for old, new in zip(self.choices, read, strict=True)]
        self.is_retry |= self._answers == 1 and None in self.choices

    def answer(self) -> Answer:
        return Answer(self.choices, Cost.of(self.outcomes), self.error)


def _came(way: Way, outcome: Outcome) -> bool:
    """Whether an answer shows that the model can be asked in this way."""
    match way:
        case "constrained" | "logprobs":
            return tokens_of(outcome.answer) is not None
        case "structured":
            return isinstance(outcome.answer, dict) and outcome.answer.get("parsed") is not None
        case "text":
            return True


def own_extra(model: Runnable[Any, Any]) -> Mapping[str, Any]:
    """A model's own ``extra_body``, which one that is bound would take the place of."""
    bound = getattr(model, "kwargs", {}).get("extra_body")
    return bound or getattr(model_behind(model), "extra_body", None) or {}
