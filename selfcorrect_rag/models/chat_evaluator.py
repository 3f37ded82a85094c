"""A chat model as CRAG's retrieval evaluator (section 5.5, appendix A)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat_model import (
    TOP_LOGPROBS,
    CallResult,
    Calls,
    ModelCall,
    arun,
    is_refusal,
    label_probabilities,
    run,
    tokens_of,
)
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT, RELEVANT, RetrievalEvaluator
from selfcorrect_rag.prompts.evaluator import (
    NO,
    YES,
    PromptKind,
    parse_label,
    parse_labels,
    prompt_for_one,
    prompt_for_several,
)
from selfcorrect_rag.prompts.labels import LabelMatch
from selfcorrect_rag.thresholds import Thresholds

UNREADABLE = 0.0
"""The score of a passage without a readable yes or no."""


@dataclass
class ChatCounts:
    """Counts of a :class:`ChatEvaluator`'s calls and failures since it was made."""

    calls: int = 0
    """Calls of the model."""
    retried: int = 0
    """Calls about several passages that were retried because of a malformed answer."""
    unreadable: int = 0
    """Passages scored 0 because their verdict was unreadable."""
    hard: int = 0
    """Passages scored 1 or -1 because the answer came without probabilities."""


class ChatEvaluator(RetrievalEvaluator):
    """Grades by asking any LangChain chat model, LLM or decision model for yes or no.

    With a decision model's probabilities, or log-probabilities, which are requested until the
    provider refuses, a score is P(yes) - P(no), normalised over both. Otherwise it is 1 or -1, a
    hard label, which :attr:`notes` and :attr:`counts` report.

    Up to ``passages_per_call`` passages go into one call. If answers do not give exactly one
    verdict for each, the first such call is retried with a reminder of the format. If that helps,
    so are the others, once; else all their passages score 0, so that a model that cannot keep to
    the format costs only one extra call. Such a model may do better with ``passages_per_call=1``.
    In the paper a fine-tuned T5 judges far better than ChatGPT (Table 4: 84.3 against 64.7 at
    best): use this where no such evaluator is available.
    """

    thresholds = Thresholds(upper=0.5, lower=-0.5)
    """A clear yes is Correct, only clear noes are Incorrect, anything else is Ambiguous."""

    def __init__(
        self,
        llm: Runnable[Any, Any],
        *,
        prompt: PromptKind = "few_shot",
        passages_per_call: int = 10,
        max_concurrency: int = 8,
        thresholds: Thresholds | None = None,
    ) -> None:
        """Grade with ``llm``; use temperature 0 for reproducible scores.

        Args:
            llm: a chat model, an LLM or a decision model, perhaps bound to options or with retries.
            prompt: which of the paper's prompts to use; by default its best one. A decision model
                gets a typed question instead.
            passages_per_call: maximum passages per call; 1 is the paper's procedure.
            max_concurrency: maximum number of concurrent calls for one :meth:`score`.
            thresholds: found for this model by ``selfcorrect-rag calibrate``.
        """
        if passages_per_call < 1:
            raise ValueError(
                f"passages_per_call is {passages_per_call}; a call is about at least 1 passage"
            )
        self.llm, self.prompt, self.passages_per_call = llm, prompt, passages_per_call
        self.max_concurrency = max_concurrency
        self.thresholds = thresholds or self.thresholds
        self._is_plain = False
        self._counts, self._counting = ChatCounts(), threading.Lock()

    @property
    def counts(self) -> ChatCounts:
        """The counts so far, over all runs."""
        with self._counting:
            return replace(self._counts)

    @property
    def notes(self) -> list[str]:
        """Notes on hard labels and unreadable verdicts, if any."""
        counts, notes = self.counts, []
        if counts.hard:
            notes.append(
                "the evaluator's provider gave no probabilities: its scores are hard labels"
            )
        if counts.unreadable:
            notes.append(
                "the evaluator's model gave verdicts that cannot be read: their scores are 0"
            )
        return notes

    @property
    def identity(self) -> str:
        """A fingerprint of its model and prompt options."""
        return (
            f"{type(self).__qualname__} {self.prompt} {self.passages_per_call} {identity(self.llm)}"
        )

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """The relevance of each passage in [-1, 1], in order.

        A blank passage scores -1 without a call; one with an unreadable answer scores 0. Errors of
        the model pass through, after one retry if it gave a Retry-After;
        :func:`~selfcorrect_rag.models.retrieval_evaluator.grade` wraps them.
        """
        return run(self._calls(question, passages), self.max_concurrency)

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """The async twin of :meth:`score`."""
        return await arun(self._calls(question, passages), self.max_concurrency)

    def model_calls(self, passages: Sequence[str]) -> int:
        """Calls that scoring them takes if all answers are readable."""
        nonblank = sum(bool(passage.strip()) for passage in passages)
        return -(-nonblank // self.passages_per_call)

    def _calls(self, question: str, passages: Sequence[str]) -> Calls[list[float]]:
        grading, is_plain = _Grading(self, question, passages), self._is_plain
        while inputs := grading.inputs():
            llm = self.llm if is_plain else self.llm.bind(logprobs=True, top_logprobs=TOP_LOGPROBS)
            results = yield [ModelCall(llm, each) for each in inputs]
            errors = [result.error for result in results if result.error is not None]
            if errors and not is_plain and all(map(is_refusal, errors)):
                is_plain = True
                continue
            if errors:
                raise errors[0]
            self._is_plain = is_plain
            grading.read(results)
        with self._counting:
            for field in fields(ChatCounts):
                sofar = getattr(self._counts, field.name)
                setattr(self._counts, field.name, sofar + getattr(grading.counts, field.name))
        return grading.scores


class _Grading:
    """A ``score`` in progress: the remaining passages, grouped by prompt."""

    def __init__(self, evaluator: ChatEvaluator, question: str, passages: Sequence[str]) -> None:
        self._kind, self._question, self._passages = evaluator.prompt, question, passages
        nonblank = [i for i, passage in enumerate(passages) if passage.strip()]
        size = evaluator.passages_per_call
        self._groups = [nonblank[start : start + size] for start in range(0, len(nonblank), size)]
        self._waiting: list[list[int]] = []
        """Groups with malformed answers, while the first of them is retried."""
        self._is_retry = False
        self.scores = [IRRELEVANT] * len(passages)
        self.counts = ChatCounts()

    def inputs(self) -> list[Any]:
        """The next inputs of the model; empty when done."""
        return [
            prompt_for_one(self._kind, self._question, self._passages[group[0]])
            if len(group) == 1
            else prompt_for_several(
                self._kind,
                self._question,
                [self._passages[i] for i in group],
                is_retry=self._is_retry,
            )
            for group in self._groups
        ]

    def read(self, results: Sequence[CallResult]) -> None:
        """Record the answers to :meth:`inputs`, in order."""
        groups, unread = self._groups, []
        self.counts.calls += len(groups)
        self.counts.retried += len(groups) if self._is_retry else 0
        for group, result in zip(groups, results, strict=True):
            if len(group) == 1:
                self._set(group[0], parse_label(self._kind, result.text), result)
            elif (given := parse_labels(result.text, len(group))) is None:
                unread.append(group)
            else:
                for i, found in zip(group, given, strict=True):
                    self._set(i, found, result)
        if not self._is_retry:
            self._groups, self._waiting = unread[:1], unread[1:]
        elif unread:  # the reminder does not help
            for i in (i for group in [*unread, *self._waiting] for i in group):
                self._set(i, None, None)
            self._groups = self._waiting = []
        else:
            self._groups, self._waiting = self._waiting, []
        self._is_retry = True

    def _set(self, passage: int, found: LabelMatch | None, result: CallResult | None) -> None:
        if found is None or result is None:
            self.counts.unreadable += 1
            self.scores[passage] = UNREADABLE
            return
        tokens = tokens_of(result.answer)
        if mass := label_probabilities((YES, NO), tokens, result.text, found):
            self.scores[passage] = (mass[YES] - mass[NO]) / (mass[YES] + mass[NO])
        else:
            self.counts.hard += 1
            self.scores[passage] = RELEVANT if found.label == YES else IRRELEVANT
