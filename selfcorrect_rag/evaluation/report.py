"""The report of a run: summary.json, and report.html with tables, plots and all answers."""

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
from selfcorrect_rag.evaluation.outcomes import (
    Outcome,
    abstention_curve,
    confidences,
    count,
)
from selfcorrect_rag.evaluation.runner import Run
from selfcorrect_rag.evaluation.statistics import Comparison, bootstrap_mean, compare_all
from selfcorrect_rag.journal import replace_file

SUMMARY, REPORT = "summary.json", "report.html"
MARK = "selfcorrect-rag eval"
"""At the start of both files, by which they are known as ours."""
SHOWN = 200
"""Questions whose answers are on the page; all are in ``rows.jsonl``."""
PACKAGES = ("selfcorrect-rag", "langgraph", "langchain-core", "torch", "transformers", "vllm")
COST = ("model_calls", "prompt_tokens", "generated_tokens", "seconds")
Scored = Mapping[str, Mapping[str, float | None]]
"""Scores by method and question id."""


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
        ran = [(questions[o.id], o) for o in outcomes if not o.error]
        methods[name] = {**count(outcomes), **_cost(outcomes), "metrics": {}}
        for metric, found in scored.items():
            official = score(ran, metric, "official", entails=entails).value
            methods[name]["metrics"][metric] = {**_mean(found[name].values()), "official": official}
    variants = {name for sweep in sweeps for name in sweep.variants}
    pairs = list(combinations([name for name in methods if name not in variants], 2))
    pairs += [(sweep.method, name) for sweep in sweeps for name in sweep.variants]
    return {
        "made_by": MARK,
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "about": dict(about),
        "questions": len(run.questions),
        "stopped": run.stopped,
        "methods": methods,
        "comparisons": {
            metric: [as_json(pair) for pair in compare_all(found, list(dict.fromkeys(pairs)))]
            for metric, found in scored.items()
        },
        "sweeps": [sweep._asdict() for sweep in sweeps],
        "abstention": _abstention(run, scored[metrics[0]]) if metrics else {},
    }


