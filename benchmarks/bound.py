"""Measure whether `calibrate --max-wrong` keeps its bound: ``python -m benchmarks.bound``.

The embedded reader answers PopQA's and TriviaQA's questions of split 2 from the passages that were
retrieved for them (../shared/data/retrieved5_dev.jsonl.gz), each graph once. Then 200 random halves
choose the threshold, and the other halves measure it. Split 3, for the figures of docs/evidence.md,
is not read. Ends in one line of JSON: for each graph, all that is answered and wrong without a
threshold, and for each bound the mean over the halves of both shares with the central 95 % of the
halves.
"""

import argparse
import json
import random
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import documents
from reader_training.rows import retrieved
from selfcorrect_rag.evaluation.methods import open_method, read_specs
from selfcorrect_rag.evaluation.report import stated_answers
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.tasks import Question
from selfcorrect_rag.serving import Parts, ServingConfig
from selfcorrect_rag.thresholds import Stated, bound_wrong, measure_refusals

METHODS = ("self_rag", "crag", "instruct_rag")
BOUNDS = (0.05, 0.1, 0.2)
HALVES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bound"))
    parser.add_argument("--answer-above", type=float, default=0.0, help="the reader's own refusals")
    args = parser.parse_args()
    questions = [
        Question(f"{r.source}-{number}", r.question, r.answers, tuple(documents(r.passages)))
        for number, r in enumerate(retrieved(2))
        if r.source != "multihop"
    ]
    settings: dict[str, Any] = {"answer_above": args.answer_above}
    with Parts(ServingConfig(**settings)) as parts:
        settings["reader"] = parts.reader.identity
        methods = [open_method(spec, parts) for spec in read_specs(METHODS)]
        run = run_methods(questions, methods, args.out, settings=settings)
    found = {name: measure(rows) for name, rows in stated_answers(run, "match").items()}
    print(json.dumps({"benchmark": "bound", **settings, "questions": len(questions), **found}))


def measure(rows: list[Stated]) -> dict[str, Any]:
    """Return the shares without a threshold, and with those that random halves choose."""
    rng, half = random.Random(0), len(rows) // 2
    halves = [rng.sample(rows, len(rows)) for _ in range(HALVES)]
    found: dict[str, Any] = {"without": shares(rows, None)}
    for bound in BOUNDS:
        chosen = [bound_wrong(shuffled[:half], bound).score_above for shuffled in halves]
        held_out = [shares(s[half:], above) for s, above in zip(halves, chosen, strict=True)]
        for name in ("answered", "wrong"):
            each = sorted(share[name] for share in held_out)
            ends = fmean(each), each[HALVES // 40], each[-HALVES // 40 - 1]
            found.setdefault(f"{bound}", {})[name] = [round(end, 4) for end in ends]
    return found


def shares(rows: list[Stated], score_above: float | None) -> dict[str, float]:
    """Return the answered and the wrong share of all questions."""
    counted = measure_refusals(rows, score_above)
    return {name: getattr(counted, name) / counted.questions for name in ("answered", "wrong")}


if __name__ == "__main__":
    main()
