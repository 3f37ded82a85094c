"""The generator's training data (Self-RAG, section 3.2.2, A.2, Algorithm 3).

A critic's reflection tokens and retrieved passages go into the outputs of ordinary rows. A run
keeps its place in a folder beside its output, with every row's decisions.
"""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.models.critic import Critic
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
from selfcorrect_rag.prompts.critic import critique_prompts, registered_prompts
from selfcorrect_rag.reflection import FULLY_SUPPORTED, NO_RETRIEVAL, PARTIALLY_SUPPORTED, RELEVANT
from selfcorrect_rag.training.augmentation import Decisions, Judge, Retrieve, augment
from selfcorrect_rag.training.fine_tuning import option
from selfcorrect_rag.training.generator_rows import GeneratorRow, segments
from selfcorrect_rag.training.journaled import JournaledSearch, journaled_critic
from selfcorrect_rag.training.labelling import MALFORMED


@dataclass(frozen=True)
class GeneratorDataReport:
    """How rows came out, of all runs together, and what this run used. Shares are in [0, 1]."""

    rows: int
    written: int
    failed: int
    """Rows for which a call of the critic failed; the next run tries them again."""
    malformed: int
    """Rows left out because the critic gave no label that can be read."""
    labels: dict[str, dict[str, int]]
    """Number of labels by prompt and token."""
    retrieved: float | None
    """Share of the written rows that read a passage; None without rows, as below."""
    segments: int
    """Segments of the rows that need retrieval."""
    read: int
    """Segments written from a passage of their own."""
    relevant: float | None
    """Share of the passages read that are relevant."""
    supported: float | None
    """Share of the passages read that support their sentence, fully or in part."""
    unfound: int
    """Segments without a passage though the critic wants one: there was none."""
    look_alikes: int
    """Marks in texts, such as control tokens, each quoted."""
    calls: int
    """Batches of a critic, or calls of a language model, in this run."""
    queries: int
    """In this run."""


def report(
    written: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
    *,
    calls: int,
    queries: int,
) -> GeneratorDataReport:
    """Count decisions (see :class:`~.augmentation.Decisions`, as JSON) and failures."""
    segments = [segment for one in written for segment in one["segments"]]
    read = [s["passages"][s["chosen"]] for s in segments if s["chosen"] is not None]
    malformed = sum(row["reason"] == MALFORMED for row in failed)
    readers = sum(any(s["chosen"] is not None for s in one["segments"]) for one in written)
    labels: dict[str, Counter[str]] = {name: Counter() for name in critique_prompts()}
    for one in written:
        for name, label in _labels(one):
            if label:
                labels[name][label["token"] or MALFORMED] += 1
    return GeneratorDataReport(
        rows=len(written) + len(failed),
        written=len(written),
        failed=len(failed) - malformed,
        malformed=malformed,
        labels={name: dict(sorted(counts.items())) for name, counts in labels.items()},
        retrieved=_share(readers, written),
        segments=len(segments),
        read=len(read),
        relevant=_share(sum(_token(p["isrel"]) == RELEVANT for p in read), read),
        supported=_share(
            sum(_token(p["issup"]) in (FULLY_SUPPORTED, PARTIALLY_SUPPORTED) for p in read), read
        ),
        unfound=sum(
            s["token"] == NO_RETRIEVAL and _token(s["retrieve"]) != NO_RETRIEVAL for s in segments
        ),
        look_alikes=sum(one["look_alikes"] for one in written),
        calls=calls,
        queries=queries,
    )