def _mean(values: Iterable[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    found = bootstrap_mean(known) if known else None
    return {"value": found and found[0], "interval": found and found.ends, "scored": len(known)}


def _cost(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in COST:
        values = [getattr(outcome, key) for outcome in outcomes]
        made[key] = None if None in values else round(sum(values), 3)
    return {**made, "words": sum(len(o.answer.split()) for o in outcomes) / len(outcomes)}


def _abstention(run: Run, scored: Scored) -> dict[str, Any]:
    """The abstention curve of each method that has confidences, in at most 100 points."""
    curves = {}
    for method in run.methods:
        outcomes = run.of(method)
        if sure := confidences(outcomes):
            points = abstention_curve(outcomes, [scored[method][o.id] for o in outcomes], sure)
            step = -(-len(points) // 100) or 1
            curves[method] = [p._asdict() for p in points[::-1][::step][::-1]]
    return {method: points for method, points in curves.items() if points}


def as_json(pair: Comparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    return {
        "first": pair.first,
        "second": pair.second,
        "difference": pair.difference.value,
        "interval": pair.difference.ends,
        "mcnemar": pair.mcnemar,
        "questions": pair.rows,
        "significant": pair.significant,
        "in_words": str(pair),
    }


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


def format_mean(figure: Mapping[str, Any]) -> str:
    """``0.667 [0.333, 1.000] (0.600)``: value, interval and the official form."""
    if figure["value"] is None:
        return "–"
    official = "" if figure["official"] is None else f" ({figure['official']:.3f})"
    return f"{figure['value']:.3f} {format_interval(figure['interval'])}{official}"


def format_interval(ends: Sequence[float | None]) -> str:
    """``[0.333, 1.000]``, or that it is unknown."""
    low, high = ends
    return "[unknown]" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def comparison_row(pair: Mapping[str, Any]) -> list[str]:
    """A comparison as cells: first, second, difference, p, questions, verdict."""
    better = pair["first"] if pair["difference"] > 0 else pair["second"]
    return [
        pair["first"],
        pair["second"],
        f"{pair['difference']:+.3f} {format_interval(pair['interval'])}",
        "–" if pair["mcnemar"] is None else f"{pair['mcnemar']:.3g}",
        str(pair["questions"]),
        f"{better} is better" if pair["significant"] else "no significant difference",
    ]


def render_report(run: Run, made: Mapping[str, Any], title: str) -> str:
    """Render the page: self-contained, without scripts, all text of the run escaped."""
    jinja2 = require("jinja2", "eval")
    loader = jinja2.PackageLoader("selfcorrect_rag.evaluation", "")
    template = jinja2.Environment(loader=loader, autoescape=True).get_template(REPORT)
    methods: Mapping[str, Any] = made["methods"]
    metrics = list(dict.fromkeys(name for each in methods.values() for name in each["metrics"]))
    counts = [name for name in count(()) if name != "rows"] + list(COST)
    by_question: dict[str, list[Outcome]] = {}
    for outcome in run.outcomes:
        by_question.setdefault(outcome.id, []).append(outcome)
    shown = [question for question in run.questions if question.id in by_question][:SHOWN]
    rendered: str = template.render(
        title=title,
        summary=made,
        metrics=metrics,
        results=[[n, *(format_mean(m["metrics"][x]) for x in metrics)] for n, m in methods.items()],
        comparisons={
            m: list(map(comparison_row, pairs)) for m, pairs in made["comparisons"].items()
        },
        plots=list(_plots(made)),
        counts=[name.replace("_", " ") for name in counts],
        behaviour=[
            [name, *("not reported" if each[c] is None else f"{each[c]:,}" for c in counts)]
            for name, each in methods.items()
        ],
        answers=[
            (question, list(map(_answer_row, by_question[question.id]))) for question in shown
        ],
        more=len(by_question) - len(shown),
        about=[[k, str(v)[:600]] for k, v in {**made["versions"], **made["about"]}.items()],
    )
    return rendered


def _answer_row(outcome: Outcome) -> list[str]:
    said = outcome.cited_answer or outcome.answer
    said = f"failed: {outcome.error}" if outcome.error else said
    return [outcome.method, said[:600], outcome.action]


def _plots(made: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Headings with their plots as base64 SVG, empty without matplotlib."""
    methods = made["methods"]
    for sweep in (Sweep(**given) for given in made["sweeps"]):
        numbers = all(re.fullmatch(r"-?\d+(\.\d+)?", value) for value in sweep.values)
        points = [
            (float(value) if numbers else value, methods[name])
            for value, name in zip(sweep.values, sweep.variants, strict=True)
            if name in methods
        ]
        lines: dict[str, list[tuple[Any, float]]] = {}
        bounds: dict[str, list[list[float]]] = {}
        for at, found in points:
            for metric, figure in found["metrics"].items():
                if figure["value"] is not None:
                    lines.setdefault(metric, []).append((at, figure["value"]))
                    bounds.setdefault(metric, []).append(figure["interval"])
            share = found["retrieved"] / found["rows"]
            lines.setdefault("share retrieved", []).append((at, share))
        heading = f"{sweep.method}: {sweep.knob}"
        yield heading, draw(lines, sweep.knob, "mean over questions", bounds)
    curves = {
        method: [(point["answered"], point["accuracy"]) for point in points]
        for method, points in made["abstention"].items()
    }
    if curves:
        heading = "If a method answers only where it is sure enough"
        yield heading, draw(curves, "share of questions answered", "mean score of these")


def draw(
    lines: Mapping[str, Sequence[tuple[Any, float]]],
    x: str,
    y: str,
    bounds: Mapping[str, Sequence[Sequence[float | None]]] | None = None,
) -> str:
    """Draw named lines as SVG in base64; the same lines give the same text. Empty without
    matplotlib (the extra ``eval``). ``bounds`` are low and high ends for each point of a line."""
    try:
        matplotlib, figures = require("matplotlib", "eval"), require("matplotlib.figure", "eval")
    except MissingExtra:
        return ""
    with matplotlib.rc_context(
        {"svg.hashsalt": MARK, "svg.fonttype": "none", "text.parse_math": False}
    ):
        figure = figures.Figure((5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for name, points in lines.items():
            xs, ys = zip(*points, strict=True)
            (line,) = axes.plot(xs, ys, marker="o", markersize=3.5, label=name)
            ends = (bounds or {}).get(name)
            if ends and all(end is not None for pair in ends for end in pair):
                lows, highs = zip(*ends, strict=True)
                axes.fill_between(xs, lows, highs, color=line.get_color(), alpha=0.15)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.legend(fontsize="small")
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return base64.b64encode(drawn.getvalue()).decode()
