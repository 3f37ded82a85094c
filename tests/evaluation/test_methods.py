"""Methods are read from text, opened over one retriever and model, and answer or fail alone."""

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.evaluation.methods import (
    KINDS,
    BadMethod,
    open_method,
    read_spec,
    read_specs,
    read_sweep,
)
from selfcorrect_rag.evaluation.tasks import Outcome, Question
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS
from selfcorrect_rag.settings import Settings
from tests.evaluation.scripted_parts import ScriptedParts
from tests.scripted import ScriptedLLM

QUESTION = Question("q", "Who was it?", ("Lind",))


def answer(spec: str, question: Question = QUESTION, parts: ScriptedParts | None = None) -> Outcome:
    method = open_method(read_spec(spec), parts or ScriptedParts())
    return asyncio.run(method.answer(question))


def test_a_spec_has_a_name_a_kind_and_settings() -> None:
    spec = read_spec("strict=crag:upper=0.9,lower=none,refine=false")
    assert (spec.name, spec.kind) == ("strict", "crag")
    settings: Any = spec.settings
    assert (settings.upper, settings.lower, settings.refine) == (0.9, None, False)
    assert read_spec("crag:upper=0.9").name == "crag:upper=0.9"
    assert read_spec("rag:passages=3").as_json()["settings"]["passages"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selfrag", "got 'selfrag'; methods are no_retrieval"),
        ("", "method must be METHOD"),
        ("crag:upper", "give KEY=VALUE"),
        ("rag:upper=1", "give KEY=VALUE with one of"),
        ("crag:upper=7", "upper"),
        ("crag:approve_search=true", "give KEY=VALUE"),  # it would wait for a person
    ],
)
def test_what_is_not_a_spec(text: str, message: str) -> None:
    with pytest.raises(SelfCorrectError, match=message):
        read_spec(text)


def test_a_sweep_of_weights_asks_its_method_alone() -> None:
    sweep, specs = read_sweep("self_rag:depth=2:weight_issup=0,0.5")
    assert sweep.method == specs[0].name == "self_rag:depth=2"
    assert sweep.variants == [f"self_rag:depth=2,weight_issup={v}" for v in ("0", "0.5")]
    assert [spec.reweighs for spec in specs] == ["", "self_rag:depth=2", "self_rag:depth=2"]
    assert [spec.reweighs for spec in read_sweep("self_rag:threshold=0,1")[1]] == [""] * 3
    for bad in ("crag", "crag:", "ablations", "crag:upper"):
        with pytest.raises(BadMethod):
            read_sweep(bad)


def test_a_variant_of_several_sweeps_is_asked_once() -> None:
    _, swept = read_sweep("self_rag:threshold=0.1,0.2")
    assert [spec.name for spec in read_specs(["rag", "self_rag", "rag"], [swept])] == [
        *("rag", "self_rag"),
        *("self_rag:threshold=0.1", "self_rag:threshold=0.2"),
    ]
    assert read_specs([], [swept]) == swept
    with pytest.raises(BadMethod, match="x is the name of two variants"):
        read_specs(["x=rag", "x=crag"])
    with pytest.raises(BadMethod, match="at least one method"):
        read_specs([])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers(kind: str) -> None:
    parts = ScriptedParts()
    mode = ":mode=always" if kind in ("self_rag", "self_crag") else ""
    outcome = answer(f"{kind}{mode}", parts=parts)
    assert outcome.error == ""
    assert outcome.retrieved == bool(parts.queries) == (kind != "no_retrieval")
    assert outcome.model_calls > 0
    if kind in ("self_rag", "crag", "self_crag"):
        assert "Lind" in outcome.answer
        assert bool(outcome.candidates) == (kind != "crag")
        assert bool(outcome.action) == (kind != "self_rag")


def test_settings_of_the_parts_hold_for_all_methods_that_set_nothing_themselves() -> None:
    class Few(ScriptedParts):
        def settings(self, name: str, **given: Any) -> Settings:
            return super().settings(name, **{"passages": 1, **given})

    for kind in ("rag", "crag", "instruct_rag"):
        outcomes = [answer(spec, parts=Few()) for spec in (kind, f"{kind}:passages=2")]
        read = [outcome.grades or outcome.passages for outcome in outcomes]
        assert [len(passages) for passages in read] == [1, 2]


def test_passages_that_come_along_are_read_in_place_of_retrieval() -> None:
    parts = ScriptedParts()
    given = tuple(Document(f"It was {n}.", metadata={"title": str(n)}) for n in range(4))
    outcome = answer("rag:passages=3", QUESTION._replace(passages=given), parts)
    assert [passage["title"] for passage in outcome.passages] == ["0", "1", "2"]
    assert parts.queries == []


def test_the_task_gives_instruction_and_options() -> None:
    parts = ScriptedParts()
    choices = {"true": "true", "false": "false"}
    question = Question("q", "It was Lind.", ("true",), task="pubhealth", choices=choices)
    answer("self_rag:mode=always", question, parts)
    assert TASK_INSTRUCTIONS["pubhealth"] in parts.llm.calls[-1][0]
    parts = ScriptedParts()
    answer("self_rag:mode=always,instruction=Be brief.", question, parts)
    assert "Be brief." in parts.llm.calls[-1][0]


def test_a_method_that_fails_says_why() -> None:
    def fail(prompt: str) -> Any:
        raise ConnectionError("connection refused")

    parts = ScriptedParts()
    parts.llm = ScriptedLLM(write=fail)
    failed = answer("crag", parts=parts)
    assert (failed.answer, failed.model_calls) == ("", 2)
    assert "connection refused" in failed.error
