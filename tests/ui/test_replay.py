"""A replay with a run's own settings is the run; with others it is the run that they would make."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfcorrect_rag.demo import demo_index
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.serving.saved import json_object
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.ui.replay import CRAG_KNOBS, _choices, is_faithful, knobs_of, replay

QUESTIONS = (
    "Where was Harper Lee born?",
    "Who painted Guernica and where is it?",  # the nano generator: two segments, three beams
    "Who designed the Williamsburg Bridge?",
    "Thank you very much!",
)
ENGINES = ("reader", "transformers")
AMBIGUOUS = {"upper": 0.99, "lower": -0.999}
"""Refines and searches, so that a replay has both."""
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("self_rag", {}),
    ("self_rag", {"depth": 4, "mode": "always", "beam_width": 3, "passages": 4}),
    ("self_rag", {"form": "short", "hard_constraints": ("[Irrelevant]",)}),
    ("self_rag", {"options": ("yes", "no")}),
    ("self_rag", {"max_model_calls": 4, "mode": "always", "depth": 4}),
    ("crag", {}),
    ("crag", {**AMBIGUOUS, "passages": 5}),
    ("self_crag", {**AMBIGUOUS, "passages": 5}),
    ("self_crag", {"contexts": "all", "passages": 5}),
    ("instruct_rag", {}),
)
REFLECTS = [(engine, *run) for engine in ENGINES for run in RUNS if run[0].startswith("self")]
"""Runs whose candidates an engine writes and judges."""
WRITES = [("reader", *run) for run in RUNS if not run[0].startswith("self")]
"""Runs of which a replay only reads what the evaluator, the same for every engine, said."""


@pytest.fixture(scope="module")
def every(made_index: Path) -> Iterator[dict[str, Parts]]:
    """The parts of each engine, opened once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selfcorrect_rag.serving.parts.demo_index", lambda: demo_index(made_index))
        yield {engine: Parts(ServingConfig(engine=engine)) for engine in ENGINES}


@pytest.fixture(params=ENGINES)
def parts(every: dict[str, Parts], request: pytest.FixtureRequest) -> Parts:
    """Of one engine after the other."""
    return every[request.param]


@pytest.fixture
def reader(every: dict[str, Parts]) -> Parts:
    return every["reader"]


MADE: dict[tuple[str, ...], dict[str, Any]] = {}
"""Runs are made once: a replay leaves the run that it is given as it is."""


def run_of(parts: Parts, graph: str, question: str, chosen: Any) -> dict[str, Any]:
    key = (str(parts.config.engine), graph, question, chosen.model_dump_json())
    if key not in MADE:
        MADE[key] = parts.graph(graph, chosen).invoke({"question": question})
    return MADE[key]


def as_json(result: Any) -> Any:
    return json.loads(json.dumps(result, default=json_object))


@pytest.mark.parametrize(("engine", "graph", "knobs"), [*REFLECTS, *WRITES])
def test_with_its_own_settings_it_is_the_run(
    every: dict[str, Parts], engine: str, graph: str, knobs: dict[str, Any]
) -> None:
    parts = every[engine]
    chosen = parts.settings(graph, GRAPHS[graph](**knobs))
    for question in QUESTIONS:
        result = run_of(parts, graph, question, chosen)
        for given_as in (result, as_json({k: v for k, v in result.items() if k != "messages"})):
            again = replay(given_as, chosen)
            assert again.unknown == []
            assert [*again.origins] == [*range(len(given_as.get("candidates") or []))]
            assert _choices(again.result) == _choices(given_as)
            assert is_faithful(given_as, chosen)
            for key in ("cited_answer", "knowledge", "judged", "constraints_met", "options"):
                assert as_json(again.result.get(key)) == as_json(given_as.get(key)), key


def test_several_beams_are_replayed(every: dict[str, Parts]) -> None:
    """Else the test above would show nothing about them."""
    parts = every["transformers"]
    chosen = parts.settings("self_rag", GRAPHS["self_rag"](**RUNS[1][1]))
    result = run_of(parts, "self_rag", QUESTIONS[1], chosen)
    assert max(c["beam"] for c in result["candidates"]) >= 1
    assert max(c["depth"] for c in result["candidates"]) >= 1


