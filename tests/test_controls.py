"""Every knob in a graph's context schema: its control, its bounds, its meaning, its nodes."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
from langgraph.config import get_config
from langgraph.constants import START

from selfcorrect_rag import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
    create_crag,
    create_instruct_rag,
    create_self_crag,
    create_self_rag,
)
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.instruct_runs import DEMONSTRATIONS
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, echo, segment

READ: dict[str, set[str]] = defaultdict(set)
"""Knob to the nodes that read it."""


def recording(kind: type[Any], **knobs: Any) -> Any:
    """Settings that note which node reads which knob."""

    class Recording(kind):
        def __getattribute__(self, name: str) -> Any:
            if name in kind.model_fields:
                with suppress(RuntimeError):  # no node is running
                    node = get_config()["metadata"]["langgraph_node"]
                    if node != START:  # which is no node to an editor
                        READ[name].add(node)
            return super().__getattribute__(name)

        def merged(self, context: object) -> Any:
            return self

    return Recording(**knobs)


def llm() -> ScriptedReflectionLLM:
    going = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}

    def write(prompt: str) -> Any:
        if prompt.count("<paragraph>") > 1:
            return segment("yes", RELEVANT, FULL, USEFUL)
        return segment("yes", RELEVANT, FULL, next=going)

    return ScriptedReflectionLLM(write=write)


def find(query: str) -> list[Any]:
    return [document("Vague"), document("Noise")]


BUILDS = {
    SelfRAGSettings: lambda s: create_self_rag(llm(), find, settings=s),
    CRAGSettings: lambda s: create_crag(
        echo(), find, WordEvaluator(), PagesWebSearch(), settings=s
    ),
    SelfCRAGSettings: lambda s: create_self_crag(
        llm(), find, WordEvaluator(), PagesWebSearch(), settings=s
    ),
    InstructRAGSettings: lambda s: create_instruct_rag(echo(), find, DEMONSTRATIONS, settings=s),
}


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
def test_a_knob_names_the_nodes_that_read_it(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    READ.clear()
    monkeypatch.setattr(kind, "of", lambda given: given)  # which would make plain settings of them
    graph = BUILDS[kind](recording(kind))
    graph.invoke({"question": "Who wrote Emma?"})
    if "options" in kind.model_fields:
        BUILDS[kind](recording(kind, options=("yes", "no"))).invoke({"question": "Who?"})
    knobs = graph.get_context_jsonschema()["properties"]
    nodes = set(graph.get_graph().nodes)
    # Limits name none: whatever asks a model reads them.
    declared = {name: set(knob.get("langgraph_nodes", nodes)) for name, knob in knobs.items()}
    assert all(names <= nodes for names in declared.values())
    assert {(n, node) for n in READ for node in READ[n] - declared[n]} == set()
    unread = set(knobs) - set(READ)
    if kind is InstructRAGSettings:
        unread -= {"max_model_calls"}  # its one call is the answer, which is always written
    assert not unread, f"nothing reads {unread}"


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
def test_every_knob_has_its_control(kind: type[Any]) -> None:
    graph = BUILDS[kind](kind())
    knobs = graph.get_context_jsonschema()["properties"]
    assert set(knobs) == set(kind.model_fields)
    for name, knob in knobs.items():
        field, control = kind.model_fields[name], knob["x_oap_ui_config"]
        assert control["description"] == field.description
        bounds = {type(m).__name__: m for m in field.metadata}
        assert control.get("min") == (bounds["Ge"].ge if "Ge" in bounds else None)
        assert control.get("max") == (bounds["Le"].le if "Le" in bounds else None)
        if control["type"] == "select":
            kind.model_validate({name: control["options"][-1]["value"]})


def test_controls_by_kind() -> None:
    knobs = SelfCRAGSettings.model_json_schema()["properties"]
    controls = {name: knob["x_oap_ui_config"] for name, knob in knobs.items()}
    assert controls["threshold"]["type"] == "slider"
    assert controls["threshold"]["step"] == 0.01
    assert controls["beam_width"]["step"] == 1
    assert controls["approve_search"] == {
        "type": "boolean",
        "default": False,
        "description": CRAGSettings.model_fields["approve_search"].description,
    }
    assert [option["value"] for option in controls["contexts"]["options"]] == ["action", "all"]
    sliders = [c for c in controls.values() if c["type"] == "slider"]
    assert all(c["max"] - c["min"] <= 100 for c in sliders)
    for wide in ("max_tokens", "max_model_calls", "document_characters", "scored_strips"):
        assert controls[wide]["type"] == "number"
    assert controls["hard_constraints"]["type"] == "json"
    assert controls["instruction"]["type"] == "textarea"


def test_hard_constraints_are_a_choice_of_tokens() -> None:
    knob = SelfRAGSettings.model_json_schema()["properties"]["hard_constraints"]
    choices = knob["items"]["enum"]
    assert "[No support / Contradictory]" in choices
    assert "[Retrieval]" not in choices, "it judges nothing"
    assert knob["uniqueItems"]
    for token in choices:
        SelfRAGSettings(hard_constraints=(token,))


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
def test_every_input_is_described(kind: type[Any]) -> None:
    fields = BUILDS[kind](kind()).get_input_jsonschema()["properties"]
    assert set(fields) == {"question", "messages", "documents"}
    assert all(len(field["description"]) > 20 for field in fields.values())
