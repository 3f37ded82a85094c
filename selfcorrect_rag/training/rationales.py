"""Synthesises rationales: how documents lead to an answer that is known (InstructRAG section 2.2).

A run keeps its place in a folder beside its output: what has been written, what has failed and why.
"""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from selfcorrect_rag.errors import BadTrainingData, SynthesisFailed
from selfcorrect_rag.errors.messages import describe_error
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.models.chat.completion import was_cut
from selfcorrect_rag.prompts.parts import written_text
from selfcorrect_rag.training.journal import (
    FAILURES,
    Journal,
    keep_settings,
    only_run,
    refuse_foreign,
    refuse_other_settings,
    run_folder,
)
from selfcorrect_rag.training.rationale_prompts import RationaleSettings, prompt_for
from selfcorrect_rag.training.rationale_rows import (
    RationaleReport,
    Usage,
    write_rationales,
)
from selfcorrect_rag.training.samples import Sample

LETTERS_A_TOKEN = 4
"""Where a model does not count its tokens, as in most estimates of English."""
RATIONALE_TOKENS = 200
"""Expected of one rationale: about those of the paper's own example (Table 12)."""
WRITTEN = "rationales.jsonl"
"""In the run's folder."""
MOST_FAILURES = 50
"""In a row; then something is wrong with the model and not with a question."""


def synthesize_rationales(
    llm: Runnable[Any, Any],
    rows: Sequence[Sample],
    out: Path,
    settings: RationaleSettings | None = None,
    *,
    consistent_only: bool = False,
    max_concurrency: int = 8,
    progress: bool = False,
) -> RationaleReport:
    """Write a rationale for each row, with one call of the model.

    The same call goes on after a kill: what has been written is not asked for again. Rows that
    failed are named with their reason in ``failures.jsonl`` of the run's folder (see
    :func:`~.journal.run_folder`), and the next call tries them once more. When all calls are
    through, ``out`` is written, in the order of ``rows``; see
    :func:`~.rationale_rows.write_rationales`.

    Args:
        llm: any LangChain LLM or chat model; the paper decodes greedily (appendix B).
        rows: see :func:`~.samples.read_samples`.
        out: the JSONL file to write.
        settings: what decides the rationales; a run with others is refused.
        consistent_only: leave rows out whose rationale does not contain the answer.
        max_concurrency: most calls of the model at a time.
        progress: show a bar on standard error.

    Raises:
        BadTrainingData: ``out`` belongs to a run with other settings, to one that is still going
            on or to none, or is a folder, or a row has no answers.
        SynthesisFailed: the model failed 50 times in a row.
    """
    refuse_foreign(out, WRITTEN)
    with only_run(run_folder(out)):
        synthesis = _Synthesis(llm, rows, out, settings or RationaleSettings())
        config = synthesis.config(max_concurrency, progress)
        synthesis.chain.batch(synthesis.pending, config, return_exceptions=True)
        return synthesis.end(consistent_only)


async def asynthesize_rationales(
    llm: Runnable[Any, Any],
    rows: Sequence[Sample],
    out: Path,
    settings: RationaleSettings | None = None,
    *,
    consistent_only: bool = False,
    max_concurrency: int = 8,
    progress: bool = False,
) -> RationaleReport:
    """The async twin of :func:`synthesize_rationales`."""
    refuse_foreign(out, WRITTEN)
    with only_run(run_folder(out)):
        synthesis = _Synthesis(llm, rows, out, settings or RationaleSettings())
        config = synthesis.config(max_concurrency, progress)
        await synthesis.chain.abatch(synthesis.pending, config, return_exceptions=True)
        return synthesis.end(consistent_only)


def estimate_usage(
    rows: Sequence[Sample], out: Path, settings: RationaleSettings | None = None
) -> Usage:
    """What is still to be spent on ``rows``, before anything is; tokens by rule of thumb.

    Raises:
        BadTrainingData: ``out`` is of a run with other settings or of no run, or a folder.
    """
    settings = settings or RationaleSettings()
    refuse_foreign(out, WRITTEN)
    refuse_other_settings(run_folder(out), dataclasses.asdict(settings))
    pending = _pending(rows, Journal(run_folder(out) / WRITTEN))
    prompts = [prompt_for(sample, settings) for sample in pending]
    return Usage(
        calls=len(prompts),
        prompt_tokens=sum(_tokens(prompt) for prompt in prompts),
        rationale_tokens=RATIONALE_TOKENS * len(prompts),
        estimated=True,
    )


