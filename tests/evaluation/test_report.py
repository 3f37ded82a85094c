"""The summary and the page: right figures, escaped text, and nobody else's file overwritten."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation import report
from selfcorrect_rag.evaluation.report import draw, render_report, summary
from selfcorrect_rag.evaluation.runner import EvalOptions, evaluate
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run
from tests.evaluation.scripted_parts import ScriptedParts
from tests.training.toys import write

HOSTILE = "<script>alert(1)</script>{{ 7 * 7 }}"
QUESTIONS = [Question(f"q{n}", f"Who? {HOSTILE}", ("Ada",)) for n in range(10)]
RUN = Run(
    QUESTIONS,
    [
        *(Outcome(q.id, "good", "Ada", model_calls=2) for q in QUESTIONS),
        *(Outcome(q.id, "bad", HOSTILE, prompt_tokens=None) for q in QUESTIONS[:9]),
        Outcome("q9", "bad", "", error=HOSTILE),
    ],
)


def test_the_figures_of_a_summary() -> None:
    made = summary(RUN, ["match", "em"], {"task": "t"})
    good, bad = made["methods"]["good"], made["methods"]["bad"]
    match = {"value": 1.0, "interval": [1.0, 1.0], "scored": 10, "official": 1.0}
    assert good["metrics"]["match"] == match
    assert (bad["metrics"]["match"]["value"], bad["failed"]) == (0.0, 1)
    assert (good["model_calls"], bad["prompt_tokens"]) == (20, None)
    (pair,) = made["comparisons"]["match"]
    assert (pair["difference"], pair["mcnemar"], pair["significant"]) == (1.0, 2 / 2**10, True)
    assert json.loads(json.dumps(made)) == made


def test_a_page_escapes_all_text_and_runs_nothing() -> None:
    made = summary(RUN, ["match"], {"x": HOSTILE})
    page = render_report(RUN, made, HOSTILE)
    assert "<script" not in page.lower()
    assert "49" not in re.sub(r"base64,[^\"]*|\d\.\d+", "", page)
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    assert "good is better" in page
    assert "http" not in re.sub(r"http-equiv|base64,[^\"]*", "", page)
    assert render_report(RUN, made, HOSTILE) == page
    stopped = {"stopped": "max_calls"}
    assert "max_calls" in render_report(RUN._replace(**stopped), {**made, **stopped}, "t")


def options(tmp_path: Path, **given: Any) -> EvalOptions:
    rows = ({"question": f"Who, {n}?", "answers": ["Lind"]} for n in range(6))
    file = write(tmp_path / "questions.jsonl", *rows)
    return EvalOptions(data=str(file), out=tmp_path / "run", **given)


def test_a_whole_evaluation_with_a_sweep(tmp_path: Path) -> None:
    methods = ("rag", "s=self_rag:mode=always")
    sweeps = ("s=self_rag:mode=always:weight_issup=0,1,2",)
    given = options(tmp_path, methods=methods, sweeps=sweeps)
    made = evaluate(given, ScriptedParts(), settings={"model": "scripted"})
    match = {name: method["metrics"]["match"]["value"] for name, method in made["methods"].items()}
    assert match["s:weight_issup=0"] == 0.0
    assert match["s:weight_issup=2"] == match["s"] == 1.0
    page = (given.out / report.REPORT).read_text()
    assert page.count("data:image/svg+xml;base64,") == 4  # two of them of refusals
    assert json.loads((given.out / report.SUMMARY).read_text())["methods"] == made["methods"]
    compared = {(p["first"], p["second"]) for p in made["comparisons"]["match"]}
    assert compared == {("rag", "s"), *(("s", f"s:weight_issup={v}") for v in (0, 1, 2))}


def test_all_is_checked_before_anything_is_asked(tmp_path: Path) -> None:
    parts = ScriptedParts()
    with pytest.raises(BadArgument, match="metric must be one of"):
        evaluate(options(tmp_path, methods=("rag",), metrics=("bleu",)), parts)
    assert [*parts.llm.calls, *parts.queries] == []


def test_plots_are_the_same_every_time() -> None:
    made = summary(RUN, ["match", "em"], {})
    labels = {"good": "0", "bad": "1.5", "unasked": "2"}
    assert draw(made, "a $x$", labels) == draw(made, "a $x$", labels)


def test_the_curve_of_refusals() -> None:
    """Right answers have higher scores here, one is refused, and one failed."""
    outcomes = [
        Outcome(f"q{n}", "m", "Ada" if n > 3 else "Bo", score=n / 10, refused=n == 5)
        for n in range(9)
    ]
    run = Run(QUESTIONS, [*outcomes, Outcome("q9", "m", "", error="down")])
    curve = summary(run, ["match"], {})["refusals"]["m"]
    assert curve[0] == [None, 8 / 9, 4 / 9]
    assert [0.3, 4 / 9, 0.0] in curve
    assert curve[-1] == [0.8, 0.0, 0.0]
    page = render_report(run, summary(run, ["match"], {}), "t")
    assert "m: refusing by score_above" in page
    assert "refusing by" not in render_report(RUN, summary(RUN, ["match"], {}), "t")
    many = [Outcome(f"q{n}", "m", "Bo", score=n) for n in range(1_000)]
    asked = [Question(f"q{n}", "Who?", ("Ada",)) for n in range(1_000)]
    assert len(summary(Run(asked, many), ["match"], {})["refusals"]["m"]) <= 101
