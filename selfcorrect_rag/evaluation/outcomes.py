"""Outcomes of runs: read off a graph's result, and written to rows and read back."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.render import reading
from selfcorrect_rag.state import FREE, Usage, total

STRIP = ("text", "score", "kept")
CANDIDATE = (
    *("depth", "passage", "text", "critique", "judgements"),
    *("sequence_probability", "score", "chosen"),
)
"""What rows keep of a graph's strips and candidates."""


def outcome_of(
    question: Question,
    method: str,
    result: Mapping[str, Any],
    seconds: float,
    counted: Usage = FREE,
) -> Outcome:
    """What a graph's result says.

    Args:
        question: what was asked.
        method: the variant's name.
        result: of any of our graphs; or of another one, with an ``answer``, or ``messages`` that
            end with it, and any of the keys of ours.
        seconds: wall-clock time of the run.
        counted: the cost of a graph that does not count its own.

    Raises:
        ValueError: it has no answer.
    """
    answer = _answer(result)
    costs = result.get("route") or []
    cost = total(costs) if costs else counted
    steps = [step.get("step") for step in reading.records(result, "route")]
    grades = (reading.number(grade.get("score")) for grade in reading.records(result, "grades"))
    strips = (*reading.records(result, "strips"), *reading.records(result, "web_strips"))
    return Outcome(
        id=question.id,
        method=method,
        answer=answer,
        rationale=str(result.get("rationale") or ""),
        cited_answer=str(result.get("cited_answer") or ""),
        citations=tuple(reading.records(result, "citations")),
        passages=_texts(reading.knowledge_of(result)[1]),
        refused=not answer.strip() or is_refusal(answer),
        retrieved="retrieve" in steps if steps else bool(reading.rows(result, "passages")),
        searched=bool(result.get("web_query")) and not result.get("web_failure"),
        action=str(result.get("action") or ""),
        documents=_texts(reading.documents(result, "passages")),
        grades=tuple(score for score in grades if score is not None),
        thresholds=dict(reading.record(result, "thresholds")),
        strips=tuple({name: strip.get(name) for name in STRIP} for strip in strips),
        retrieval=reading.number(reading.record(result, "retrieval").get("probability")),
        candidates=tuple(
            {name: candidate.get(name) for name in CANDIDATE}
            for candidate in reading.records(result, "candidates")
        ),
        model_calls=cost["model_calls"],
        prompt_tokens=cost["prompt_tokens"],
        generated_tokens=cost["generated_tokens"],
        seconds=round(seconds, 3),
    )


def _texts(documents: Sequence[reading.Shown]) -> tuple[dict[str, str], ...]:
    return tuple({"title": d.title, "text": d.text, "source": d.source} for d in documents)


def _answer(result: Mapping[str, Any]) -> str:
    if isinstance(answer := result.get("answer"), str):
        return answer
    messages = reading.rows(result, "messages")
    if messages and hasattr(messages[-1], "content"):
        return as_text(messages[-1].content)
    raise ValueError("the graph's result has neither an answer nor messages")


def outcome_from(row: Mapping[str, Any]) -> Outcome:
    """The outcome of a row of ``rows.jsonl``; unknown keys are left out."""
    given = {name: row[name] for name in Outcome._fields if name in row}
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return Outcome(**{**given, **lists})


def question_row(question: Question) -> dict[str, Any]:
    """A question as JSON values; of its passages only a digest, since rows of answers have those
    that were read."""
    row = question._replace(passages=None)._asdict()
    fixed = json.dumps(_plain(question.passages), sort_keys=True).encode()
    return {
        **row,
        "choices": dict(question.choices),
        "extra": _plain(question.extra),
        "passages": None if question.passages is None else hashlib.sha256(fixed).hexdigest(),
    }


def question_from(row: Mapping[str, Any]) -> Question:
    """The question of :func:`question_row`, without passages."""
    given = {name: row[name] for name in Question._fields if name in row}
    return Question(**{**given, "answers": tuple(row["answers"]), "passages": None})


def _plain(value: Any) -> Any:
    """A value with documents and tuples as JSON has them."""
    if isinstance(value, Document):
        return {"text": value.page_content, "metadata": _plain(value.metadata)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
