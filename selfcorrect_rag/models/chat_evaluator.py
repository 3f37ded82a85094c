"""A chat model as CRAG's retrieval evaluator (section 5.5, appendix A)."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat_model import Calls, arun, run
from selfcorrect_rag.models.classification import (
    ChatClassifier,
    Classification,
    LabelField,
    Prediction,
)
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT, RetrievalEvaluator
from selfcorrect_rag.prompts.crag import (
    NO,
    YES,
    PromptKind,
    VerdictParser,
    prompt_for_one,
    prompt_for_several,
)
from selfcorrect_rag.thresholds import Thresholds

UNREADABLE = 0.0
"""The score of a passage without a readable yes or no."""


class ChatEvaluator(RetrievalEvaluator):
    """Grades by asking any LangChain chat model or LLM for yes or no.

    With log-probabilities a score is P(yes) - P(no), normalised over both. Otherwise it is 1 or -1,
    a hard label, which :attr:`notes` and :attr:`counts` report. Up to ``passages_per_call``
    passages go into one call; if its answer does not give exactly one verdict for each, it is
    retried once with a reminder of the format, and then its passages score 0.

    In the paper a fine-tuned T5 judges far better than ChatGPT (Table 4: 84.3 against 64.7 at
    best): use this if no such evaluator is available.
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
            llm: a chat model or an LLM, perhaps bound to options or with retries.
            prompt: which of the paper's prompts to use; by default its best one.
            passages_per_call: maximum passages per call; 1 is the paper's procedure.
            max_concurrency: maximum number of concurrent calls for one :meth:`score`.
            thresholds: found for this model by ``selfcorrect-rag calibrate``.
        """
        if passages_per_call < 1:
            raise ValueError(f"passages_per_call must be at least 1, got {passages_per_call}")
        self.llm, self.prompt, self.passages_per_call = llm, prompt, passages_per_call
        self.max_concurrency = max_concurrency
        self.thresholds = thresholds or self.thresholds
        self._classifier = ChatClassifier(llm)

    @property
    def counts(self) -> Counter[str]:
        """Counts of malformed, failed and hard verdicts; see :class:`ChatClassifier`."""
        return self._classifier.counts

    @property
    def notes(self) -> list[str]:
        """Notes on hard labels and unreadable verdicts, if any."""
        hard = "the evaluator's provider gave no probabilities: its scores are hard labels"
        absent = "the evaluator's model gave unreadable verdicts: their scores are 0"
        return [hard] * bool(self.counts["hard"]) + [absent] * bool(self.counts["absent"])

    @property
    def identity(self) -> str:
        """A fingerprint of its model and prompt options."""
        options = f"{self.prompt} {self.passages_per_call}"
        return f"{type(self).__qualname__} {options} {identity(self.llm)}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage in [-1, 1], in order.

        A blank passage scores -1 without a call; one with an unreadable answer scores 0. Errors of
        the model pass through, after one retry if it gave a Retry-After.
        """
        return run(self._calls(question, passages), self.max_concurrency)

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the scores of :meth:`score`."""
        return await arun(self._calls(question, passages), self.max_concurrency)

    def model_calls(self, passages: Sequence[str]) -> int:
        """Return the number of calls that scoring them takes if all answers are readable."""
        nonblank = sum(bool(passage.strip()) for passage in passages)
        return -(-nonblank // self.passages_per_call)

    def _calls(self, question: str, passages: Sequence[str]) -> Calls[list[float]]:
        nonblank = [i for i, passage in enumerate(passages) if passage.strip()]
        size = self.passages_per_call
        groups = [nonblank[start : start + size] for start in range(0, len(nonblank), size)]
        asked = [self._classification(question, [passages[i] for i in group]) for group in groups]
        results = yield from self._classifier.calls(asked)
        scores = [IRRELEVANT] * len(passages)
        for group, result in zip(groups, results, strict=True):
            if result.error is not None:
                raise result.error
            for i, prediction in zip(group, result.predictions, strict=True):
                scores[i] = UNREADABLE if prediction is None else _score(prediction)
        return scores

    def _classification(self, question: str, passages: Sequence[str]) -> Classification:
        kind, count = self.prompt, len(passages)
        is_long = kind == "chain_of_thought"
        if count == 1:
            prompt = prompt_for_one(kind, question, passages[0])
            return Classification(prompt, (LabelField(VerdictParser(kind)),), prompt, is_long)
        numbers = range(1, count + 1)
        fields = tuple(LabelField(VerdictParser(kind, n, count), str(n)) for n in numbers)
        retry = prompt_for_several(kind, question, passages, is_retry=True)
        return Classification(prompt_for_several(kind, question, passages), fields, retry, is_long)


def _score(prediction: Prediction) -> float:
    yes, no = (math.exp(prediction.logprobs[label]) for label in (YES, NO))
    return (yes - no) / (yes + no)