WEIGHTS = st.sampled_from([0.0, 0.3, 1.0, 2.5])
SELF_RAG = st.fixed_dictionaries(
    {},
    optional={
        "weight_isrel": WEIGHTS,
        "weight_issup": WEIGHTS,
        "weight_isuse": WEIGHTS,
        "weight_sequence": WEIGHTS,
        "path_rule": st.sampled_from(["mean", "sum", "product"]),
        "beam_width": st.integers(1, 4),
        "threshold": st.sampled_from([0.0, 0.2, 0.9, 1.0]),
        "hard_constraints": st.sampled_from(
            [(), ("[Irrelevant]",), ("[Utility:5]",), ("[Fully supported]", "[Relevant]")]
        ),
    },
)
CRAG = st.fixed_dictionaries(
    {},
    optional={
        "upper": st.sampled_from([-0.5, 0.5, 0.99, 1.0]),
        "lower": st.sampled_from([-1.0, -0.9, -0.6]),
        "strip_threshold": st.sampled_from([-1.0, -0.5, 0.5, 0.9]),
        "strips": st.integers(1, 8),
    },
)
TRIED = settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(parts: Parts, graph: str, question: str, own: dict[str, Any], other: Any) -> bool:
    """Whether the replay of a run claims to know all; then it is what the graph gives."""
    first = parts.settings(graph, GRAPHS[graph](**own))
    second = parts.settings(graph, GRAPHS[graph](**{**own, **other}))
    run = run_of(parts, graph, question, first)
    replayed = replay(run, second)
    kept = [run["candidates"][origin]["text"] for origin in replayed.origins]
    assert [c["text"] for c in replayed.result.get("candidates") or []] == kept
    if replayed.unknown:
        return False
    real = run_of(parts, graph, question, second)
    for key in ("answer", "cited_answer", "action", "judged", "constraints_met"):
        assert replayed.result.get(key) == real.get(key), key
    # Another batch of the model: its numbers differ in the seventh digit.
    assert replayed.result.get("score") == pytest.approx(real.get("score"), abs=1e-4)
    assert as_json(replayed.result.get("knowledge")) == as_json(real.get("knowledge"))
    cited = [[c["passage"] for c in r["citations"]] for r in (replayed.result, real)]
    assert cited[0] == cited[1]
    return True


@TRIED
@given(other=SELF_RAG, question=st.sampled_from(QUESTIONS))
def test_what_it_knows_of_self_rag_a_real_run_gives(
    parts: Parts, other: dict[str, Any], question: str
) -> None:
    check(parts, "self_rag", question, {"depth": 2, "passages": 3}, other)


@TRIED
@given(other=CRAG, question=st.sampled_from(QUESTIONS))
def test_what_it_knows_of_crag_a_real_run_gives(
    reader: Parts, other: dict[str, Any], question: str
) -> None:
    own = {**AMBIGUOUS, "passages": 4}
    check(reader, "crag", question, own, other)


@TRIED
@given(crag=CRAG, self_rag=SELF_RAG, question=st.sampled_from(QUESTIONS))
def test_what_it_knows_of_self_crag_a_real_run_gives(
    parts: Parts, crag: dict[str, Any], self_rag: dict[str, Any], question: str
) -> None:
    own = {**AMBIGUOUS, "passages": 3, "depth": 2}
    check(parts, "self_crag", question, own, {**crag, **self_rag})


def test_it_knows_something(reader: Parts) -> None:
    """A replay that gave up at once would pass all of the above."""
    knows = [
        check(reader, graph, QUESTIONS[0], own, other)
        for graph, own, other in (
            ("self_rag", {}, {"weight_isrel": 0.0, "weight_isuse": 0.0}),
            ("self_rag", {}, {"hard_constraints": ("[Utility:5]",)}),
            ("crag", {**AMBIGUOUS, "passages": 5}, {"lower": -0.5}),
            ("self_crag", {**AMBIGUOUS, "passages": 5}, {"strips": 3, "lower": -0.5}),
        )
    ]
    assert all(knows), knows


