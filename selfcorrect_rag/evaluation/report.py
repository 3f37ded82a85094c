"""The report of a run: summary.json, and report.html with tables, plots and answers."""

import base64
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import distributions
from itertools import combinations
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import require
from selfcorrect_rag.evaluation.methods import Sweep
from selfcorrect_rag.evaluation.metrics import score
from selfcorrect_rag.evaluation.statistics import bootstrap_mean, compare_all
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run, count
from selfcorrect_rag.journal import replace_file
from selfcorrect_rag.thresholds import Stated, measure_refusals, refusal_thresholds

SUMMARY, REPORT = "summary.json", "report.html"
SHOWN = 200
"""Questions whose answers are on the page; all are in ``rows.jsonl``."""
PACKAGES = ("selfcorrect-rag", "langgraph", "langchain-core", "torch", "transformers", "vllm")
COST = ("model_calls", "prompt_tokens", "generated_tokens", "seconds")


def score_run(run: Run, metric: str) -> dict[str, dict[str, float | None]]:
    """Score each method's questions by a metric in its strict form."""
    questions = {question.id: question for question in run.questions}
    found = {}
    for method in run.methods:
        rows = [(questions[outcome.id], outcome) for outcome in run.of(method)]
        values = score(rows, metric).rows
        found[method] = {o.id: value for (_, o), value in zip(rows, values, strict=True)}
    return found


def stated_answers(run: Run, metric: str) -> dict[str, list[Stated]]:
    """Return each method's answers with what is lost if they are stated, 1 minus ``metric``.

    Failed questions, and those that the metric has nothing to compare with, are left out.
    """
    return {
        method: [
            Stated(None if outcome.refused else outcome.score, 1 - value)
            for outcome in run.of(method)
            if not outcome.error and (value := scores[outcome.id]) is not None
        ]
        for method, scores in score_run(run, metric).items()
    }


