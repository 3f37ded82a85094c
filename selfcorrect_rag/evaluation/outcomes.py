"""Outcomes: the answer of a method to a question, and the runs and counts of many."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from selfcorrect_rag.evaluation.tasks import Question
from selfcorrect_rag.intake import source_of, title_of
from selfcorrect_rag.prompts.reading import is_refusal

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


class Run(NamedTuple):
    """The contents of the folder of a run."""

    questions: list[Question]
    outcomes: list[Outcome]
    """Method by method, in the order of the questions; those that ended."""
    stopped: str = ""
    """``max_calls`` or ``max_tokens`` if this bound ended the run."""

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in order."""
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def of(self, method: str) -> list[Outcome]:
        """The outcomes of a method, in the order of the questions."""
        return [outcome for outcome in self.outcomes if outcome.method == method]


def outcome_of(
    question: Question, method: str, result: Mapping[str, Any], seconds: float
) -> Outcome:
    """Read the outcome of the variant ``method`` off the result of its graph."""
    answer = result["answer"]
    read = result.get("knowledge" if "grades" in result or "action" in result else "passages")
    usage = result["usage"]
    return Outcome(
        id=question.id,
        method=method,
        answer=answer,
        rationale=result.get("rationale") or "",
        cited_answer=result.get("cited_answer") or "",
        citations=tuple(result.get("citations") or ()),
        passages=tuple(
            {"title": title_of(p), "text": p.page_content, "source": source_of(p)}
            for p in read or ()
        ),
        refused=not answer.strip() or is_refusal(answer),
        retrieved=any(step["step"] == "retrieve" for step in result["route"]),
        searched=bool(result.get("web_query")) and not result.get("web_failure"),
        action=result.get("action") or "",
        grades=tuple(g["score"] for g in result.get("grades") or () if g["score"] is not None),
        candidates=tuple(
            {key: candidate.get(key) for key in CANDIDATE}
            for candidate in result.get("candidates") or ()
        ),
        model_calls=usage["model_calls"],
        prompt_tokens=usage["prompt_tokens"],
        generated_tokens=usage["generated_tokens"],
        seconds=round(seconds, 3),
    )


def outcome_from(row: Mapping[str, Any]) -> Outcome:
    """The outcome of a row of ``rows.jsonl``."""
    known: dict[str, Any] = {name: row[name] for name in Outcome._fields if name in row}
    known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
    return Outcome(**known)


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Count what runs did; divide by ``rows`` for a frequency. Each is failed, refused or answered.

    ``corrected``: CRAG's action was incorrect or ambiguous.
    """
    answered = [o for o in outcomes if o.answer.strip() and not (o.error or o.refused)]
    failed = sum(bool(o.error) for o in outcomes)
    return {
        "rows": len(outcomes),
        "answered": len(answered),
        "refused": len(outcomes) - len(answered) - failed,
        "failed": failed,
        "cited": sum(bool(o.citations) for o in answered),
        "retrieved": sum(o.retrieved for o in outcomes),
        "searched": sum(o.searched for o in outcomes),
        "corrected": sum(o.action in ("incorrect", "ambiguous") for o in outcomes),
    }
