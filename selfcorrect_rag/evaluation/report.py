"""The report of a run: summary.json, and report.html with tables, plots and answers."""

import base64
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from itertools import combinations
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadRun, MissingExtra, require
from selfcorrect_rag.evaluation.methods import Sweep
from selfcorrect_rag.evaluation.metrics import Entails, score
from selfcorrect_rag.evaluation.outcomes import Outcome, Run, count
from selfcorrect_rag.evaluation.statistics import bootstrap_mean, compare_all
from selfcorrect_rag.journal import replace_file

SUMMARY, REPORT = "summary.json", "report.html"
MARK = "selfcorrect-rag eval"
"""At the start of both files, by which they are known as ours."""
SHOWN = 200
"""Questions whose answers are on the page; all are in ``rows.jsonl``."""
PACKAGES = ("selfcorrect-rag", "langgraph", "langchain-core", "torch", "transformers", "vllm")
COST = ("model_calls", "prompt_tokens", "generated_tokens", "seconds")


def score_run(
    run: Run, metric: str, entails: Entails | None = None
) -> dict[str, dict[str, float | None]]:
    """Score each method's questions by a metric in its strict form."""
    questions = {question.id: question for question in run.questions}
    found = {}
    for method in run.methods:
        rows = [(questions[outcome.id], outcome) for outcome in run.of(method)]
        values = score(rows, metric, entails=entails).rows
        found[method] = {o.id: value for (_, o), value in zip(rows, values, strict=True)}
    return found


def summary(
    run: Run,
    metrics: Sequence[str],
    about: Mapping[str, Any],
    sweeps: Sequence[Sweep] = (),
    *,
    entails: Entails | None = None,
) -> dict[str, Any]:
    """Summarise a run as JSON values.

    Args:
        run: the run.
        metrics: names of metrics.
        about: settings and fingerprints of the run.
        sweeps: those in the run; their variants are compared with their method alone.
        entails: an entailment model, for citation metrics.
    """
    scored = {metric: score_run(run, metric, entails) for metric in metrics}
    questions = {question.id: question for question in run.questions}
    methods: dict[str, Any] = {}
    for name in run.methods:
        outcomes = run.of(name)
        methods[name] = {**count(outcomes), **_cost(outcomes), "metrics": {}}
        ran = [(questions[o.id], o) for o in outcomes if not o.error]
        for metric, found in scored.items():
            official = score(ran, metric, "official", entails=entails).value
            methods[name]["metrics"][metric] = {**_mean(found[name].values()), "official": official}
    variants = {name for sweep in sweeps for name in sweep.variants}
    pairs = list(combinations([name for name in methods if name not in variants], 2))
    pairs += [(sweep.method, name) for sweep in sweeps for name in sweep.variants]
    pairs = list(dict.fromkeys(pairs))
    return {
        "made_by": MARK,
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "about": dict(about),
        "questions": len(run.questions),
        "stopped": run.stopped,
        "methods": methods,
        "comparisons": {
            metric: [
                {**pair._asdict(), "verdict": pair.verdict} for pair in compare_all(found, pairs)
            ]
            for metric, found in scored.items()
        },
        "sweeps": [sweep._asdict() for sweep in sweeps],
    }


