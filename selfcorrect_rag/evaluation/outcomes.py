"""Outcomes: the answer of a method to a question, and sums over many."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.tasks import Question
from selfcorrect_rag.prompts.marks import is_refusal
from selfcorrect_rag.prompts.parts import as_text

CANDIDATE = (
    *("depth", "parent", "step", "passage", "text", "critique", "sequence_probability"),
    *("score", "next", "dropped", "chosen"),
)
"""Keys of a candidate that rows keep, enough to weigh it again."""


class Outcome(NamedTuple):
    """The answer of one method to one question: a row of ``rows.jsonl``."""

    id: str
    """The id of the question."""
    method: str
    answer: str
    """Without citation marks; empty if the run failed."""
    rationale: str = ""
    """InstructRAG's."""
    cited_answer: str = ""
    citations: tuple[Mapping[str, Any], ...] = ()
    passages: tuple[Mapping[str, Any], ...] = ()
    """``title``, ``text``, ``source`` of each text that the answer could cite, in order."""
    refused: bool = False
    retrieved: bool = False
    searched: bool = False
    """Whether the web was searched."""
    action: str = ""
    """CRAG's."""
    grades: tuple[float, ...] = ()
    """The evaluator's, of what was retrieved, -1 to 1."""
    candidates: tuple[Mapping[str, Any], ...] = ()
    """Self-RAG's segments, each with the keys of :data:`CANDIDATE`."""
    model_calls: int = 0
    prompt_tokens: int | None = 0
    """None if a model did not report it."""
    generated_tokens: int | None = 0
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer."""


def outcome_of(
    question: Question, method: str, result: Mapping[str, Any], seconds: float
) -> Outcome:
    """Read an outcome off a graph's result.

    Args:
        question: what was asked.
        method: the variant's name.
        result: of one of our graphs, or of another one that gives an ``answer``, or ``messages``
            that end with it, and any other key of ours.
        seconds: wall-clock time of the run.

    Raises:
        ValueError: there is no answer.
    """
    answer = result.get("answer")
    if not isinstance(answer, str):
        messages = result.get("messages") or ()
        if not messages or not hasattr(messages[-1], "content"):
            raise ValueError("the graph's result has neither an answer nor messages")
        answer = as_text(messages[-1].content)
    steps = [run["step"] for run in result.get("route") or ()]
    corrects = "grades" in result or "action" in result
    usage = result.get("usage") or {}
    return Outcome(
        id=question.id,
        method=method,
        answer=answer,
        rationale=result.get("rationale") or "",
        cited_answer=result.get("cited_answer") or "",
        citations=tuple(result.get("citations") or ()),
        passages=tuple(map(_shown, result.get("knowledge" if corrects else "passages") or ())),
        refused=not answer.strip() or is_refusal(answer),
        retrieved="retrieve" in steps if steps else bool(result.get("passages")),
        searched=bool(result.get("web_query")) and not result.get("web_failure"),
        action=result.get("action") or "",
        grades=tuple(g["score"] for g in result.get("grades") or () if g["score"] is not None),
        candidates=tuple(
            {key: candidate.get(key) for key in CANDIDATE}
            for candidate in result.get("candidates") or ()
        ),
        model_calls=usage.get("model_calls", 0),
        prompt_tokens=usage.get("prompt_tokens"),
        generated_tokens=usage.get("generated_tokens"),
        seconds=round(seconds, 3),
    )


def _shown(document: Document) -> dict[str, str]:
    known = document.metadata
    source = str(known.get("source") or known.get("url") or "")
    return {"title": str(known.get("title") or ""), "text": document.page_content, "source": source}


def outcome_from(row: Mapping[str, Any]) -> Outcome:
    """The outcome of a row of ``rows.jsonl``."""
    given: dict[str, Any] = {}
    for name in Outcome._fields:
        if name in row:
            given[name] = tuple(row[name]) if isinstance(row[name], list) else row[name]
    return Outcome(**given)


def is_answered(outcome: Outcome) -> bool:
    """Whether the run ended with words that are not a refusal."""
    return not (outcome.error or outcome.refused) and bool(outcome.answer.strip())


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Count what runs did; divide by ``rows`` for a frequency. Each is failed, refused or answered.

    ``corrected``: CRAG's action was incorrect or ambiguous.
    """
    return {
        "rows": len(outcomes),
        "answered": sum(map(is_answered, outcomes)),
        "refused": sum(not (o.error or is_answered(o)) for o in outcomes),
        "failed": sum(bool(o.error) for o in outcomes),
        "cited": sum(is_answered(o) and bool(o.citations) for o in outcomes),
        "retrieved": sum(o.retrieved for o in outcomes),
        "searched": sum(o.searched for o in outcomes),
        "corrected": sum(o.action in ("incorrect", "ambiguous") for o in outcomes),
    }


def official_retrieval_frequency(outcomes: Sequence[Outcome]) -> float:
    """Retrieval frequency as Self-RAG's ``run_short_form.py`` prints it. Trap: it divides by the 8
    keys of its result, not by the number of questions."""
    return sum(o.retrieved for o in outcomes) / 8


def confidences(outcomes: Sequence[Outcome]) -> list[float] | None:
    """How sure a method was of each answer, -1 if it did not say: Self-RAG by ISSUP of its last
    chosen segment, else that segment's probability; CRAG by its best grade. None: it never says."""
    none: Mapping[str, Any] = {}
    chosen = [next((c for c in reversed(o.candidates) if c["chosen"]), none) for o in outcomes]
    for values in (
        [(candidate.get("critique") or {}).get("ISSUP") for candidate in chosen],
        [candidate.get("sequence_probability") for candidate in chosen],
        [max(o.grades, default=None) for o in outcomes],
    ):
        if any(value is not None for value in values):
            return [-1.0 if value is None else value for value in values]
    return None


class AbstentionPoint(NamedTuple):
    """A method that answers only above a confidence."""

    threshold: float
    """The lowest confidence at which it answers."""
    answered: float
    """Share of all rows that it answers."""
    accuracy: float
    """Mean score of these."""


def abstention_curve(
    outcomes: Sequence[Outcome],
    scores: Sequence[float | None],
    confidences: Sequence[float] | None = None,
) -> list[AbstentionPoint]:
    """Accuracy of the answered against the share answered, from the highest threshold down.

    Refused and failed rows are never answered but count among all; rows without a score do not.
    There is a score for each outcome, and a confidence; without confidences the curve is one point.

    Raises:
        BadArgument: the lengths differ.
    """
    sure = [0.0] * len(outcomes) if confidences is None else confidences
    if not len(outcomes) == len(scores) == len(sure):
        raise BadArgument("outcomes, scores and confidences must be of one length")
    rows = [row for row in zip(outcomes, scores, sure, strict=True) if row[1] is not None]
    ranked = sorted(((c, s or 0.0) for o, s, c in rows if is_answered(o)), reverse=True)
    points: list[AbstentionPoint] = []
    answered, total = 0, 0.0
    for threshold, group in groupby(ranked, key=lambda pair: pair[0]):
        for _, value in group:
            answered, total = answered + 1, total + value
        points.append(AbstentionPoint(threshold, answered / len(rows), total / answered))
    return points
