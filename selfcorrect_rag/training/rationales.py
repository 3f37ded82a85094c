"""Synthesises rationales: how documents lead to a known answer (InstructRAG 2.2, Algorithm 1)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import BadRun, BadTrainingData, SynthesisFailed
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.models.chat_model import was_cut, written_text
from selfcorrect_rag.old_journal import (
    FAILURES,
    Journal,
    keep_settings,
    only_run,
    refuse_foreign,
    refuse_other_settings,
    run_folder,
    write_rows,
)
from selfcorrect_rag.prompts.instruct_rag import (
    TASK_INSTRUCTIONS,
    rationale_prompt,
    template_rationale,
    training_prompt,
)
from selfcorrect_rag.training.fine_tuning import option
from selfcorrect_rag.training.model_calls import ModelCall, ModelCalls
from selfcorrect_rag.training.samples import Sample, title

Dataset = Literal["asqa", "popqa", "triviaqa", "nq", "2wikimultihopqa"]
DATASETS: tuple[Dataset, ...] = get_args(Dataset)
Order = Literal["best_last", "best_first"]

TOP_K: dict[Dataset, int] = dict.fromkeys(DATASETS, 5) | {"2wikimultihopqa": 10}
"""Documents of a question (Table 2)."""


@dataclass(frozen=True)
class RationaleSettings:
    """Settings of the rationales; defaults are the paper's."""

    model: str = ""
    """A name for the model, so that rationales of two models never mix in one file."""
    temperature: float = option(
        0.0,
        "sampling temperature of a PROVIDER:MODEL, from 0: greedy, as in the paper (appendix B)",
        "TEMPERATURE",
    )
    dataset: Dataset = option(
        "nq", "benchmark whose task-specific instruction and number of documents are used"
    )
    instruction: str | None = option(
        None, "task-specific instruction of your own; by default the dataset's", "TEXT"
    )
    top_k: int | None = option(
        None,
        "most documents of a question; by default 5, and 10 for 2wikimultihopqa",
        "DOCUMENTS",
        positive=True,
    )
    order: Order = option(
        "best_last",
        "where the best document stands: next to the question, as in the official code, or first",
    )
    with_answers: bool = True
    """The paper's ablation without ground-truth answer, where False."""
    with_documents: bool = True
    """The paper's ablation without retrieved documents, where False; training reads them still."""

    def shown(self, sample: Sample) -> tuple[Document, ...]:
        """The documents that a model reads, in the order of their numbers."""
        best = sample.documents[: TOP_K[self.dataset] if self.top_k is None else self.top_k]
        return best[::-1] if self.order == "best_last" else best


def prompt_for(sample: Sample, settings: RationaleSettings) -> str:
    """The :func:`rationale_prompt` of a training sample."""
    instruction = settings.instruction
    return rationale_prompt(
        sample.question,
        settings.shown(sample) if settings.with_documents else (),
        sample.answers if settings.with_answers else (),
        TASK_INSTRUCTIONS[settings.dataset] if instruction is None else instruction,
    )


@dataclass(frozen=True)
class TokenUsage:
    """Usage of a synthesis; tokens are those of calls that gave a rationale."""

    calls: int
    """Calls of the model, failed ones included."""
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
    """Share of the rationales that contain an answer (the paper: 0.89), before any are
    dropped. None where no row has answers."""
    relevant: int
    """Rows with a rationale of which at least one document contains an answer."""
    consistent_of_relevant: float | None
    """The same ratio over these (the paper: 0.98)."""
    usage: TokenUsage


