"""Knobs as fields of a form and as links, and back: nothing is lost on the way."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcorrect_rag.settings import GRAPHS, SelfRAGSettings
from selfcorrect_rag.ui import forms

WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1)


def values(about: dict[str, Any]) -> st.SearchStrategy[Any]:
    """All that a knob may be, by its schema."""
    either = about.get("anyOf", [about])
    return st.one_of(*(st.none() if form["type"] == "null" else _values(form) for form in either))


def _values(form: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in form:
        return st.sampled_from(form["enum"])
    match form["type"]:
        case "number":
            return st.floats(form["minimum"], form["maximum"])
        case "integer":
            return st.integers(form.get("minimum"), form.get("maximum"))
        case "boolean":
            return st.booleans()
        case "array":
            items = form["items"].get("enum")
            one = st.sampled_from(items) if items else WORDS
            return st.lists(one, unique=True, max_size=3).map(tuple)
        case kind:
            assert kind == "string"
            return WORDS


@pytest.mark.parametrize("graph", GRAPHS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_link_gives_the_settings_back(graph: str, data: st.DataObject) -> None:
    known = {name: values(about) for name, about in forms.schema(graph).items()}
    chosen = GRAPHS[graph](**data.draw(st.fixed_dictionaries({}, optional=known)))
    link = parse_qs(forms.query(chosen), keep_blank_values=True)
    assert forms.read(graph, link) == chosen
    every = forms.texts(chosen, forms.schema(graph))
    assert forms.read(graph, every) == chosen


def test_weights_of_groups_of_ones_own_are_exact() -> None:
    chosen = SelfRAGSettings().model_copy(
        update={"group_weights": {"TONE": 0.1 + 0.2, "STYLE": 2.0}}
    )
    assert forms.texts(chosen, ["group_weights"]) == {
        "group_weights": ["TONE=0.30000000000000004\nSTYLE=2"]
    }


@pytest.mark.parametrize("graph", GRAPHS)
def test_an_untouched_form_gives_the_defaults(graph: str) -> None:
    """As a browser sends it: of a choice without a chosen option it takes the first."""
    shown = str(forms.fields(graph, GRAPHS[graph](), ""))
    for select in shown.split("<select")[1:]:
        options = select.partition("</select>")[0].split("<option")[1:]
        assert sum(" selected" in option for option in options) == 1, options


def test_a_field_at_its_default_is_not_given() -> None:
    mode = {"mode": [SelfRAGSettings().mode]}
    assert forms.read("self_rag", mode).model_fields_set == set()
    assert forms.read("self_rag", {"mode": ["always"]}).model_fields_set == {"mode"}