def self_rag_run(reader: Parts, **knobs: Any) -> tuple[dict[str, Any], Any]:
    chosen = reader.settings("self_rag", GRAPHS["self_rag"](**knobs))
    return run_of(reader, "self_rag", "Who discovered penicillin?", chosen), chosen


def tried(chosen: Any, **knobs: Any) -> Any:
    return type(chosen)(**{**chosen.model_dump(), **knobs})


def test_another_decision_is_told(reader: Parts) -> None:
    result, chosen = self_rag_run(reader, mode="adaptive")
    again = replay(result, tried(chosen, threshold=1.0))
    assert not again.result["retrieval"]["retrieve"]
    assert again.unknown == [
        "It would not have retrieved: what it would have written without is not known."
    ]
    assert again.stale


def test_a_constraint_takes_the_winner_away(reader: Parts) -> None:
    result, chosen = self_rag_run(reader)
    winner = next(c for c in result["candidates"] if c["chosen"])
    token = next(p["text"] for p in winner["pieces"] if "Utility" in p["text"])
    again = replay(result, tried(chosen, hard_constraints=(token,))).result
    assert again["answer"] != result["answer"]
    dropped = [c for c in again["candidates"] if c["text"] == winner["text"]]
    assert {c["dropped"] for c in dropped} == {f"hard constraint {token}"}


def test_beginnings_that_the_run_dropped_are_told(every: dict[str, Parts]) -> None:
    parts = every["transformers"]
    knobs = {"depth": 3, "mode": "always", "beam_width": 1}
    chosen = parts.settings("self_rag", GRAPHS["self_rag"](**knobs))
    told = []
    for question in QUESTIONS:
        result = run_of(parts, "self_rag", question, chosen)
        if any(c["depth"] for c in result["candidates"]):
            told += replay(result, tried(chosen, beam_width=8)).unknown
    assert any("would be continued that the run dropped" in each for each in told)


def test_candidates_are_told_apart_where_some_are_left_out(reader: Parts) -> None:
    kind = GRAPHS["self_crag"]
    chosen = reader.settings("self_crag", kind(**AMBIGUOUS, passages=5, strip_threshold=-1.0))
    run = run_of(reader, "self_crag", QUESTIONS[2], chosen)
    again = replay(run, tried(chosen, strip_threshold=0.5))
    left = [c["text"] for c in again.result["candidates"]]
    assert 0 < len(left) < len(run["candidates"])
    assert left == [run["candidates"][origin]["text"] for origin in again.origins]
    assert [*again.origins] != [*range(len(left))]  # the first of them is gone
    assert any("they are left out" in each for each in again.unknown)


@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        ({"upper": 0.2, "lower": 0.1}, {"upper": 1.0, "lower": -1.0}, "searched the web"),
        ({"upper": 1.0, "lower": 1.0}, {"upper": 1.0, "lower": -1.0}, "cut the passages"),
        ({"upper": 0.2, "strip_threshold": -1.0}, {"strips": 1}, "other knowledge"),
    ],
)
def test_what_only_a_run_of_crag_can_tell(
    reader: Parts, own: dict[str, Any], other: dict[str, Any], told: str
) -> None:
    chosen = reader.settings("crag", GRAPHS["crag"](**own))
    result = run_of(reader, "crag", "Who discovered penicillin?", chosen)
    again = replay(result, tried(chosen, **other))
    assert any(told in each for each in again.unknown), again.unknown


def test_knobs_are_settings() -> None:
    for kind in GRAPHS.values():
        assert set(knobs_of(kind())) <= set(kind.model_fields)
    assert knobs_of(GRAPHS["instruct_rag"]()) == ()
    assert set(CRAG_KNOBS) < set(knobs_of(GRAPHS["self_crag"]()))


def test_a_result_that_was_changed_is_not_faithful(reader: Parts) -> None:
    result, chosen = self_rag_run(reader)
    for at, other in itertools.product(range(len(result["candidates"])), [True, False]):
        candidates = [dict(c) for c in result["candidates"]]
        if candidates[at]["chosen"] != other:
            candidates[at]["chosen"] = other
            assert not is_faithful({**result, "candidates": candidates}, chosen)
