"""Synthesises rationales: how documents lead to a known answer (InstructRAG 2.2, Algorithm 1)."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from pydantic import PositiveInt, field_validator, model_validator

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.journal import run_folder, write_rows
from selfcorrect_rag.models.chat_model import was_cut, written_text
from selfcorrect_rag.models.from_name import find_language_model
from selfcorrect_rag.prompts.instruct_rag import (
    TASK_INSTRUCTIONS,
    rationale_prompt,
    template_rationale,
    training_prompt,
)
from selfcorrect_rag.training.labelling import LabellingOptions, Labels, Request, open_labels
from selfcorrect_rag.training.rows import Filled, PassageField, Progress, Row, read_rows, title_of

Dataset = Literal["asqa", "popqa", "triviaqa", "nq", "2wikimultihopqa"]
Order = Literal["best_last", "best_first"]
TOP_K: dict[str, int] = dict.fromkeys(get_args(Dataset), 5) | {"2wikimultihopqa": 10}
"""Documents of a question (Table 2)."""


class Sample(Row):
    """A question, its correct answers, and the documents that a retriever found, best first.

    Official rows are read too: ``ctxs`` for documents, answers in ASQA's ``qa_pairs``. If each
    document has a numeric ``score``, the highest is first.
    """

    question: Filled
    answers: tuple[str, ...] = ()
    documents: tuple[PassageField, ...]

    @model_validator(mode="before")
    @classmethod
    def _official(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        pairs = row.get("qa_pairs") or []
        answers = row.get("answers") or [a for pair in pairs for a in pair.get("answers", [])]
        row = {**row, "answers": [answers] if isinstance(answers, str) else answers}
        return row if "documents" in row or "ctxs" not in row else row | {"documents": row["ctxs"]}

    @field_validator("question")
    @classmethod
    def _strip(cls, question: str) -> str:
        return question.strip()

    @field_validator("answers")
    @classmethod
    def _once(cls, answers: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))

    @field_validator("documents")
    @classmethod
    def _best_first(cls, documents: tuple[Document, ...]) -> tuple[Document, ...]:
        try:
            scores = {id(d): float(d.metadata["score"]) for d in documents}
        except (KeyError, TypeError, ValueError):
            return documents
        return tuple(sorted(documents, key=lambda d: -scores[id(d)]))

    @property
    def digest(self) -> str:
        """A fingerprint of the sample."""
        texts = [[title_of(document), document.page_content] for document in self.documents]
        whole = json.dumps([self.question, self.answers, texts])
        return hashlib.sha256(whole.encode()).hexdigest()[:32]


class RationaleOptions(LabellingOptions):
    """Options of ``train rationales``; defaults are the paper's (greedy decoding: appendix B)."""

    run_only = LabellingOptions.run_only | {"consistent_only"}

    model: str = ""
    """PROVIDER:MODEL or MODULE:ATTRIBUTE; empty: the paper's template (Table 6)."""
    dataset: Dataset = "nq"
    """The data set whose instruction (Table 8) and number of documents to use."""
    instruction: str | None = None
    """An instruction in place of the dataset's."""
    top_k: PositiveInt | None = None
    """Maximum documents in place of the dataset's number."""
    order: Order = "best_last"
    """The place of the best document; last as in the official code."""
    with_answers: bool = True
    """False: the ablation without answers (Table 4)."""
    with_documents: bool = True
    """False: the ablation without documents (Table 4)."""
    consistent_only: bool = False
    """Leave out rows whose rationale does not contain an answer."""

    def shown(self, sample: Sample) -> tuple[Document, ...]:
        """The documents that a model reads, in the order of their numbers."""
        best = sample.documents[: self.top_k or TOP_K[self.dataset]]
        return best[::-1] if self.order == "best_last" else best


def read_samples(path: Path) -> list[Sample]:
    """Read questions with documents, and answers if there are any."""
    return read_rows(path, Sample)


