"""The interface between CRAG and a model that grades retrieved documents."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.errors import EvaluatorFailed, wrap_errors
from selfcorrect_rag.models.identity import identity_of_object
from selfcorrect_rag.models.off_loop import in_thread
from selfcorrect_rag.thresholds import PRESETS, Thresholds

IRRELEVANT, RELEVANT = -1.0, 1.0
"""The training labels of a passage, which are the ends of the score's scale."""
_ROUNDING = 1e-6
"""Tolerance beyond the ends of the scale, for rounding in float32."""


class RetrievalEvaluator(ABC):
    """Says how relevant passages are to a question (CRAG section 4.2).

    A backend implements :meth:`score`, and :meth:`ascore` if it can do better than a thread.
    Callers use :func:`grade` or :func:`agrade`, which check the scores.
    """

    thresholds: Thresholds = PRESETS["popqa"]
    """The thresholds that map its scores to an action, unless a run's settings give others;
    :func:`~selfcorrect_rag.thresholds.calibrate` finds them."""

    @property
    def notes(self) -> list[str]:
        """Notes for readers of its scores."""
        return []

    @property
    def identity(self) -> str:
        """A fingerprint for cached results, different for evaluators that may score differently.

        By default it is the object's own, which no other object or process shares. A backend that
        knows all that its scores depend on, including weights, returns that. Thresholds need not be
        part of it.
        """
        return identity_of_object(self)

    @abstractmethod
    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage to the question.

        Args:
            question: the question alone, without a task's instruction.
            passages: documents or strips, any number of them; a blank one scores -1.

        Returns:
            One score in [-1, 1] for each passage, in their order.
        """

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the scores of :meth:`score`, from a thread."""
        return await in_thread(self.score, question, passages)

    def model_calls(self, passages: Sequence[str]) -> int:
        """Return the number of model calls that scoring takes: 0 if all passages are blank."""
        return int(any(passage.strip() for passage in passages))


def grade(evaluator: RetrievalEvaluator, question: str, passages: Sequence[str]) -> list[float]:
    """Return the evaluator's scores, checked.

    NumPy and torch numbers become floats, and scores past an end of the scale by rounding are
    clamped.

    Raises:
        EvaluatorFailed: it raised, or did not return one number in [-1, 1] for each passage.
    """
    name = f"the evaluator ({type(evaluator).__name__})"
    with wrap_errors(EvaluatorFailed, name):
        return _checked(evaluator.score(question, passages), len(passages), name)


async def agrade(
    evaluator: RetrievalEvaluator, question: str, passages: Sequence[str]
) -> list[float]:
    """Return the scores of :func:`grade`."""
    name = f"the evaluator ({type(evaluator).__name__})"
    with wrap_errors(EvaluatorFailed, name):
        given: object = evaluator.ascore(question, passages)
        if inspect.isawaitable(given):
            given = await given
        return _checked(given, len(passages), name)


def grading(evaluator: RetrievalEvaluator) -> Runnable[Mapping[str, Any], dict[str, Any]]:
    """Return :func:`grade` as a run of its own in traces, above the evaluator's model calls.

    From ``{"question": ..., "passages": [...]}`` to ``{"scores": [...]}``.
    """

    def score(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": grade(evaluator, **asked)}

    async def ascore(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": await agrade(evaluator, **asked)}

    return RunnableLambda(score, ascore, name=type(evaluator).__name__)


def _checked(given: object, count: int, name: str) -> list[float]:
    if inspect.iscoroutine(given):
        given.close()  # avoids the "never awaited" warning
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | Set)
    try:
        scores = list(given) if is_list else None  # type: ignore[call-overload]
    except TypeError:  # an array without dimensions
        scores = None
    if scores is None:
        wrong = "None" if given is None else f"a {type(given).__name__}"
    elif len(scores) != count:
        wrong = f"{len(scores)} scores for {count} passages"
    else:
        numbers = [_number(score) for score in scores]
        if None not in numbers:
            return [number for number in numbers if number is not None]
        place = numbers.index(None)
        wrong = f"{scores[place]!r:.60} as score {place}"
    raise EvaluatorFailed(
        f"{name} gave {wrong}: one number in [-1, 1] for each passage is expected"
    )


def _number(score: Any) -> float | None:
    """Return a score as a float in [-1, 1]; None if it is not one."""
    try:
        # NumPy and torch scalars, or arrays of one number.
        plain = score.item() if hasattr(score, "item") else score
        number = None if isinstance(plain, str | bytes | bool) else float(plain)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if number is None or not abs(number) <= RELEVANT + _ROUNDING:  # NaN fails too
        return None
    return min(max(number, IRRELEVANT), RELEVANT)


def titled(document: Document, text: str | None = None) -> str:
    """Return the evaluator's input for a document or a strip: ``title // text`` (official code).

    The title resolves pronouns of a strip. A title that begins the text is not repeated.
    """
    title = " ".join(str(document.metadata.get("title") or "").split())
    text = document.page_content if text is None else text
    if not title or not text.strip() or text.lstrip().lower().startswith(title.lower()):
        return text
    return f"{title} // {text}"


def with_blanks(passages: Sequence[str], scores: Iterable[float]) -> list[float]:
    """Return the scores of all passages, given those of the passages that are not blank.

    A blank passage is irrelevant without a model call, as in the official code.
    """
    given = iter(scores)
    return [next(given) if passage.strip() else IRRELEVANT for passage in passages]