def _curve(answers: Sequence[Stated]) -> list[list[float | None]]:
    """Return up to 100 thresholds, each with the shares of answered and of wrong questions."""
    thresholds, n = refusal_thresholds(answers), max(len(answers), 1)
    points = [measure_refusals(answers, t) for t in thresholds[:: -(-len(thresholds) // 100)]]
    return [[p.score_above, p.answered / n, p.wrong / n] for p in points]


def summary(
    run: Run, metrics: Sequence[str], about: Mapping[str, Any], sweeps: Sequence[Sweep] = ()
) -> dict[str, Any]:
    """Summarise a run as JSON values; ``about`` are its settings and fingerprints.

    Variants of a sweep are compared with their method alone.
    """
    scored = {metric: score_run(run, metric) for metric in metrics}
    questions = {question.id: question for question in run.questions}
    methods: dict[str, Any] = {}
    for name in run.methods:
        outcomes = run.of(name)
        methods[name] = {**count(outcomes), "metrics": {}}
        for key in COST:
            values = [getattr(outcome, key) for outcome in outcomes]
            methods[name][key] = None if None in values else round(sum(values), 3)
        ran = [(questions[o.id], o) for o in outcomes if not o.error]
        for metric, found in scored.items():
            official = score(ran, metric, "official").value
            methods[name]["metrics"][metric] = {**_mean(found[name].values()), "official": official}
    variants = {name for sweep in sweeps for name in sweep.variants}
    pairs = list(combinations([name for name in methods if name not in variants], 2))
    pairs += [(sweep.method, name) for sweep in sweeps for name in sweep.variants]
    pairs = list(dict.fromkeys(pairs))
    return {
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "about": dict(about),
        "questions": len(run.questions),
        "stopped": run.stopped,
        "methods": methods,
        "comparisons": {
            metric: [{**c._asdict(), "verdict": c.verdict} for c in compare_all(found, pairs)]
            for metric, found in scored.items()
        },
        "sweeps": [sweep._asdict() for sweep in sweeps],
        "refusals": {name: _curve(rows) for name, rows in stated_answers(run, metrics[0]).items()},
    }


def _mean(values: Iterable[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    found = bootstrap_mean(known) if known else None
    return {"value": found and found.value, "interval": found and found.ends, "scored": len(known)}


def write_report(folder: Path, run: Run, made: Mapping[str, Any], title: str) -> None:
    """Write ``summary.json`` and ``report.html`` of a run, each whole or not at all."""
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
    """``0.667 [0.333, 1.000] (0.600), n = 6``: value, interval, the official form, questions."""
    if figure["value"] is None:
        return "–"
    official = "" if figure["official"] is None else f" ({figure['official']:.3f})"
    interval = format_interval(figure["interval"])
    return f"{figure['value']:.3f} {interval}{official}, n = {figure['scored']}"


def render_report(run: Run, made: Mapping[str, Any], title: str) -> str:
    """Render the page: self-contained, without scripts, all text of the run escaped."""
    jinja2 = require("jinja2", "eval")
    loader = jinja2.PackageLoader("selfcorrect_rag.evaluation", "")
    environment = jinja2.Environment(loader=loader, autoescape=True)
    environment.filters |= {"mean": format_mean, "interval": format_interval}
    answers: dict[str, tuple[Question, list[Outcome]]] = {q.id: (q, []) for q in run.questions}
    for outcome in run.outcomes:
        answers[outcome.id][1].append(outcome)
    swept = {name for sweep in made["sweeps"] for name in sweep["variants"]}
    alone = {name: name for name in made["methods"] if name not in swept}
    plots = [("Methods", draw(made, "method", alone))]
    for sweep in made["sweeps"]:
        labels = dict(zip(sweep["variants"], sweep["values"], strict=True))
        plots.append((f"{sweep['method']}: {sweep['knob']}", draw(made, sweep["knob"], labels)))
    curves = {n: curve for n, curve in made["refusals"].items() if len(curve) > 1 and n in alone}
    plots += [(f"{n}: refusing by score_above", draw_curve(curve)) for n, curve in curves.items()]
    rendered: str = environment.get_template(REPORT).render(
        title=title,
        made=made,
        counts=[*count(()), *COST],
        plots=plots,
        answers=[each for each in answers.values() if each[1]][:SHOWN],
    )
    return rendered


def draw(made: Mapping[str, Any], x: str, labels: Mapping[str, str]) -> str:
    """Draw the means of methods with their intervals, and the share of questions that retrieved, as
    SVG in base64; the same run gives the same text. ``labels`` are by the method's name."""
    methods = {labels[name]: made["methods"][name] for name in labels if name in made["methods"]}

    def plot(axes: Any) -> None:
        shares = [method["retrieved"] / method["rows"] for method in methods.values()]
        axes.plot(list(methods), shares, marker="o", label="share retrieved")
        for metric in made["comparisons"]:
            means = {label: method["metrics"][metric] for label, method in methods.items()}
            means = {k: m for k, m in means.items() if None not in (m["interval"] or [None])}
            ends = [[abs(m["interval"][i] - m["value"]) for m in means.values()] for i in (0, 1)]
            heights = [mean["value"] for mean in means.values()]
            axes.errorbar(list(means), heights, ends, marker="o", label=metric)
        axes.set(xlabel=x, ylabel="mean over questions")
        axes.tick_params("x", rotation=20)

    return _draw(x, plot)


def draw_curve(curve: Sequence[Sequence[Any]]) -> str:
    """Draw the shares of a method's questions that are answered, and wrongly, by threshold."""

    def plot(axes: Any) -> None:
        (_, *thresholds), *shares = zip(*curve, strict=True)
        # The first point states all, as any threshold below the others does.
        below = thresholds[0] - max(0.05 * (thresholds[-1] - thresholds[0]), 0.01)
        for name, share in zip(("answered", "wrong"), shares, strict=True):
            axes.step([below, *thresholds], share, where="post", label=name)
        axes.set(xlabel="score_above", ylabel="share of all questions")

    return _draw("score_above", plot)


def _draw(salt: str, plot: Callable[[Any], None]) -> str:
    matplotlib, figures = require("matplotlib", "eval"), require("matplotlib.figure", "eval")
    options = {"svg.hashsalt": salt, "svg.fonttype": "none", "text.parse_math": False}
    with matplotlib.rc_context(options):
        figure = figures.Figure((5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        plot(axes)
        axes.legend(fontsize="small")
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return base64.b64encode(drawn.getvalue()).decode()
