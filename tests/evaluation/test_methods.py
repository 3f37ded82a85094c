"""Methods are read from text, opened over one retriever and model, and answer or fail alone."""

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.evaluation.evaluate import read_variants
from selfcorrect_rag.evaluation.methods import (
    KINDS,
    BadMethod,
    Method,
    find_graph,
    open_method,
    read_spec,
    read_specs,
    read_sweep,
)
from selfcorrect_rag.evaluation.outcomes import Outcome
from selfcorrect_rag.evaluation.tasks import Question
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS
from tests.evaluation.own_graphs import ScriptedParts

OWN = "tests.evaluation.own_graphs"
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
    assert read_spec("rag", 7).as_json()["settings"]["passages"] == 7
    assert read_spec("rag:passages=3", 7).as_json()["settings"]["passages"] == 3
    assert read_spec("rag_first", 7).as_json()["settings"]["passages"] == 1
    assert read_spec("mine=a.b:graph") == ("mine", "a.b:graph", None, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selfrag", "unknown method 'selfrag'; methods are no_retrieval"),
        ("", "method must be NAME"),
        ("crag:upper", "give KNOB=VALUE"),
        ("rag:upper=1", "give KNOB=VALUE with one of"),
        ("rag_first:passages=2", "give KNOB=VALUE"),
        ("crag:upper=7", "upper"),
        ("crag:approve_search=true", "waits for a person"),
    ],
)
def test_what_is_not_a_spec(text: str, message: str) -> None:
    with pytest.raises(BadMethod, match=message):
        read_spec(text)


def test_names_are_unique() -> None:
    with pytest.raises(BadMethod, match="two methods are called rag: rename"):
        read_specs(["rag", "rag"])
    with pytest.raises(BadMethod, match="at least one method"):
        read_specs([])


def test_a_sweep_of_weights_asks_its_method_alone() -> None:
    sweep, specs = read_sweep("self_rag:depth=2:weight_issup=0,0.5")
    assert sweep.method == specs[0].name == "self_rag:depth=2"
    assert sweep.variants == [f"self_rag:depth=2,weight_issup={v}" for v in ("0", "0.5")]
    assert [spec.reweighs for spec in specs] == ["", "self_rag:depth=2", "self_rag:depth=2"]
    assert [spec.reweighs for spec in read_sweep("self_rag:threshold=0,1")[1]] == [""] * 3


def test_ablations_are_those_of_the_paper() -> None:
    sweep, specs = read_sweep("crag:ablations")
    assert (sweep.method, sweep.knob, len(sweep.variants)) == ("crag", "ablations", 7)
    assert specs[-1].name == "crag:upper=-1,lower=-1"
    for bad in ("self_rag:ablations", "crag", "crag:", "ablations"):
        with pytest.raises(BadMethod):
            read_sweep(bad)


def test_a_variant_of_several_sweeps_is_asked_once() -> None:
    specs, sweeps = read_variants(["rag", "self_rag"], ["self_rag:threshold=0.1,0.2"])
    assert [spec.name for spec in specs] == [
        *("rag", "self_rag"),
        *("self_rag:threshold=0.1", "self_rag:threshold=0.2"),
    ]
    assert len(sweeps) == 1
    assert [s.name for s in read_variants([], ["rag:passages=1"])[0]] == ["rag", "rag:passages=1"]
    with pytest.raises(BadMethod, match="already another variant"):
        read_variants(["x=rag"], ["x=crag:passages=1,2"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers(kind: str) -> None:
    parts = ScriptedParts()
    outcome = answer(
        f"{kind}:mode=always" if kind in ("self_rag", "self_crag") else kind, parts=parts
    )
    assert outcome.error == ""
    assert outcome.retrieved == bool(parts.queries) == (kind != "no_retrieval")
    assert outcome.model_calls > 0
    if kind in ("self_rag", "crag", "self_crag"):
        assert "Lind" in outcome.answer
        assert bool(outcome.candidates) == (kind != "crag")
        assert bool(outcome.action) == (kind != "self_rag")


def test_passages_that_come_along_are_read_in_place_of_retrieval() -> None:
    parts = ScriptedParts()
    given = tuple(Document(f"It was {n}.", metadata={"title": str(n)}) for n in range(4))
    outcome = answer("rag:passages=3", QUESTION._replace(passages=given), parts)
    assert [passage["title"] for passage in outcome.passages] == ["0", "1", "2"]
    assert parts.queries == []


def test_the_task_gives_instruction_and_options() -> None:
    parts = ScriptedParts()
    question = Question(
        "q", "It was Lind.", ("true",), task="pubhealth", choices={"true": "true", "false": "false"}
    )
    answer("self_rag:mode=always", question, parts)
    assert TASK_INSTRUCTIONS["pubhealth"] in parts.llm.calls[-1][0]
    parts = ScriptedParts()
    answer("self_rag:mode=always,instruction=Be brief.", question, parts)
    assert "Be brief." in parts.llm.calls[-1][0]


def test_a_graph_of_the_users_takes_a_question_or_messages() -> None:
    chat = answer(f"{OWN}:chat")
    assert (chat.answer, chat.model_calls, chat.prompt_tokens) == ("Lind, I think.", 1, None)
    documents = QUESTION._replace(passages=(Document("x"), Document("y")))
    reads = answer(f"{OWN}:reads", documents)
    assert (reads.answer, reads.model_calls, reads.prompt_tokens) == ("WHO WAS IT? of 2", 0, 0)
    failed = answer(f"{OWN}:reads", Question("f", "fail"))
    assert (failed.answer, failed.error) == ("", "ConnectionError: connection refused")


def test_what_is_not_a_graph() -> None:
    with pytest.raises(BadMethod, match="must be a compiled graph, got int"):
        find_graph(f"{OWN}:NUMBER")
    with pytest.raises(BadMethod, match="cannot open nowhere:x"):
        find_graph("nowhere:x")

    class Deaf:
        @staticmethod
        def get_input_jsonschema() -> dict[str, Any]:
            return {"properties": {"topic": {}}}

    with pytest.raises(BadMethod, match="must take question or messages"):
        Method(read_spec("a:b"), Deaf())  # type: ignore[arg-type]
