"""Sweeps: their variants, what is compared, what they cost, and their plots."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.evaluation.methods import BadMethod, open_method
from selfcorrect_rag.evaluation.page import render_report
from selfcorrect_rag.evaluation.remembered import Memory
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.run import Finished, Limits, estimate_run, run_methods
from selfcorrect_rag.evaluation.summary import summary
from selfcorrect_rag.evaluation.sweeps import Variants, read_variants, render_sweeps
from tests.evaluation.scripted_parts import ScriptedParts

SIX = [Question(f"q{n}", f"Who was it, {n}?", ("Lind",)) for n in range(6)]
WEIGHTS = "self_rag:weight_issup=0,1,0.5"


def names(variants: Variants) -> list[str]:
    return [spec.name for spec in variants.specs]


def run(
    out: Path, variants: Variants, parts: ScriptedParts | None = None, **given: Any
) -> Finished:
    parts = parts or ScriptedParts()
    parts.llm = Memory().of(parts.llm)
    methods = [open_method(spec, parts) for spec in variants.specs]
    return run_methods(SIX, methods, out, shared=True, **given)


def test_a_sweep_is_a_variant_a_value() -> None:
    read = read_variants(["rag"], [WEIGHTS, "x=crag:strips=3:without_action=none,correct"])
    assert names(read) == [
        "rag",
        *(f"self_rag:weight_issup={value}" for value in ("0", "1", "0.5")),
        *("x:without_action=none", "x:without_action=correct"),
    ]
    settings = [spec.as_json()["settings"] for spec in read.specs]
    assert [each.get("weight_issup") for each in settings[1:4]] == [0, 1, 0.5]
    assert [each["strips"] for each in settings[4:]] == [3, 3]
    weights, actions = read.sweeps
    assert (weights.kind, weights.method, weights.knob) == ("self_rag", "self_rag", "weight_issup")
    assert weights.reference == "self_rag:weight_issup=1"  # the default
    assert actions.reference == "x:without_action=none"
    lists = read_variants([], ['self_rag:hard_constraints=[],["[Irrelevant]","[Utility:1]"]'])
    assert [spec.as_json()["settings"]["hard_constraints"] for spec in lists.specs] == [
        [],
        ["[Irrelevant]", "[Utility:1]"],
    ]


def test_the_ablations_of_crag() -> None:
    (sweep,) = (read := read_variants([], ["crag:passages=3:ablations"])).sweeps
    assert sweep.values[0] == "all steps"
    assert sweep.reference == names(read)[0] == "crag:passages=3"
    assert names(read)[1:] == [
        f"crag:passages=3,{change}"
        for change in (
            *(f"without_action={name}" for name in ("correct", "incorrect", "ambiguous")),
            *("refine=false", "rewrite=false", "select=false", "upper=-1,lower=-1"),
        )
    ]
    assert all(spec.passages == 3 for spec in read.specs)


@pytest.mark.parametrize(
    ("methods", "sweeps", "message"),
    [
        ([], ["self_rag"], "give METHOD:KNOB=V1,V2"),
        ([], ["self_rag:ablations"], "ablations are of crag or self_crag"),
        ([], ["selfrag:threshold=0,1"], "there is no method 'selfrag'"),
        ([], ["self_rag:threshold=0,2"], "threshold"),
        ([], ["self_rag:depht=1,2"], "no such knob; did you mean depth"),
        ([], ["x=self_rag:passages=1", "x=crag:passages=1"], "already another variant"),
        ([], [], "name a method"),
    ],
)
def test_mistakes(methods: list[str], sweeps: list[str], message: str) -> None:
    with pytest.raises(BadMethod, match=message):
        read_variants(methods, sweeps)


def test_a_variant_of_several_sweeps_is_asked_once_and_no_flood_is_compared() -> None:
    read = read_variants(
        ["rag", "self_rag", "self_rag:threshold=0.5"], [WEIGHTS, "self_rag:threshold=0.5,0.9"]
    )
    assert names(read).count("self_rag:threshold=0.5") == 1
    assert read.pairs == [
        ("rag", "self_rag"),
        ("rag", "self_rag:threshold=0.5"),
        ("self_rag", "self_rag:threshold=0.5"),
        *(("self_rag", f"self_rag:weight_issup={value}") for value in ("0", "1", "0.5")),
        ("self_rag", "self_rag:threshold=0.9"),
    ]


def test_the_estimate_counts_what_a_sweep_shares_once(tmp_path: Path) -> None:
    specs = read_variants([], [WEIGHTS, "self_rag:passages=1,5", "crag:ablations"]).specs
    alone = estimate_run(SIX, specs, tmp_path)
    shared = estimate_run(SIX, specs, tmp_path, shared=True)
    assert sum(spent.calls for spent in alone.values()) == 5 * 12 + 8 * 18
    assert sum(spent.calls for spent in shared.values()) == 12 + 18
    large = read_variants([], ["self_rag:passages=5"]).specs
    most = max(alone["self_rag:passages=5"], estimate_run(SIX, large, tmp_path)[large[0].name])
    assert sum(spent.tokens for name, spent in shared.items() if "self" in name) == most.tokens


def test_a_bound_counts_what_is_asked_and_the_same_run_goes_on(tmp_path: Path) -> None:
    read = read_variants([], [WEIGHTS])
    finished = run(tmp_path / "wide", read, limits=Limits(calls=12, concurrency=1))
    assert (finished.asked, finished.stopped) == (18, "")
    assert sum(o.model_calls for o in finished.outcomes) == 36
    stopped = run(tmp_path / "tight", read, limits=Limits(calls=4, concurrency=1))
    assert (stopped.asked, stopped.stopped) == (6, "max_calls")
    assert run(tmp_path / "tight", read).asked == 12


def test_the_summary_says_what_was_asked_and_the_page_has_a_plot_each(tmp_path: Path) -> None:
    read = read_variants(["rag"], [WEIGHTS, "crag:ablations", "self_rag:threshold=0.2,0.95"])
    finished = run(tmp_path, read)
    made = json.loads(json.dumps(summary(finished, ["match"], {}, read)))
    methods = made["methods"]
    weights = [method for name, method in methods.items() if "weight" in name]
    assert [method["model_calls"] for method in weights] == [12] * 3
    assert sum(m["asked_calls"] for m in methods.values() if "model_calls" in m) < sum(
        m["model_calls"] for m in methods.values()
    )
    # Above a threshold of 0.95 nothing is retrieved, and the answer is another call.
    assert sum(m["asked_calls"] for n, m in methods.items() if n.startswith("self_rag")) == 18
    assert [sweep["knob"] for sweep in made["sweeps"]] == ["weight_issup", "ablations", "threshold"]
    assert len(made["comparisons"]["match"]) == 2 + 7 + 1
    page = render_report(finished, made, "people")
    of_sweeps = page.split('<section id="sweeps"')[1].split("</section>")[0]
    assert of_sweeps.count("<svg") == 4  # of weights also the length of answers
    assert "calls were made" in page
    assert "style=" not in page


def plots(sweep: str, tmp_path: Path) -> list[list[str]]:
    """The texts of each plot."""
    read = read_variants([], [sweep])
    made = summary(run(tmp_path, read), ["match", "f1"], {}, read)
    shown = render_sweeps(made["sweeps"], made["methods"])
    found = ET.fromstring(f"<page>{shown}</page>").iter("{http://www.w3.org/2000/svg}svg")
    texts = ("".join(each.itertext()).split("\n") for each in found)
    return [[text.strip() for text in some if text.strip()] for some in texts]


def test_a_threshold_is_plotted_with_how_often_was_retrieved(tmp_path: Path) -> None:
    (drawn,) = plots("self_rag:threshold=0.2,0.95", tmp_path)
    assert {"threshold", "match", "f1", "share retrieved"} <= set(drawn)


def test_values_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    (drawn,) = plots("crag:without_action=none,correct,incorrect", tmp_path)
    assert {"none", "correct", "incorrect", "without_action"} <= set(drawn)
    assert {"share answered", "share refused", "share searched"} <= set(drawn)


def test_numbers_are_drawn_from_left_to_right(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def draw(lines: Any, *_: Any, **__: Any) -> str:
        drawn.append(lines)
        return "<i/>"

    monkeypatch.setattr("selfcorrect_rag.evaluation.sweeps.plot", draw)
    read = read_variants([], [WEIGHTS])
    figures = {
        spec.name: {
            "rows": 2,
            "words": float(place),
            "metrics": {"match": {"value": place / 4, "interval": [0.0, 1.0]}},
        }
        for place, spec in enumerate(read.specs)
    }
    render_sweeps([sweep._asdict() for sweep in read.sweeps], figures)
    (match,), (words,) = drawn
    assert (match.name, match.points) == ("match", [(0, 0.0), (0.5, 0.5), (1, 0.25)])
    assert match.ends == [(0.0, 1.0)] * 3
    assert words.points == [(0, 0), (0.5, 2), (1, 1)]


def test_without_matplotlib_the_page_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> str:
        raise MissingExtra("pip install 'selfcorrect-rag[evaluation]'")

    monkeypatch.setattr("selfcorrect_rag.evaluation.sweeps.plot", missing)
    read = read_variants([], [WEIGHTS])
    figures = {"rows": 1, "words": 1.0, "metrics": {"f1": {"value": 1.0, "interval": [1, 1]}}}
    shown = render_sweeps(
        [sweep._asdict() for sweep in read.sweeps], {spec.name: figures for spec in read.specs}
    )
    assert "No plots" in shown
    assert "selfcorrect-rag[evaluation]" in shown