def write_rationales(
    out: Path,
    rows: Sequence[Sample],
    rationales: Mapping[str, str],
    settings: RationaleSettings,
    *,
    consistent_only: bool,
    usage: TokenUsage,
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
        BadRun: ``out`` belongs to a model's run.
    """
    settings = settings or RationaleSettings()
    if run_folder(out).exists():
        raise BadRun(f"{out} holds a model's rationales: give another place")
    rationales = {
        sample.digest: template_rationale(sample.answers, relevant_numbers(sample, settings))
        for sample in rows
    }
    free = TokenUsage(calls=0, prompt_tokens=0, rationale_tokens=0, estimated=False)
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


LETTERS_A_TOKEN = 4
"""Where a model does not count its tokens, as in most estimates of English."""
RATIONALE_TOKENS = 200
"""Expected of one rationale: about those of the paper's own example (Table 12)."""
WRITTEN = "rationales.jsonl"
"""In the run's folder."""
MAX_FAILURES = 50
"""Questions in a row that may fail before a run gives up."""


def synthesize_rationales(
    llm: Runnable[Any, Any],
    rows: Sequence[Sample],
    out: Path,
    settings: RationaleSettings | None = None,
    *,
    consistent_only: bool = False,
    max_concurrency: int = 8,
    on_done: Callable[[], object] | None = None,
) -> RationaleReport:
    """Write a rationale for each row, with one call of the model.

    The same call goes on after a kill: what has been written is not asked for again. Rows that
    failed are named with their reason in ``failures.jsonl`` of the run's folder (see
    :func:`~.journal.run_folder`), and the next call tries them once more. When all calls are
    through, ``out`` is written, in the order of ``rows``; see
    :func:`write_rationales`.

    Args:
        llm: any LangChain LLM or chat model; the paper decodes greedily (appendix B).
        rows: see :func:`~.samples.read_samples`.
        out: the JSONL file to write.
        settings: what decides the rationales; a run with others is refused.
        consistent_only: leave rows out whose rationale does not contain the answer.
        max_concurrency: most calls of the model at a time.
        on_done: called after each row, whatever its outcome.

    Raises:
        BadRun: ``out`` belongs to a run with other settings, to one that is still going on or to
            none, or is a folder.
        BadTrainingData: a row has no answers.
        SynthesisFailed: the model failed 50 times in a row.
    """
    refuse_foreign(out, WRITTEN)
    with only_run(run_folder(out)):
        synthesis = _Synthesis(rows, out, settings, max_concurrency, on_done)
        synthesis.calls.run(llm)
        return synthesis.end(consistent_only)


async def asynthesize_rationales(
    llm: Runnable[Any, Any],
    rows: Sequence[Sample],
    out: Path,
    settings: RationaleSettings | None = None,
    *,
    consistent_only: bool = False,
    max_concurrency: int = 8,
    on_done: Callable[[], object] | None = None,
) -> RationaleReport:
    """The async twin of :func:`synthesize_rationales`."""
    refuse_foreign(out, WRITTEN)
    with only_run(run_folder(out)):
        synthesis = _Synthesis(rows, out, settings, max_concurrency, on_done)
        await synthesis.calls.arun(llm)
        return synthesis.end(consistent_only)


def estimate_usage(
    rows: Sequence[Sample], out: Path, settings: RationaleSettings | None = None
) -> TokenUsage:
    """Estimate the calls and tokens that ``rows`` still need; nothing is called.

    Raises:
        BadRun: ``out`` is of a run with other settings or of no run, or a folder.
    """
    settings = settings or RationaleSettings()
    refuse_foreign(out, WRITTEN)
    refuse_other_settings(run_folder(out), dataclasses.asdict(settings))
    pending = _pending(rows, Journal(run_folder(out) / WRITTEN))
    prompts = [prompt_for(sample, settings) for sample in pending]
    return TokenUsage(
        calls=len(prompts),
        prompt_tokens=sum(_tokens(prompt) for prompt in prompts),
        rationale_tokens=RATIONALE_TOKENS * len(prompts),
        estimated=True,
    )


class _Synthesis:
    """One run: the calls that are missing, and what is written after them."""

    def __init__(
        self,
        rows: Sequence[Sample],
        out: Path,
        settings: RationaleSettings | None,
        max_concurrency: int,
        on_done: Callable[[], object] | None,
    ) -> None:
        self._settings = settings or RationaleSettings()
        for sample in rows:
            if self._settings.with_answers and not sample.answers:
                raise BadTrainingData(f"no answers: {sample.question}")
        keep_settings(run_folder(out), dataclasses.asdict(self._settings))
        self._rows, self._out, self._on_done = rows, out, on_done
        self._samples = {sample.digest: sample for sample in rows}
        self._written = Journal(run_folder(out) / WRITTEN)
        self._failed = Journal(run_folder(out) / FAILURES)
        self.calls = ModelCalls(
            map(self._call, _pending(rows, self._written)),
            self._keep,
            max_concurrency=max_concurrency,
            max_failures=MAX_FAILURES,
        )

    def end(self, consistent_only: bool) -> RationaleReport:
        """Write the rows and say how it went."""
        if self.calls.gave_up:
            raise SynthesisFailed(
                f"{MAX_FAILURES} questions in a row failed, the last with {self.calls.gave_up}; "
                f"all are in {self._failed.path}"
            )
        self._failed.keep(self._samples.keys() - self._written.rows.keys())
        written = {key: row for key, row in self._written.rows.items() if key in self._samples}
        return write_rationales(
            self._out,
            self._rows,
            {digest: row["rationale"] for digest, row in written.items()},
            self._settings,
            consistent_only=consistent_only,
            usage=_total([*written.values(), *self._failed.rows.values()]),
        )

    def _call(self, sample: Sample) -> ModelCall:
        prompt = prompt_for(sample, self._settings)
        return ModelCall(sample.digest, prompt, partial(_read, prompt))

    def _keep(self, call: ModelCall) -> None:
        calls = 1 + self._failed.rows.get(call.key, {}).get("calls", 0)
        if call.row is not None:
            self._written.append(call.key, {**call.row, "calls": calls})
        else:
            question = self._samples[call.key].question
            row = {"question": question, "reason": call.error, "calls": calls}
            self._failed.append(call.key, row)
        if self._on_done:
            self._on_done()


def _pending(rows: Sequence[Sample], written: Journal) -> list[Sample]:
    once = {sample.digest: sample for sample in rows}
    return [sample for digest, sample in once.items() if digest not in written.rows]


def _read(prompt: str, answer: Any) -> dict[str, Any]:
    """The rationale in an answer, and its usage."""
    text = written_text(answer)
    if not text.strip():
        raise ValueError("the model wrote nothing")
    if was_cut(answer):
        raise ValueError("the rationale was cut at the model's limit of tokens")
    counted = getattr(answer, "usage_metadata", None)
    return {
        "rationale": text.strip(),
        "prompt_tokens": counted["input_tokens"] if counted else _tokens(prompt),
        "rationale_tokens": counted["output_tokens"] if counted else _tokens(text),
        "estimated": not counted,
    }


def _tokens(text: str) -> int:
    return -(-len(text) // LETTERS_A_TOKEN)


def _total(rows: Sequence[Mapping[str, Any]]) -> TokenUsage:
    return TokenUsage(
        calls=sum(row["calls"] for row in rows),
        prompt_tokens=sum(row.get("prompt_tokens", 0) for row in rows),
        rationale_tokens=sum(row.get("rationale_tokens", 0) for row in rows),
        estimated=any(row.get("estimated", False) for row in rows),
    )
