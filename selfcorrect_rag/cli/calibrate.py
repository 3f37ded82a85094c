"""``selfcorrect-rag calibrate``: thresholds of an evaluator or of a graph, from labelled
questions."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, JSON, GraphName, config_from
from selfcorrect_rag.cli.terminal import count, progress_line, tell, tell_json


@click.command(params=[*CONFIG, JSON])
@click.argument("data", type=Path)
@click.option(
    "--max-wrong",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Choose score_above, so that no larger share of questions gets a wrong answer.",
)
@click.option("--graph", type=GraphName(), help="With --max-wrong: the graph.  [default: self-rag]")
@click.option("--out", type=Path, metavar="DIR", help="With --max-wrong: a folder to resume from.")
def calibrate_command(
    data: Path,
    max_wrong: float | None,
    graph: str | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Choose CRAG's thresholds from the labelled questions of DATA, and say how they do.

    DATA has JSONL rows {"question": ..., "positives": [...], "negatives": [...]}, on which the
    evaluator was not trained. Each counts as two retrievals: all its passages, and its irrelevant
    ones alone.

    With --max-wrong, DATA is a file of `eval`, which a graph answers, and the score is chosen up to
    which it refuses: selfcorrect-rag calibrate questions.jsonl --max-wrong 0.1 --graph crag
    """
    if max_wrong is not None:
        return _bound_wrong(data, max_wrong, graph or "self_rag", out, as_json, options)
    given = {"graph": graph, "out": out, **options}
    if unused := [name for name in ("graph", "out", "index", "model", "web") if given[name]]:
        raise click.UsageError(f"--{unused[0]} has an effect only with --max-wrong: give it too")
    from selfcorrect_rag.serving import Parts
    from selfcorrect_rag.training.evaluator import Graded, calibrate_evaluator
    from selfcorrect_rag.training.rows import read_rows

    rows = read_rows(data, Graded)
    if not (any(row.positives for row in rows) and any(row.negatives for row in rows)):
        raise click.UsageError(f"{data} needs relevant and irrelevant passages")
    with Parts(config_from(**options)) as parts:
        found = calibrate_evaluator(parts.evaluator, rows)
    if as_json:
        tell_json({"questions": len(rows), **found})
        return 0
    upper, lower = found["thresholds"]["upper"], found["thresholds"]["lower"]
    tell(f"--set upper={upper:.3f} --set lower={lower:.3f}, from {count(len(rows), 'question')}")
    tell(f"worth of the actions: {found['action_accuracy']:.3f} on these questions")
    for half in found["held_out"]:
        tell(f"worth on a half that did not choose them: {half['action_accuracy']:.3f}")
    return 0


def _bound_wrong(
    data: Path, max_wrong: float, graph: str, out: Path | None, as_json: bool, options: Any
) -> int:
    from selfcorrect_rag.evaluation.runner import calibrate_refusals
    from selfcorrect_rag.serving import Parts

    served, show = config_from(graph=graph, **options), progress_line()
    about = served.model_dump(mode="json", exclude_defaults=True)
    with TemporaryDirectory() as folder, Parts(served) as parts:
        found = calibrate_refusals(
            data,
            out or Path(folder) / "run",
            graph,
            parts,
            max_wrong,
            settings=about,
            on_done=lambda outcome, left: show(f"{left} questions left"),
        )
    if as_json:
        tell_json(found)
        return 0
    chosen = f"--set score_above={found['score_above']}"
    if found["score_above"] is None:
        chosen = f"every answer may be stated: no more than {max_wrong:g} are wrong"
    elif not found["answered"]:
        chosen = f"no threshold keeps {max_wrong:g}: all answers would be refused"
    tell(f"{chosen}, from {count(found['questions'], 'question')}")
    for what, counts in (("with it", found), ("without it", found["without"])):
        tell(f"{what}: {counts['answered']} answered, {counts['wrong']:g} of them wrongly")
    if found["left_out"]:
        tell(f"left out, failed or without an accepted answer: {found['left_out']}", err=True)
    return 0