def _labels(one: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    yield "retrieval", one["retrieve"]
    yield "utility", one["utility"]
    for segment in one["segments"]:
        yield "multi_retrieval", segment["retrieve"]
        for passage in segment["passages"]:
            yield "relevance", passage["isrel"]
            yield "groundness", passage["issup"]
    for judged in (one, *one["segments"]):
        yield from judged["groups"].items()


def _token(label: Mapping[str, Any] | None) -> str | None:
    return label["token"] if label else None


def _share(some: int, every: Sequence[object]) -> float | None:
    return some / len(every) if every else None


DECISIONS = "decisions.jsonl"
"""In the run's folder."""
PARTS = "parts"
"""Beside it: the answers of rows that are not decided yet, some rows a folder."""
CHUNK_SIZE = 64
"""Rows that go through Algorithm 3 in lockstep."""


@dataclass(frozen=True)
class GeneratorDataSettings:
    """Settings of the augmentation; defaults are the paper's where it gives one."""

    critic: str
    """A name for the critic, so that rows of two never mix in one file."""
    index: str
    """A name for what is searched."""
    top_k: int = option(
        10, "most passages retrieved for a query (section 4)", "PASSAGES", positive=True
    )
    language: str = option(
        "en", "language of the outputs, by which sentences are split, in ISO 639-1", "CODE"
    )
    seed: int = option(0, "seed of the choice where no passage supports a sentence", "SEED")
    temperature: float = option(
        0.0, "sampling temperature of a PROVIDER:MODEL, from 0 (greedy)", "TEMPERATURE"
    )
    max_tokens: int = option(
        200, "longest answer (label and explanation) of a PROVIDER:MODEL", "TOKENS", positive=True
    )
    max_attempts: int = option(
        2,
        "most answers of a language model to one request, while they are malformed",
        "ANSWERS",
        positive=True,
    )


class GeneratorDataCost(NamedTuple):
    """Labels that are still needed, as bounds: the labels themselves decide how many."""

    rows: int
    fewest: int
    """Labels if no row needs retrieval."""
    most: int
    """Labels if each sentence needs it and every passage is relevant."""


def generator_data_cost(
    rows: Sequence[GeneratorRow], out: Path, settings: GeneratorDataSettings
) -> GeneratorDataCost:
    """Cost of :func:`make_generator_data`; nothing is written.

    Raises:
        BadRun: ``out`` is of a run with other settings or of no run, or a folder.
    """
    refuse_foreign(out, DECISIONS)
    refuse_other_settings(run_folder(out), generator_data_identity(settings))
    done = Journal(run_folder(out) / DECISIONS).rows
    pending = {row.digest: row for row in rows if row.digest not in done}.values()
    sentences = sum(len(segments(row.output, settings.language)) for row in pending)
    judges = [group.judges for group, _ in registered_prompts()]
    about_answer, about_segment = judges.count("answer"), judges.count("segment")
    about_passage = judges.count("passage")
    a_row, a_sentence = 2 + about_answer, 1 + 2 * settings.top_k + about_segment + about_passage
    fewest = len(pending) * (a_row + about_segment)
    return GeneratorDataCost(len(pending), fewest, len(pending) * a_row + sentences * a_sentence)


def make_generator_data(
    critic: Critic | Runnable[Any, Any],
    retriever: Runnable[str, list[Document]],
    rows: Sequence[GeneratorRow],
    out: Path,
    settings: GeneratorDataSettings,
    *,
    chunk_size: int = CHUNK_SIZE,
    max_concurrency: int = 8,
    on_rows: Callable[[int], object] = lambda _: None,
    on_labels: Callable[[int], object] = lambda _: None,
) -> GeneratorDataReport:
    """Write each row with passages and reflection tokens in its output, in the order of ``rows``.

    The same call goes on after a kill: no label is asked for twice but those in flight, no passage
    looked for twice. In the folder of the run (:func:`~.journal.run_folder`), ``decisions.jsonl``
    holds what was found, judged and chosen for each row, and why, and ``failures.jsonl`` the rows
    that are left out. Equal rows are judged once.

    Args:
        critic: a fine-tuned critic, or any LangChain model, which is asked in the paper's words.
        retriever: finds passages for a query, best first, such as
            :func:`~selfcorrect_rag.search.open_retriever` of ``settings.top_k``.
        rows: see :func:`~.generator_rows.read_generator_rows`.
        out: the JSONL file to write, with the official keys.
        settings: what decides the rows; a run with others is refused.
        chunk_size: rows whose cases go to the critic in common batches; memory grows with it.
        max_concurrency: most calls at a time of a LangChain model or the retriever.
        on_rows: called with how many rows are finished since the last time.
        on_labels: the same for labels.

    Raises:
        BadRun: ``out`` belongs to a run with other settings, to one still going on or to
            none, or is a folder.
        EngineFailed: the language model failed for many cases in a row, or the critic's engine has
            died; what came before is kept.
        RetrievalFailed: the retriever raised; the same holds.
        MissingExtra: sentencex is not installed.
    """
    refuse_foreign(out, DECISIONS)
    with only_run(run_folder(out)):
        run = _Run(critic, retriever, rows, out, settings, max_concurrency)
        for part in run.parts(chunk_size):
            answers: list[Any] | None = None
            while wanted := part.next(answers):
                if isinstance(wanted, Judge):
                    answers = run.critic.judge(wanted.requests, part.labels, on_labels)
                else:
                    answers = run.search.find(wanted.queries, part.passages)
            run.keep(part)
            on_rows(len(part.rows))
        return run.end()


async def amake_generator_data(
    critic: Critic | Runnable[Any, Any],
    retriever: Runnable[str, list[Document]],
    rows: Sequence[GeneratorRow],
    out: Path,
    settings: GeneratorDataSettings,
    *,
    chunk_size: int = CHUNK_SIZE,
    max_concurrency: int = 8,
    on_rows: Callable[[int], object] = lambda _: None,
    on_labels: Callable[[int], object] = lambda _: None,
) -> GeneratorDataReport:
    """The async twin of :func:`make_generator_data`."""
    refuse_foreign(out, DECISIONS)
    with only_run(run_folder(out)):
        run = _Run(critic, retriever, rows, out, settings, max_concurrency)
        for part in run.parts(chunk_size):
            answers: list[Any] | None = None
            while wanted := part.next(answers):
                if isinstance(wanted, Judge):
                    answers = await run.critic.ajudge(wanted.requests, part.labels, on_labels)
                else:
                    answers = await run.search.afind(wanted.queries, part.passages)
            run.keep(part)
            on_rows(len(part.rows))
        return run.end()


def generator_data_identity(settings: GeneratorDataSettings) -> dict[str, Any]:
    """All that decides the rows: the settings, and the registered groups that are judged."""
    groups = {group.name: list(group.tokens) for group, _ in registered_prompts()}
    return {**dataclasses.asdict(settings), "groups": groups}


class _Part:
    """Rows that go through Algorithm 3 in step, and where their answers are kept on the way."""

    def __init__(
        self, rows: Sequence[GeneratorRow], folder: Path, settings: GeneratorDataSettings
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self.folder = rows, folder
        self.labels, self.passages = folder / "labels.jsonl", folder / "passages.jsonl"
        self.decisions: list[Decisions] = []
        self._steps = augment(
            rows,
            passages=settings.top_k,
            language=settings.language,
            seed=settings.seed,
        )

    def next(self, answers: list[Any] | None) -> Judge | Retrieve | None:
        """The next request for labels or passages; None when all is decided."""
        try:
            return self._steps.send(answers) if answers is not None else next(self._steps)
        except StopIteration as end:
            self.decisions = end.value
            return None


class _Run:
    """One run: its critic and retriever, the rows that are decided and those that are not."""

    def __init__(
        self,
        critic: Critic | Runnable[Any, Any],
        retriever: Runnable[str, list[Document]],
        rows: Sequence[GeneratorRow],
        out: Path,
        settings: GeneratorDataSettings,
        max_concurrency: int,
    ) -> None:
        self.critic = journaled_critic(
            critic, attempts=settings.max_attempts, max_concurrency=max_concurrency
        )
        self.search = JournaledSearch(retriever, max_concurrency)
        self._rows, self._out, self._settings = rows, out, settings
        self._once = {row.digest: row for row in rows}
        self._folder = run_folder(out)
        keep_settings(self._folder, generator_data_identity(settings))
        self._decided = Journal(self._folder / DECISIONS)
        self._failed = Journal(self._folder / FAILURES)

    def parts(self, chunk_size: int) -> Iterator[_Part]:
        digests = list(self._once)
        for start in range(0, len(digests), chunk_size):
            pending = [
                d for d in digests[start : start + chunk_size] if d not in self._decided.rows
            ]
            if pending:
                folder = self._folder / PARTS / str(start)
                yield _Part([self._once[digest] for digest in pending], folder, self._settings)

    def keep(self, part: _Part) -> None:
        for one in part.decisions:
            if one.augmented:
                row = dataclasses.asdict(one)
                for name in ("row", "augmented"):
                    row[name] = row[name]._asdict()
                self._decided.append(one.row.digest, row)
            else:
                row = {"id": one.row.id, "instruction": one.row.instruction}
                self._failed.append(one.row.digest, {**row, "reason": one.failure})
        if all(one.augmented for one in part.decisions):
            shutil.rmtree(part.folder)

    def end(self) -> GeneratorDataReport:
        self._failed.keep(self._once.keys() - self._decided.rows.keys())
        decided = self._decided.rows
        written = [decided[row.digest] for row in self._rows if row.digest in decided]
        write_rows(self._out, (row["augmented"] for row in written))
        failed = [self._failed.rows[row.digest] for row in self._rows if row.digest not in decided]
        if not failed:
            shutil.rmtree(self._folder / PARTS, ignore_errors=True)
        return report(written, failed, calls=self.critic.calls, queries=self.search.queries)
