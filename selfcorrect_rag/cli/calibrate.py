"""``selfcorrect-rag calibrate``: thresholds for an evaluator."""

from pathlib import Path

import click

from selfcorrect_rag.cli.terminal import tell, tell_json


@click.command()
@click.argument("data", type=Path)
@click.option("--evaluator", metavar="NAME", help="What grades.  [default: the embedded reader]")
@click.option(
    "--ambiguous-worth",
    default=0.75,
    show_default=True,
    help="What an ambiguous action counts, from 0 (wrong) to 1 (right).",
)
@click.option("--write", is_flag=True, help="Write the thresholds into the evaluator's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    data: Path, evaluator: str | None, ambiguous_worth: float, write: bool, as_json: bool
) -> None:
    """Choose CRAG's thresholds from the labelled questions of DATA, and say how they do.

    DATA has JSONL rows {"question": ..., "positives": [...], "negatives": [...]}, on which the
    evaluator was not trained. Each counts as two retrievals: all its passages, and its irrelevant
    ones alone.
    """
    from selfcorrect_rag.evaluation.calibration import (
        calibrate_evaluator,
        read_labelled,
        write_thresholds,
    )
    from selfcorrect_rag.serving import Parts, ServingConfig

    if write and not (evaluator and Path(evaluator).is_dir()):
        raise click.UsageError("--write needs --evaluator, a folder")
    if not 0 <= ambiguous_worth <= 1:
        raise click.BadParameter(f"--ambiguous-worth must be 0 to 1, got {ambiguous_worth}")
    rows = read_labelled(data)
    with Parts(ServingConfig(evaluator=evaluator)) as parts:
        found = calibrate_evaluator(parts.evaluator, rows, ambiguous_worth=ambiguous_worth)
    thresholds = found.chosen.thresholds
    if write and evaluator:
        write_thresholds(Path(evaluator), thresholds)
    if as_json:
        tell_json({"questions": len(rows), **found.as_json()})
        return
    tell(f"upper {thresholds.upper:.3f}, lower {thresholds.lower:.3f}, from {len(rows)} questions")
    tell(f"worth of the actions: {found.chosen.action_accuracy:.3f} on these questions")
    for half in found.held_out:
        tell(f"worth on a half that did not choose them: {half.action_accuracy:.3f}")
