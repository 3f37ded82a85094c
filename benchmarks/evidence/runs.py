"""The runs of docs/evidence.md: every method, over whole indexes and over ones without gold."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.evidence.corpora import index_without_gold, whole_index
from benchmarks.evidence.sets import Set
from nano_training.reader.rows import drawn
from selfcorrect_rag.evaluation.methods import open_method, read_specs
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.run import Finished, Limits, run_methods
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts

METHODS = (
    "no_retrieval",
    "rag_first",
    "rag",
    "ralm",
    "self_rag",
    "crag",
    "self_crag",
    "instruct_rag",
)
PASSAGES = 5
"""Passages that each method retrieves; CRAG's web search gives as many pages."""


class Runs(NamedTuple):
    """The runs over one set."""

    whole: Finished
    """Every question answered, over the whole index."""
    without: Finished
    """Every question answered, over the index without gold; the web has it."""
    shipped: Finished
    """As the package ships: below a confidence it refuses. Over the whole index."""

    def removed(self, share: float) -> Finished:
        """The outcomes where the gold passages of this share of the questions are removed."""
        without = {
            question.id for question in self.whole.questions if drawn(question.question, share)
        }
        outcomes = [
            there if whole.id in without else whole
            for whole, there in zip(self.whole.outcomes, self.without.outcomes, strict=True)
        ]
        return self.whole._replace(outcomes=outcomes)


def run_set(found: Set, config: ServingConfig, work: Path) -> Runs:
    """Run all methods on a set, or go on with what is in ``work``."""
    whole, without = whole_index(found, work), index_without_gold(found, work)
    answering: Mapping[str, Any] = {"answer_above": 0.0} if config.runs_on == "reader" else {}
    return Runs(
        _run(
            found, config, {"index": whole, "web": whole, **answering}, work / f"{found.name}-whole"
        ),
        _run(
            found,
            config,
            {"index": without, "web": whole, **answering},
            work / f"{found.name}-without",
        ),
        _run(found, config, {"index": whole, "web": whole}, work / f"{found.name}-shipped"),
    )


def _run(found: Set, config: ServingConfig, given: Mapping[str, Any], out: Path) -> Finished:
    options = {**config.model_dump(exclude_defaults=True), **given}
    chosen = ServingConfig(**{name: str(v) if name == "web" else v for name, v in options.items()})
    questions = [each.question for each in found.asked]
    specs = read_specs(METHODS, PASSAGES)
    with Parts(chosen, passages=PASSAGES, pages=PASSAGES) as parts:
        methods = [open_method(spec, parts) for spec in specs]
        print(out.name, file=sys.stderr)
        with closing(Progress(len(questions) * len(methods), "answers")) as bar:
            return run_methods(
                questions,
                methods,
                out,
                settings={"set": found.name},
                limits=Limits(concurrency=8),
                on_done=lambda outcome: bar.count(failed=bool(outcome.error)),
            )
