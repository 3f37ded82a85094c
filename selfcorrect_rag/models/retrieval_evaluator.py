"""Models that grade retrieved documents for CRAG: the interface, and a chat model behind it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.config import run_in_executor

from selfcorrect_rag.errors import EvaluatorFailed, wrap_errors
from selfcorrect_rag.models.classification import (
    ChatClassifier,
    Classification,
    ClassificationResult,
)
from selfcorrect_rag.models.identity import identity, identity_of_object
from selfcorrect_rag.prompts.crag import NO, YES, PromptKind, VerdictParser, grading_prompt
from selfcorrect_rag.thresholds import PRESETS, Thresholds

IRRELEVANT, RELEVANT = -1.0, 1.0
"""The training labels of a passage, which are the ends of the score's scale."""
UNREADABLE = 0.0
"""The score of a passage about which a chat model gave no readable yes or no."""


class RetrievalEvaluator(ABC):
    """Scores how relevant passages are to a question (CRAG section 4.2).

    A backend implements :meth:`score`, and :meth:`ascore` if it can do better than a thread.
    """

    thresholds: Thresholds = PRESETS["popqa"]
    """Map its scores to an action, unless a run's settings give others."""

    def notes(self, scores: Sequence[float]) -> list[str]:
        """Return notes for readers of these scores that it gave."""
        return []

    @property
    def identity(self) -> str:
        """A fingerprint for cached results: all that its scores depend on, by default the object.
        Thresholds need not be part of it."""
        return identity_of_object(self)

    @abstractmethod
    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage to the question, in [-1, 1] and in their order.

        ``question`` has no task's instruction; a blank passage scores -1.
        """

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the scores of :meth:`score`, from a thread."""
        return await run_in_executor(None, self.score, question, passages)

    def model_calls(self, passages: Sequence[str]) -> int:
        """Return the number of model calls that scoring takes: 0 if all passages are blank."""
        return int(any(passage.strip() for passage in passages))


def grade(evaluator: RetrievalEvaluator, question: str, passages: Sequence[str]) -> list[float]:
    """Return the evaluator's scores as floats; EvaluatorFailed unless it gives one number in
    [-1, 1] for each passage."""
    with wrap_errors(EvaluatorFailed, _name(evaluator)):
        return _checked(evaluator, evaluator.score(question, passages), passages)


def grading(evaluator: RetrievalEvaluator) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """Return :func:`grade` as a run of its own in traces, above the evaluator's model calls, from
    ``{"question": ..., "passages": [...]}`` to ``{"scores": [...]}``."""

    def score(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": grade(evaluator, **asked)}

    async def ascore(asked: Mapping[str, Any]) -> dict[str, Any]:
        with wrap_errors(EvaluatorFailed, _name(evaluator)):
            given = await evaluator.ascore(**asked)
            return {"scores": _checked(evaluator, given, asked["passages"])}

    return RunnableLambda(score, ascore, name=type(evaluator).__name__)


def _name(evaluator: RetrievalEvaluator) -> str:
    return f"the evaluator ({type(evaluator).__name__})"


def _checked(evaluator: RetrievalEvaluator, given: Any, passages: Sequence[str]) -> list[float]:
    try:
        scores = [float(score) for score in given]
    except (TypeError, ValueError, OverflowError):
        scores = [math.nan]
    if len(scores) != len(passages) or not all(abs(score) <= RELEVANT + 1e-6 for score in scores):
        wrong = f"{_name(evaluator)} gave {given!r:.80} for {len(passages)} passages"
        raise EvaluatorFailed(f"{wrong}: one number in [-1, 1] for each is expected")
    return [min(max(score, IRRELEVANT), RELEVANT) for score in scores]


def titled(document: Document, text: str | None = None) -> str:
    """Return the evaluator's input for a document or a strip: ``title // text`` (official code),
    without a title that begins the text."""
    title = " ".join(str(document.metadata.get("title") or "").split())
    text = document.page_content if text is None else text
    if not title or not text.strip() or text.lstrip().lower().startswith(title.lower()):
        return text
    return f"{title} // {text}"


def with_blanks(passages: Sequence[str], scores: Iterable[float]) -> list[float]:
    """Return the scores of all passages, given those of the passages that are not blank; a blank
    one is irrelevant without a model call, as in the official code."""
    given = iter(scores)
    return [next(given) if passage.strip() else IRRELEVANT for passage in passages]


class ChatEvaluator(RetrievalEvaluator):
    """Grades by asking any LangChain chat model or LLM for yes or no (section 5.5, appendix A).

    With log-probabilities a score is P(yes) - P(no), normalised over both. Otherwise it is 1 or -1,
    a hard label, which :meth:`notes` tells. Up to ``passages_per_call`` passages go
    into one call; passages without a verdict are asked about once more, and then score 0. Errors
    of the model pass through.

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
        self.llm, self.prompt, self.passages_per_call = llm, prompt, passages_per_call
        self.thresholds = thresholds or self.thresholds
        self._classifier = ChatClassifier(llm, max_concurrency=max_concurrency)

    def notes(self, scores: Sequence[float]) -> list[str]:
        hard = "the evaluator's provider gave no probabilities: its scores are hard labels"
        absent = "the evaluator's model gave unreadable verdicts: their scores are 0"
        is_hard = any(scores) and {*scores} <= {IRRELEVANT, UNREADABLE, RELEVANT}
        is_hard &= self._classifier.mode != "logprobs"  # which may be as sure
        return [hard] * is_hard + [absent] * (UNREADABLE in scores)

    @property
    def identity(self) -> str:
        options = f"{self.prompt} {self.passages_per_call}"
        return f"{type(self).__qualname__} {options} {identity(self.llm)}"

    def model_calls(self, passages: Sequence[str]) -> int:
        """Return the number of calls that scoring them takes if all answers are readable."""
        nonblank = sum(bool(passage.strip()) for passage in passages)
        return -(-nonblank // self.passages_per_call)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        results = self._classifier.classify(self._questions(question, passages))
        return with_blanks(passages, _verdicts(results))

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        results = await self._classifier.aclassify(self._questions(question, passages))
        return with_blanks(passages, _verdicts(results))

    def _questions(self, question: str, passages: Sequence[str]) -> list[Classification]:
        """Return what the model is asked about the passages that are not blank."""
        asked, size, kind = [], self.passages_per_call, self.prompt
        given = [passage for passage in passages if passage.strip()]
        for start in range(0, len(given), size):
            group = given[start : start + size]
            prompt = grading_prompt(kind, question, group)
            fields = tuple(VerdictParser(kind, i, len(group)) for i in range(1, len(group) + 1))
            asked.append(Classification(prompt, fields, is_long=kind == "chain_of_thought"))
        return asked


def _verdicts(results: Sequence[ClassificationResult]) -> list[float]:
    scores = []
    for result in results:
        if result.error is not None:
            raise result.error
        for prediction in result.predictions:
            if prediction is None:
                scores.append(UNREADABLE)
            else:
                yes, no = (math.exp(prediction.logprobs[label]) for label in (YES, NO))
                scores.append((yes - no) / (yes + no))
    return scores
