"""Sums of scores in words, and the steps that a run left out."""

from typing import Any

import pytest

from selfcorrect_rag import render_run
from selfcorrect_rag.render.reasons import left_out, path_sum, score_sum
from tests.render.conftest import Run
from tests.render.pages import Page


def test_a_score_is_said_as_it_was_summed(runs: dict[str, Run]) -> None:
    for candidate in runs["self_rag"][0]["candidates"]:
        total = sum(term["weight"] * term["value"] for term in candidate["terms"])
        assert total == pytest.approx(candidate["score"])
        assert [term["name"] for term in candidate["terms"]] == ["p(y)", "ISREL", "ISSUP", "ISUSE"]
        (said, end) = score_sum(candidate).split(" = ")
        assert said.startswith("1 \u00d7 p(y) ")
        assert "0.5 \u00d7 ISUSE" in said
        assert float(end.replace("\u2212", "-")) == pytest.approx(candidate["score"], abs=0.006)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("mean", "(3.48 + \u22121.10) / 2 = 1.00"),
        ("sum", "3.48 + \u22121.10 = 1.00"),
        ("product", "3.48 \u00d7 \u22121.10 = 1.00"),
    ],
)
def test_a_path_says_its_own(rule: str, said: str) -> None:
    path: dict[str, Any] = {"path_rule": rule, "path_score": 1.0}
    assert path_sum({**path, "path_terms": [3.481, -1.1]}) == said
    assert path_sum({**path, "path_terms": [1.0]}) == ""


def route(*steps: str) -> list[dict[str, Any]]:
    return [{"step": step, "failed": None} for step in steps]


NEVER = {"retrieve": False, "probability": 0.1, "threshold": 0.2, "mode": "adaptive"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            {"route": route("decide_retrieval", "write_answer"), "retrieval": NEVER},
            ["No retrieval: P(retrieve) 0.100 <= threshold 0.2."],
        ),
        (
            {"route": route("retrieve", "grade_documents"), "action": "correct", "grades": []},
            ["No web search: the action is Correct (nothing was retrieved)."],
        ),
        (
            {"route": route("retrieve"), "action": "incorrect", "grades": [{"score": -1}]},
            ["No strips of the passages: the action is Incorrect (best score -1.000)."],
        ),
        (
            {"route": route("write_rationale"), "rationale": "", "mode": "no_retrieval"},
            ["No retrieval: mode no_retrieval."],
        ),
        ({"route": route("retrieve"), "stopped": "max_tokens"}, ["Cut short: max_tokens."]),
        ({"route": route("retrieve"), "action": "ambiguous"}, []),
        ({"action": "correct"}, []),
    ],
)
def test_what_was_not_done_is_said(result: dict[str, Any], said: list[str]) -> None:
    assert left_out(result) == said


def test_the_page_says_sums_and_what_was_left_out(runs: dict[str, Run]) -> None:
    for name, (result, _) in runs.items():
        text = Page(render_run(result)).text
        for reason in left_out(result):
            assert reason in text
        for candidate in result.get("candidates", []):
            assert score_sum(candidate) in text
            assert path_sum(candidate) in text
        assert ("What the scores mean" in text) == (name in ("self_rag", "self_crag"))