def _mean(values: Iterable[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    found = bootstrap_mean(known) if known else None
    return {"value": found and found.value, "interval": found and found.ends, "scored": len(known)}


def _cost(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in COST:
        values = [getattr(outcome, key) for outcome in outcomes]
        made[key] = None if None in values else round(sum(values), 3)
    return made


# Files and the page


def refuse_foreign_reports(folder: Path) -> None:
    """Check, before anything is asked, that a run would not overwrite somebody else's files.

    Raises:
        BadRun: the folder has a report.html or summary.json that eval did not write.
    """
    for name in (SUMMARY, REPORT):
        file = folder / name
        if file.exists() and MARK.encode() not in file.read_bytes()[:2000]:
            raise BadRun(f"{file} was not written by eval: choose another folder with --out")


def write_report(folder: Path, run: Run, made: Mapping[str, Any], title: str) -> None:
    """Write ``summary.json`` and ``report.html`` of a run, each whole or not at all."""
    refuse_foreign_reports(folder)
    texts = {
        SUMMARY: json.dumps(made, indent=2, ensure_ascii=False) + "\n",
        REPORT: render_report(run, made, title),
    }
    for name, text in texts.items():
        with replace_file(folder / name) as draft:
            draft.write_text(text, encoding="utf-8", errors="replace")


def format_interval(ends: Sequence[float | None]) -> str:
    """``[0.333, 1.000]``, or that it is unknown."""
    low, high = ends
    return "[unknown]" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def format_mean(figure: Mapping[str, Any]) -> str:
    """``0.667 [0.333, 1.000] (0.600)``: value, interval and the official form."""
    if figure["value"] is None:
        return "–"
    official = "" if figure["official"] is None else f" ({figure['official']:.3f})"
    return f"{figure['value']:.3f} {format_interval(figure['interval'])}{official}"


def render_report(run: Run, made: Mapping[str, Any], title: str) -> str:
    """Render the page: self-contained, without scripts, all text of the run escaped."""
    jinja2 = require("jinja2", "eval")
    loader = jinja2.PackageLoader("selfcorrect_rag.evaluation", "")
    environment = jinja2.Environment(loader=loader, autoescape=True)
    environment.filters |= {"mean": format_mean, "interval": format_interval}
    answers: dict[str, list[Outcome]] = {}
    for outcome in run.outcomes:
        answers.setdefault(outcome.id, []).append(outcome)
    shown = [question for question in run.questions if question.id in answers][:SHOWN]
    swept = {name for sweep in made["sweeps"] for name in sweep["variants"]}
    alone = [name for name in made["methods"] if name not in swept]
    plots = [("Methods", draw(made, "method", alone, alone))]
    for sweep in made["sweeps"]:
        image = draw(made, sweep["knob"], sweep["values"], sweep["variants"])
        plots.append((f"{sweep['method']}: {sweep['knob']}", image))
    rendered: str = environment.get_template(REPORT).render(
        title=title,
        made=made,
        counts=[*count(()), *COST],
        plots=plots,
        answers=[(question, answers[question.id]) for question in shown],
    )
    return rendered


def draw(made: Mapping[str, Any], x: str, values: Sequence[str], names: Sequence[str]) -> str:
    """Draw the means of methods with their intervals, and the share of questions that retrieved, as
    SVG in base64; the same run gives the same text. Empty without matplotlib (the extra ``eval``).

    Args:
        made: a summary.
        x: what the values are of.
        values: a place on the axis for each method.
        names: the methods.
    """
    try:
        matplotlib, figures = require("matplotlib", "eval"), require("matplotlib.figure", "eval")
    except MissingExtra:
        return ""
    numbers = all(re.fullmatch(r"-?\d+(\.\d+)?", value) for value in values)
    points = [
        (float(value) if numbers else value, made["methods"][name])
        for value, name in zip(values, names, strict=True)
        if name in made["methods"]
    ]
    options = {"svg.hashsalt": MARK, "svg.fonttype": "none", "text.parse_math": False}
    with matplotlib.rc_context(options):
        figure = figures.Figure((5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for metric in made["comparisons"]:
            means = [(at, method["metrics"][metric]) for at, method in points]
            means = [(at, mean) for at, mean in means if None not in (mean["interval"] or [None])]
            ends = [[abs(m["interval"][i] - m["value"]) for _, m in means] for i in (0, 1)]
            heights = [mean["value"] for _, mean in means]
            axes.errorbar([at for at, _ in means], heights, ends, marker="o", label=metric)
        shares = [method["retrieved"] / method["rows"] for _, method in points]
        axes.plot([at for at, _ in points], shares, marker="o", label="share retrieved")
        axes.set(xlabel=x, ylabel="mean over questions")
        axes.legend(fontsize="small")
        axes.tick_params("x", rotation=0 if numbers else 20)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return base64.b64encode(drawn.getvalue()).decode()
