"""The interface between CRAG and a model that grades retrieved documents."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.errors import EvaluatorFailed, wrap_errors
from selfcorrect_rag.models.identity import identity_of_object
from selfcorrect_rag.thresholds import PRESETS, Thresholds

IRRELEVANT, RELEVANT = -1.0, 1.0
"""The training labels of a passage, which are the ends of the score's scale."""
ROUNDING = 1e-6
"""Tolerance beyond the ends of the scale, for rounding in float32."""


class RetrievalEvaluator(ABC):
    """Says how relevant passages are to a question (CRAG section 4.2).

    A backend implements :meth:`score`, and :meth:`ascore` where it can do better than a thread.
    Callers use :func:`grade` or :func:`agrade`, which check the scores.
    """

    thresholds: Thresholds = PRESETS["popqa"]
    """The thresholds that map its scores to an action, unless a run's settings give others;
    :func:`~selfcorrect_rag.thresholds.calibrate` finds them."""

    is_independent = False
    """Whether the score of a passage depends on no other passage of its call."""

    @property
    def notes(self) -> list[str]:
        """Notes for readers of its scores."""
        return []

    @property
    def identity(self) -> str:
        """A fingerprint for cached results; evaluators that may score differently have different
        ones.

        By default it is the object's own, which no other object or process shares. A backend that
        knows all that its scores depend on, including weights, returns that. Thresholds need not be
        part of it.
        """
        return identity_of_object(self)

    @abstractmethod
    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """The relevance of each passage to the question.

        Args:
            question: the question alone, without a task's instruction.
            passages: documents or strips, any number of them; a blank one scores -1.

        Returns:
            One score in [-1, 1] for each passage, in their order.
        """

    def model_calls(self, passages: Sequence[str]) -> int:
        """Number of model calls that scoring them takes: 0 if all are blank, 1 if they are one
        batch."""
        return int(any(passage.strip() for passage in passages))

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """The async twin of :meth:`score`."""
        return await asyncio.to_thread(self.score, question, passages)


def grade(evaluator: RetrievalEvaluator, question: str, passages: Sequence[str]) -> list[float]:
    """The evaluator's scores, checked.

    NumPy and torch numbers become floats, and scores past an end of the scale by rounding are
    clamped.

    Raises:
        EvaluatorFailed: it raised, or did not return one number in [-1, 1] for each passage.
    """
    with _named(evaluator):
        return _checked(evaluator.score(question, passages), len(passages), evaluator)


async def agrade(
    evaluator: RetrievalEvaluator, question: str, passages: Sequence[str]
) -> list[float]:
    """The async twin of :func:`grade`."""
    with _named(evaluator):
        given: object = evaluator.ascore(question, passages)
        if inspect.isawaitable(given):
            given = await given
        return _checked(given, len(passages), evaluator)


def grading(evaluator: RetrievalEvaluator) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """:func:`grade` as a run of its own in traces, whose children are the evaluator's model calls.

    From ``{"question": ..., "passages": [...]}`` to ``{"scores": [...]}``.
    """

    def score(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": grade(evaluator, asked["question"], asked["passages"])}

    async def ascore(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": await agrade(evaluator, asked["question"], asked["passages"])}

    return RunnableLambda(score, ascore, name=type(evaluator).__name__)


def _named(evaluator: RetrievalEvaluator) -> AbstractContextManager[None]:
    return wrap_errors(EvaluatorFailed, f"the evaluator ({type(evaluator).__name__})")


def _checked(given: object, count: int, evaluator: RetrievalEvaluator) -> list[float]:
    if inspect.iscoroutine(given):
        given.close()  # avoids the "never awaited" warning
    scores = _listed(given)
    if scores is None:
        wrong = f"a {type(given).__name__}" if given is not None else "None"
    elif len(scores) != count:
        wrong = f"{len(scores)} scores for {count} passages"
    else:
        numbers = [_number(score) for score in scores]
        read = [number for number in numbers if number is not None]
        if len(read) == count:
            return read
        place = numbers.index(None)
        wrong = f"{scores[place]!r:.60} as score {place}"
    raise EvaluatorFailed(
        f"the evaluator ({type(evaluator).__name__}) gave {wrong}: one number in "
        f"[{IRRELEVANT:g}, {RELEVANT:g}] for each passage is expected"
    )


def _listed(given: object) -> list[object] | None:
    if isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable):
        return None
    try:
        return list(given)
    except TypeError:  # an array without dimensions
        return None


def _number(score: object) -> float | None:
    """A score as a float in [-1, 1]; None if it is not one."""
    try:
        # NumPy and torch scalars, or arrays of one number.
        plain: Any = score.item() if hasattr(score, "item") else score
        if isinstance(plain, str | bytes | bool):
            return None
        number = float(plain)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if not IRRELEVANT - ROUNDING <= number <= RELEVANT + ROUNDING:  # NaN fails too
        return None
    return min(max(number, IRRELEVANT), RELEVANT)


def titled(document: Document, text: str | None = None) -> str:
    """The evaluator's input for a document or a strip of it: ``title // text`` (official code).

    The title resolves pronouns of a strip. A title that begins the text is not repeated.
    """
    title = " ".join(str(document.metadata.get("title") or "").split())
    text = document.page_content if text is None else text
    if not title or not text.strip() or text.lstrip().lower().startswith(title.lower()):
        return text
    return f"{title} // {text}"


def with_blanks(passages: Sequence[str], scores: Iterable[float]) -> list[float]:
    """Scores of all passages, given those of the passages that are not blank.

    A blank passage is irrelevant without a model call, as in the official code.
    """
    given = iter(scores)
    return [next(given) if passage.strip() else IRRELEVANT for passage in passages]
