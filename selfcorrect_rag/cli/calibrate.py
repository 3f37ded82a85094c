"""``selfcorrect-rag calibrate``: thresholds of an evaluator, from labelled questions."""

from pathlib import Path

import click

from selfcorrect_rag.cli.options import JSON
from selfcorrect_rag.cli.terminal import count, tell, tell_json


@click.command(params=[JSON])
@click.argument("data", type=Path)
@click.option("--evaluator", metavar="NAME", help="What grades.  [default: the embedded reader]")
def calibrate_command(data: Path, evaluator: str | None, as_json: bool) -> None:
    """Choose CRAG's thresholds from the labelled questions of DATA, and say how they do.

    DATA has JSONL rows {"question": ..., "positives": [...], "negatives": [...]}, on which the
    evaluator was not trained. Each counts as two retrievals: all its passages, and its irrelevant
    ones alone.
    """
    from selfcorrect_rag.serving import Parts, ServingConfig
    from selfcorrect_rag.training.evaluator import Graded, calibrate_evaluator
    from selfcorrect_rag.training.rows import read_rows

    rows = read_rows(data, Graded)
    if not (any(row.positives for row in rows) and any(row.negatives for row in rows)):
        raise click.UsageError(f"{data} needs relevant and irrelevant passages")
    with Parts(ServingConfig(evaluator=evaluator)) as parts:
        found = calibrate_evaluator(parts.evaluator, rows)
    if as_json:
        tell_json({"questions": len(rows), **found})
        return
    upper, lower = found["thresholds"]["upper"], found["thresholds"]["lower"]
    tell(f"--set upper={upper:.3f} --set lower={lower:.3f}, from {count(len(rows), 'question')}")
    tell(f"worth of the actions: {found['action_accuracy']:.3f} on these questions")
    for half in found["held_out"]:
        tell(f"worth on a half that did not choose them: {half['action_accuracy']:.3f}")