class _Synthesis:
    """One run: what is still to be written, and one call of the model."""

    def __init__(
        self,
        llm: Runnable[Any, Any],
        rows: Sequence[Sample],
        out: Path,
        settings: RationaleSettings,
    ) -> None:
        for sample in rows:
            if settings.with_answers and not sample.answers:
                raise BadTrainingData(f"no answers: {sample.question}")
        keep_settings(run_folder(out), dataclasses.asdict(settings))
        self._llm, self._rows, self._out, self._settings = llm, rows, out, settings
        self._written = Journal(run_folder(out) / WRITTEN)
        self._failed = Journal(run_folder(out) / FAILURES)
        self._failures_in_a_row, self._reason, self._counting = 0, "", threading.Lock()
        self.pending = _pending(rows, self._written)
        self.chain = RunnableLambda(self._write, self._awrite)

    def config(self, max_concurrency: int, progress: bool) -> RunnableConfig:
        bar = [Progress(len(self.pending), "rationales")] if progress and self.pending else []
        return RunnableConfig(max_concurrency=max_concurrency, callbacks=list(bar))

    def end(self, consistent_only: bool) -> RationaleReport:
        self._give_up_if_hopeless()
        digests = {sample.digest for sample in self._rows}
        self._failed.keep(digests - self._written.rows.keys())
        written = {key: row for key, row in self._written.rows.items() if key in digests}
        return write_rationales(
            self._out,
            self._rows,
            {digest: row["rationale"] for digest, row in written.items()},
            self._settings,
            consistent_only=consistent_only,
            usage=_total([*written.values(), *self._failed.rows.values()]),
        )

    def _write(self, sample: Sample, config: RunnableConfig) -> None:
        self._give_up_if_hopeless()
        prompt = prompt_for(sample, self._settings)
        try:
            self._keep(sample, _read(prompt, self._llm.invoke(prompt, config)))
        except Exception as error:
            self._fail(sample, error)
            raise

    async def _awrite(self, sample: Sample, config: RunnableConfig) -> None:
        self._give_up_if_hopeless()
        prompt = prompt_for(sample, self._settings)
        try:
            self._keep(sample, _read(prompt, await self._llm.ainvoke(prompt, config)))
        except Exception as error:
            self._fail(sample, error)
            raise

    def _keep(self, sample: Sample, row: dict[str, Any]) -> None:
        calls = 1 + self._earlier_calls(sample)
        self._written.append(sample.digest, {**row, "calls": calls})
        self._failures_in_a_row = 0

    def _fail(self, sample: Sample, error: Exception) -> None:
        self._reason = describe_error(error)
        calls = 1 + self._earlier_calls(sample)
        row = {"question": sample.question, "reason": self._reason, "calls": calls}
        self._failed.append(sample.digest, row)
        with self._counting:
            self._failures_in_a_row += 1

    def _earlier_calls(self, sample: Sample) -> int:
        calls: int = self._failed.rows.get(sample.digest, {}).get("calls", 0)
        return calls

    def _give_up_if_hopeless(self) -> None:
        if self._failures_in_a_row >= MOST_FAILURES:
            raise SynthesisFailed(
                f"{MOST_FAILURES} questions in a row failed, the last with {self._reason}; "
                f"all are in {self._failed.path}"
            )


def _pending(rows: Sequence[Sample], written: Journal) -> list[Sample]:
    once = {sample.digest: sample for sample in rows}
    return [sample for digest, sample in once.items() if digest not in written.rows]


def _read(prompt: str, answer: Any) -> dict[str, Any]:
    """What a model wrote and what it cost."""
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


def _total(rows: Sequence[Mapping[str, Any]]) -> Usage:
    return Usage(
        calls=sum(row["calls"] for row in rows),
        prompt_tokens=sum(row.get("prompt_tokens", 0) for row in rows),
        rationale_tokens=sum(row.get("rationale_tokens", 0) for row in rows),
        estimated=any(row.get("estimated", False) for row in rows),
    )
