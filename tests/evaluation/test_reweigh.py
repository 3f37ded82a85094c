"""Other weights choose among what was written, and ask no model."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from selfcorrect_rag.evaluation.methods import open_method, read_spec, read_sweep
from selfcorrect_rag.evaluation.reweigh import reweigh, reweigh_run
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.tasks import Outcome, Question
from selfcorrect_rag.settings import SelfRAGSettings
from tests.evaluation.scripted_parts import ScriptedParts
from tests.nodes import parts

QUESTION = Question("q", "Who?", ("Lind",))


def candidate(text: str, p: float = 0.5, **fields: Any) -> Any:
    """One that is neither supported nor useful, unless ``fields`` say so."""
    return parts.candidate(text, sequence_probability=p, **{"ISSUP": 0.0, "ISUSE": 0.0, **fields})


def chosen(candidates: list[Any], question: Question = QUESTION, **settings: Any) -> str | None:
    outcome = Outcome("q", "self_rag", "recorded", candidates=tuple(candidates), model_calls=3)
    found = reweigh(question, outcome, SelfRAGSettings(**settings))
    assert found is None or found.model_calls == 0
    return None if found is None else found.answer


def test_weights_decide_between_candidates() -> None:
    pair = [candidate("likely", p=0.9, ISSUP=0.2), candidate("supported", p=0.1, ISSUP=0.9)]
    assert chosen(pair, weight_issup=0.0) == "likely"
    assert chosen(pair, weight_issup=1.0) == "likely"  # 0.9 + 0.2 against 0.1 + 0.9
    assert chosen(pair, weight_issup=2.0) == "supported"
    pair[1]["dropped"] = "[No support / Contradictory]"
    assert chosen(pair, weight_issup=2.0) == "likely"


def test_closed_sets_sum_scores_by_option() -> None:
    question = Question("q", "So?", ("true",), choices={"true": "true", "false": "false"})
    twice = [candidate("true", p=p) for p in (0.3, 0.4)]
    three = [*twice, candidate("false", p=0.6, ISUSE=1.0)]
    assert chosen(three, question) == "true"  # 2.7 against 2.1
    assert chosen(three, question, weight_isuse=2.0) == "false"
    said = candidate("so it is", p=0.9) | {"option": "true"}  # as a chat model read it
    assert chosen([said, candidate("false")], question) == "true"
    for each in three:  # as the graph does it: without sums, the best text
        each["dropped"] = "pruned by ISREL"
    assert chosen(three, question) == "false"


def test_a_beam_that_was_not_continued_is_not_guessed() -> None:
    tree = [
        candidate("first", next="retrieve", ISSUP=0.9),
        candidate("second", next="retrieve", p=0.9),
        candidate("end", parent=0, ISSUP=0.9),
    ]
    tree[0]["chosen"] = tree[2]["chosen"] = True
    assert chosen(tree, beam_width=1) == "first end"
    assert chosen(tree, beam_width=1, weight_issup=0.0) is None  # would have gone on with second
    assert chosen([candidate("end"), *tree[1:2]], beam_width=2, weight_isuse=0) is None
    assert chosen([candidate("by a limit", next="retrieve") | {"chosen": True}]) == "by a limit"


def test_of_all_paths_that_were_written_the_best_wins() -> None:
    chance = Random(3)
    for _ in range(50):
        p = [chance.random() for _ in range(6)]
        tree = [candidate(str(i), next="retrieve", p=p[i]) for i in (0, 1)]
        tree += [candidate(str(i), parent=i % 2, p=p[i]) for i in (2, 3, 4, 5)]
        best = max((2, 3, 4, 5), key=lambda i, p=p: p[i] + p[i % 2])  # type: ignore[misc]
        assert chosen(tree, beam_width=2) == f"{best % 2} {best}"


@pytest.mark.parametrize("spec", ["self_rag:mode=always", "self_rag:mode=always,form=short"])
def test_with_the_runs_own_weights_the_answer_is_the_runs(spec: str) -> None:
    read = read_spec(spec)
    outcome = asyncio.run(open_method(read, ScriptedParts()).answer(QUESTION))
    assert isinstance(read.settings, SelfRAGSettings)
    again = reweigh(QUESTION, outcome, read.settings)
    assert outcome.candidates
    free = {"model_calls": 0, "prompt_tokens": 0, "generated_tokens": 0, "seconds": 0}
    assert again == outcome._replace(**free, score=None)
    refusing = read.settings.model_copy(update={"score_above": 1.0})
    assert reweigh(QUESTION, outcome, refusing) is None  # of other weights' scores
    failed = Outcome("q", "self_rag", "", error="down")
    assert reweigh(QUESTION, failed, read.settings) == failed


def test_a_sweep_of_weights_adds_methods_without_calls(tmp_path: Path) -> None:
    parts = ScriptedParts()
    sweep, specs = read_sweep("self_rag:mode=always:weight_issup=0,1,2")
    run = run_methods([QUESTION], [open_method(specs[0], parts)], tmp_path)
    calls = len(parts.llm.calls)
    swept = reweigh_run(run, specs)
    assert swept.methods == [sweep.method, *sweep.variants]
    assert len(parts.llm.calls) == calls
    assert [o.answer for o in swept.of(sweep.variants[2])] == ["It was Lind."]
    assert [o.answer for o in swept.of(sweep.variants[0])] == ["It was Berg."]
