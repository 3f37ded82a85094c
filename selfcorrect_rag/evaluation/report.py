"""Writes what a run found into its folder: the summary and the page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.entailment import EntailmentFunction, KeptEntailment
from selfcorrect_rag.evaluation.judging import with_judgements
from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.page import render_report
from selfcorrect_rag.evaluation.run import Finished, read_run
from selfcorrect_rag.evaluation.summary import SUMMARY, default_metrics, summary, write_summary
from selfcorrect_rag.evaluation.sweeps import Sweep, Variants

REPORT = "report.html"
ENTAILMENT = "entailment"
"""The identity of the entailment model among the settings of a summary."""


def write_report(
    folder: Path,
    finished: Finished,
    metrics: Sequence[str],
    about: Mapping[str, Any],
    variants: Variants | None = None,
    entails: KeptEntailment | None = None,
) -> dict[str, Any]:
    """Write ``summary.json`` and ``report.html``, with what judges said, and return the summary.

    Args:
        folder: of the run.
        finished: the run.
        metrics: names of metrics; those of judges are added.
        about: the run's settings and fingerprints, with its ``task``.
        variants: see :func:`~selfcorrect_rag.evaluation.summary.summary`.
        entails: an entailment model, for citations.
    """
    finished, judges = with_judgements(folder, finished)
    if entails:
        about = {**about, ENTAILMENT: entails.identity}
    made = summary(finished, [*metrics, *finished.judged], about, variants, entails=entails)
    if judges:
        made["judges"] = judges
    write_summary(folder, made)
    page = render_report(finished, made, str(about.get("task", folder.name)))
    (folder / REPORT).write_text(page, encoding="utf-8")
    return made


def write_report_again(folder: Path) -> dict[str, Any]:
    """The same for a run that ended before, with the metrics, sweeps and entailments it had.

    Raises:
        BadRun: there is no run in the folder.
    """
    finished, about = read_run(folder)
    metrics, variants, entails = default_metrics(finished.questions), None, None
    file = folder / SUMMARY
    if file.exists():  # a run that was killed has none yet
        made = json.loads(file.read_text(encoding="utf-8"))
        about, finished = made["about"], finished._replace(stopped=made["stopped"])
        named = (name for method in made["methods"].values() for name in method["metrics"])
        metrics = [name for name in dict.fromkeys(named) if name in METRICS] or metrics
        variants = _variants(made)
        if ENTAILMENT in about:
            entails = KeptEntailment(EntailmentFunction(_gone, about[ENTAILMENT]), folder)
    return write_report(folder, finished, metrics, about, variants, entails)


def _variants(made: Mapping[str, Any]) -> Variants:
    sweeps = [Sweep(**sweep) for sweep in made["sweeps"]]
    return Variants([], sweeps, [(one, other) for one, other in made["pairs"]])


def _gone(premise: str, hypothesis: str) -> bool:
    raise BadRun("answers came after their citations were judged: run eval again first")