def make_rationales(
    llm: Runnable[Any, Any] | None,
    rows: Sequence[Sample],
    out: Path,
    options: RationaleOptions | None = None,
    *,
    progress: Progress = None,
) -> dict[str, Any]:
    """Write a rationale for each row, with one call of the model, in the order of ``rows``.

    The same call resumes after a kill and tries failed rows again. A row of ``out`` has
    ``question``, ``answers``, ``documents`` (numbered as the rationale numbers them),
    ``rationale``, ``consistent`` (whether it contains an answer; null without answers), and what
    INSTRUCTRAG-FT learns from, as chat messages: ``prompt`` (Table 11) and ``completion``.
    ``llm`` is any LangChain LLM or chat model; None writes the paper's template (Table 6).

    Returns:
        ``rows``, ``written``, ``failed`` and ``dropped`` (inconsistent) rows; the share of
        ``consistent`` rationales (the paper: 0.89) and of ``consistent_of_relevant``, the rows of
        which a document contains an answer (0.98), None without such rows; and the usage. With
        ``options.estimate`` the ``calls`` and ``input_tokens`` that are needed.
    """
    options = options or RationaleOptions()
    for number, row in enumerate(rows, start=1):
        if not row.answers and (options.with_answers or llm is None):
            raise BadTrainingData(f"row {number} has no answers: {row.question}")
    requests = [Request(row.digest, _prompt(row, options), _read) for row in rows]
    if options.estimate:
        return dict(Labels.at(run_folder(out)).cost(requests))
    with open_labels(out, options) as run:
        if llm is None:
            for row in rows:
                text = template_rationale(row.answers, _relevant(row, options))
                run.labels.append(row.digest, {"rationale": text})
        else:
            run.ask(llm, requests, options.max_concurrency, progress)
        made = {row.digest: run.labels.rows.get(row.digest) for row in rows}
        found = [
            (row, _row(row, m["rationale"], options)) for row in rows if (m := made[row.digest])
        ]
        kept = [row for _, row in found if row["consistent"] or not options.consistent_only]
        write_rows(out, kept)
    judged = [(row, made["consistent"]) for row, made in found if made["consistent"] is not None]
    relevant = [consistent for row, consistent in judged if _relevant(row, options)]
    return {
        "rows": len(rows),
        "written": len(kept),
        "failed": len(rows) - len(found),
        "dropped": len(found) - len(kept),
        "consistent": _share([consistent for _, consistent in judged]),
        "relevant": len(relevant),
        "consistent_of_relevant": _share(relevant),
        **run.usage,
    }


def _prompt(sample: Sample, options: RationaleOptions) -> str:
    instruction = options.instruction
    return rationale_prompt(
        sample.question,
        options.shown(sample) if options.with_documents else (),
        sample.answers if options.with_answers else (),
        TASK_INSTRUCTIONS[options.dataset] if instruction is None else instruction,
    )


def _read(answer: Any) -> dict[str, Any]:
    text = written_text(answer).strip()
    if not text:
        raise ValueError("the model wrote nothing")
    if was_cut(answer):
        raise ValueError("the rationale was cut at the model's token limit")
    return {"rationale": text}


def _relevant(sample: Sample, options: RationaleOptions) -> list[int]:
    """Numbers, from 1, of the documents shown that contain an answer in title or text."""
    return [
        number
        for number, document in enumerate(options.shown(sample), start=1)
        if contains_answer(f"{title_of(document)}\n{document.page_content}", sample.answers)
    ]


def _row(sample: Sample, rationale: str, options: RationaleOptions) -> dict[str, Any]:
    documents = options.shown(sample)
    prompt = training_prompt(sample.question, documents)
    return {
        "question": sample.question,
        "answers": list(sample.answers),
        "documents": [{"title": title_of(d), "text": d.page_content} for d in documents],
        "rationale": rationale,
        "consistent": contains_answer(rationale, sample.answers) if sample.answers else None,
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": rationale}],
    }


def _share(good: Sequence[bool]) -> float | None:
    return sum(good) / len(good) if good else None


def run(data: Path, out: Path, options: RationaleOptions, progress: Progress) -> dict[str, Any]:
    """Make the rationales of a file; see :func:`make_rationales`."""
    name = "" if options.estimate else options.model
    llm = find_language_model(name, temperature=options.temperature) if name else None
    return make_rationales(llm, read_samples(data), out, options, progress=progress)
