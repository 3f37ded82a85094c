"""The report of a run that ended before keeps all that it had, and has what judges said since."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.entailment import KeptEntailment, Pair
from selfcorrect_rag.evaluation.judging import judge_run
from selfcorrect_rag.evaluation.report import write_report, write_report_again
from selfcorrect_rag.evaluation.run import Finished, run_methods
from selfcorrect_rag.evaluation.sweeps import read_variants
from tests.evaluation.scripted_parts import ScriptedParts, opened
from tests.evaluation.test_runs import SIX


class Yes:
    """An entailment model."""

    identity = "yes"

    def __call__(self, pairs: Sequence[Pair]) -> Iterator[bool]:
        return iter([True] * len(pairs))


def ended(out: Path) -> tuple[Finished, dict[str, Any]]:
    """A run with a sweep and judged citations, and its summary."""
    variants = read_variants(["rag_first"], ["crag:strips=1,2"])
    names = ("rag_first", "crag:strips=1", "crag:strips=2")
    assert [spec.name for spec in variants.specs] == list(names)
    parts = ScriptedParts()
    finished = run_methods(SIX, [opened(name, parts) for name in names], out)
    entails = KeptEntailment(Yes(), out)
    metrics = ["match", "citation_recall"]
    write_report(out, finished, metrics, {"task": "t"}, variants, entails)
    return finished, read_summary(out)


def read_summary(out: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((out / "summary.json").read_text("utf-8"))
    return made


def test_judging_adds_metrics_and_keeps_sweeps_pairs_and_citations(tmp_path: Path) -> None:
    finished, first = ended(tmp_path)
    assert first["methods"]["rag_first"]["metrics"]["citation_recall"]["value"] == 1
    model = FakeListChatModel(responses=["Yes."])
    judge_run(tmp_path, finished, ["correctness"], model, "m:1")
    write_report_again(tmp_path)
    again = read_summary(tmp_path)
    assert again["about"] == first["about"]
    assert again["sweeps"] == first["sweeps"]
    judged = again["comparisons"].pop("judged_correctness")
    assert again["comparisons"] == first["comparisons"]
    pairs = [(pair["first"], pair["second"]) for pair in judged]
    assert pairs == [("crag:strips=1", "crag:strips=2")]
    for name, method in again["methods"].items():
        assert method["metrics"].pop("judged_correctness")["value"] == 1
        assert method == first["methods"][name]


def test_citations_that_no_model_has_judged_are_not_guessed(tmp_path: Path) -> None:
    ended(tmp_path)
    (tmp_path / "entailment.jsonl").unlink()
    with pytest.raises(BadRun, match="run eval again first"):
        write_report_again(tmp_path)
