"""Bad input has a named error of one line, or a stated fallback."""

from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import SelfRAGSettings, create_self_rag
from selfcorrect_rag.errors import BadSettings, MissingExtra, require
from selfcorrect_rag.state import Segment
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, passage_of, segment


def write(prompt: str) -> Segment:
    return segment(f"From {passage_of(prompt)}.", RELEVANT, FULL)


def graph_over(*documents: Document) -> Any:
    return create_self_rag(ScriptedReflectionLLM(write=write), lambda query: list(documents))


@pytest.mark.parametrize(
    "document",
    [
        Document("Text alone."),
        Document("", metadata={"title": "Title alone"}),
        Document("", metadata={}),
        Document("Text", metadata={"title": None, "source": None}),
        Document("Text", metadata={"title": 7, "source": ["a", {"b": 1}]}),
        Document("Text", metadata={"title": "two\nlines"}),
    ],
    ids=repr,
)
def test_documents_of_every_shape(document: Document) -> None:
    result = graph_over(document).invoke({"question": "Who?"})
    assert result["answer"]
    assert result["citations"][0]["number"] == 1
    assert all(isinstance(v, str) for k, v in result["citations"][0].items() if k == "title")


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("threshold", 1.1),
        ("threshold", -0.1),
        ("passages", 0),
        ("beam_width", 0),
        ("depth", 0),
        ("segment_tokens", 0),
        ("weight_isrel", -1),
        ("mode", "sometimes"),
        ("path_rule", "median"),
        ("prune_below", 2),
        ("hard_constraints", ["[Retrieval]"]),
        ("no_such_knob", 1),
    ],
)
def test_knobs_out_of_bounds_are_refused_by_name(knob: str, value: Any) -> None:
    says = knob if knob != "hard_constraints" else "Retrieval"
    with pytest.raises(BadSettings, match=says):
        SelfRAGSettings(**{knob: value})
    with pytest.raises(BadSettings, match=says):
        graph_over().invoke({"question": "Who?"}, context={knob: value})


def test_what_is_no_model_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"a int: .*TransformersReflectionLLM.*chat model"):
        create_self_rag(7, lambda query: [])  # type: ignore[arg-type]


def test_a_missing_extra_names_the_command() -> None:
    with pytest.raises(MissingExtra, match=r'pip install "selfcorrect-rag\[vllm\]"'):
        require("no_such_module", "vllm")
