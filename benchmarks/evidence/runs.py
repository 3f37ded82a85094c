"""The runs of docs/evidence.md: every method, over whole indexes and over ones without gold."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.evidence.corpora import index_without_gold, whole_index
from benchmarks.evidence.sets import Set
from selfcorrect_rag.evaluation.methods import open_method
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.remembered import Memory
from selfcorrect_rag.evaluation.run import Finished, Limits, count_left, run_methods
from selfcorrect_rag.evaluation.sweeps import read_variants
from selfcorrect_rag.evaluation.tasks import question_hash
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts

METHODS = (
    "no_retrieval",
    "rag_first",
    "rag",
    "ralm",
    "likelihood=self_rag:weight_isrel=0,weight_issup=0,weight_isuse=0",
    "self_rag",
    "crag",
    "self_crag",
    "instruct_rag",
)
NAMED = tuple(method.partition("=")[0] if "=" in method else method for method in METHODS)
"""Their names in a run."""
ABLATIONS = ("crag:ablations", "self_crag:ablations")
SWEEPS = (
    *ABLATIONS,
    "rag:passages=1,3,5,10",
    "self_rag:passages=1,3,5,10",
    "self_rag:weight_issup=0,0.5,1,2,4",
    "self_rag:weight_sequence=0,0.5,1,2,4",
    "self_rag:mode=adaptive:threshold=0,0.2,0.5,0.8,0.95,1",
)
PASSAGES = 5
"""Passages that each method retrieves; a web search gives as many pages."""
ALONE = 20
"""Questions of each set that are asked one at a time."""


class Runs(NamedTuple):
    """The runs over one set."""

    whole: Finished
    """Every question answered, over the whole index."""
    without: Finished
    """Every question answered, over the index without gold; the web has it."""
    shipped: Finished
    """As the package ships: below a confidence it refuses. Over the whole index."""
    alone: Finished
    """A few questions, one at a time, of which nothing is remembered: what each method costs."""

    def removed(self, share: float) -> Finished:
        """The outcomes where the passages that answer this share of the questions are removed, of
        the methods that were asked both ways."""
        ranked = sorted(self.whole.questions, key=lambda each: question_hash(f"of {each.question}"))
        gone = {question.id for question in ranked[: round(share * len(ranked))]}
        there = {(o.method, o.id): o for o in self.without.outcomes}
        both = [o for o in self.whole.outcomes if (o.method, o.id) in there]
        return self.whole._replace(
            outcomes=[there[o.method, o.id] if o.id in gone else o for o in both]
        )


def run_set(found: Set, config: ServingConfig, work: Path) -> Runs:
    """Run all methods on a set, or go on with what is in ``work``."""
    whole, without = whole_index(found, work), index_without_gold(found, work)
    answering: Mapping[str, Any] = {"answer_above": 0.0} if config.runs_on == "reader" else {}
    asking = _Asking(found, config, str(whole), work / "runs", Memory())
    return Runs(
        asking.run("whole", SWEEPS, index=whole, **answering),
        asking.run("without", ABLATIONS, index=without, **answering),
        asking.run("shipped", index=whole),
        asking.run("alone", index=whole),
    )


class _Asking(NamedTuple):
    """The questions of a set, and what its runs share."""

    found: Set
    config: ServingConfig
    web: str
    """The index that plays the web."""
    folder: Path
    """Of the runs."""
    memory: Memory

    def run(self, kind: str, sweeps: Sequence[str] = (), **options: Any) -> Finished:
        """One run, with other options of the configuration.

        ``alone`` asks few questions, one at a time, and remembers nothing.
        """
        alone = kind == "alone"
        questions = [each.question for each in self.found.asked][: ALONE if alone else None]
        specs = read_variants(METHODS, sweeps if self.found.sweeps else (), PASSAGES).specs
        given = {**self.config.model_dump(exclude_defaults=True), "web": self.web, **options}
        out = self.folder / f"{self.found.name}-{kind}"
        with Parts(
            ServingConfig(**given),
            passages=max(spec.passages for spec in specs),
            pages=PASSAGES,
            each=(lambda part: part) if alone else self.memory.of,
        ) as parts:
            methods = [open_method(spec, parts) for spec in specs]
            print(out.name, file=sys.stderr)
            with closing(Progress(count_left(questions, specs, out), "answers")) as bar:
                return run_methods(
                    questions,
                    methods,
                    out,
                    settings={"set": self.found.name, **{k: str(v) for k, v in options.items()}},
                    limits=Limits(concurrency=1 if alone else 4),
                    on_done=lambda outcome: bar.count(failed=bool(outcome.error)),
                )
