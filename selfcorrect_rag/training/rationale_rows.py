"""The rationale-augmented training data (InstructRAG, Algorithm 1): its rows and its report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training.consistency import contains_answer
from selfcorrect_rag.training.journal import run_folder, write_rows
from selfcorrect_rag.training.rationale_prompts import (
    RationaleSettings,
    template_rationale,
    training_prompt,
)
from selfcorrect_rag.training.samples import Sample, title


@dataclass(frozen=True)
class Usage:
    """What rationales cost; tokens are those of calls that gave one."""

    calls: int
    """Of the model, also those that failed."""
    prompt_tokens: int
    rationale_tokens: int
    estimated: bool
    """By rule of thumb, at least for some: the model did not count."""


@dataclass(frozen=True)
class RationaleReport:
    """How a synthesis went, over all runs that wrote to one file."""

    rows: int
    written: int
    """Rows of the output."""
    failed: int
    """Rows without a rationale."""
    dropped: int
    """Rows left out because their rationale does not contain the answer."""
    consistent: float | None
    """Of the rationales, how many contain an answer, in [0, 1] (the paper: 0.89); before any are
    dropped. None where no row has answers."""
    relevant: int
    """Rows with a rationale of which at least one document contains an answer."""
    consistent_of_relevant: float | None
    """The same ratio over these (the paper: 0.98)."""
    usage: Usage


def write_rationales(
    out: Path,
    rows: Sequence[Sample],
    rationales: Mapping[str, str],
    settings: RationaleSettings,
    *,
    consistent_only: bool,
    usage: Usage,
) -> RationaleReport:
    """Write ``out`` as JSONL, in the order of ``rows``, whole or not at all.

    A row holds ``question``, ``answers``, ``documents`` (title and text, numbered as the rationale
    numbers them), ``rationale``, ``consistent`` (whether it contains an answer; null without
    answers), and what INSTRUCTRAG-FT learns from: ``prompt`` (Table 11) and ``completion``, each a
    list of one chat message, so that a trainer applies the model's own chat template and masks the
    prompt.

    Args:
        rationales: by digest of their row; rows without one are left out.
    """
    made = [sample for sample in rows if sample.digest in rationales]
    checked = [
        contains_answer(rationales[sample.digest], sample.answers) if sample.answers else None
        for sample in made
    ]
    judged = [(s, good) for s, good in zip(made, checked, strict=True) if good is not None]
    relevant = [good for sample, good in judged if relevant_numbers(sample, settings)]
    kept = [
        (sample, good)
        for sample, good in zip(made, checked, strict=True)
        if good or not consistent_only
    ]
    write_rows(out, (_row(s, rationales[s.digest], good, settings) for s, good in kept))
    return RationaleReport(
        rows=len(rows),
        written=len(kept),
        failed=len(rows) - len(made),
        dropped=len(made) - len(kept),
        consistent=_ratio([good for _, good in judged]),
        relevant=len(relevant),
        consistent_of_relevant=_ratio(relevant),
        usage=usage,
    )


def write_template_rationales(
    rows: Sequence[Sample], out: Path, settings: RationaleSettings | None = None
) -> RationaleReport:
    """Rationales without a model: the template of the paper's ablation (Table 6).

    Documents that contain an answer are called relevant. See :func:`write_rationales`.

    Raises:
        BadTrainingData: ``out`` belongs to a model's run.
    """
    settings = settings or RationaleSettings()
    if run_folder(out).exists():
        raise BadTrainingData(f"{out} holds a model's rationales: give another place")
    rationales = {
        sample.digest: template_rationale(sample.answers, relevant_numbers(sample, settings))
        for sample in rows
    }
    free = Usage(calls=0, prompt_tokens=0, rationale_tokens=0, estimated=False)
    return write_rationales(out, rows, rationales, settings, consistent_only=False, usage=free)


def relevant_numbers(sample: Sample, settings: RationaleSettings) -> list[int]:
    """Numbers, from 1, of the documents shown that contain an answer in title or text."""
    return [
        number
        for number, document in enumerate(settings.shown(sample), start=1)
        if contains_answer(f"{title(document)}\n{document.page_content}", sample.answers)
    ]


def _row(
    sample: Sample, rationale: str, consistent: bool | None, settings: RationaleSettings
) -> dict[str, Any]:
    documents = settings.shown(sample)
    prompt = training_prompt(sample.question, documents)
    return {
        "question": sample.question,
        "answers": list(sample.answers),
        "documents": [{"title": title(d), "text": d.page_content} for d in documents],
        "rationale": rationale,
        "consistent": consistent,
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": rationale}],
    }


def _ratio(good: Sequence[bool]) -> float | None:
    return sum(good) / len(good) if good else None
