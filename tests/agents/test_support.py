"""Support of an answer, by graph."""

from typing import Any

import pytest

from selfcorrect_rag.agents import missing_support
from tests.agents.scripted import PARTLY, crag, instruct_rag, self_crag, self_rag
from tests.scripted import FULL, NONE


def asked(graph: Any, **context: Any) -> Any:
    return graph.invoke({"question": "Who?"}, context=context)


@pytest.mark.parametrize("make", [self_rag, self_crag])
@pytest.mark.parametrize(
    ("issup", "partly", "fully"),
    [
        (FULL, "", ""),
        (PARTLY, "", "[Partially supported]: "),
        (None, "support was not judged: ", "support was not judged: "),
    ],
)
def test_issup_of_the_answers_segments(make: Any, issup: Any, partly: str, fully: str) -> None:
    result = asked(make(issup))
    said = {"partly": partly, "fully": fully}
    for support, reason in said.items():
        found = missing_support(result, support)  # type: ignore[arg-type]
        assert found == (f"{reason}{result['answer']!r}" if reason else "")


def test_one_unsupported_segment_is_enough_and_evidence_is_needed() -> None:
    result = asked(self_rag())
    (good, *_) = [c for c in result["candidates"] if c["chosen"]]
    bad = {**good, "depth": 1, "judgements": {"ISSUP": NONE}}
    unchosen = {**bad, "chosen": False}
    assert missing_support({**result, "candidates": [*result["candidates"], unchosen]}) == ""
    assert "No support" in missing_support({**result, "candidates": [*result["candidates"], bad]})
    lacking = missing_support(asked(self_rag(retrieval=0.0)))
    assert lacking == "written without evidence: 'Unread: Who?'"


NOTHING = "no knowledge was judged relevant, the action was "


@pytest.mark.parametrize(
    ("text", "context", "partly", "fully"),
    [
        ("Gold.", {}, "", ""),
        ("Vague.", {}, "", "the action was ambiguous"),
        ("Noise.", {}, "", "the action was incorrect"),
        ("Gold.", {"strip_threshold": 1}, *[f"{NOTHING}correct"] * 2),
        ("Noise.", {"select": False}, *[f"{NOTHING}incorrect"] * 2),
    ],
)
def test_crag_by_action_and_strips(text: str, context: Any, partly: str, fully: str) -> None:
    result = asked(crag(text), **context)
    assert (missing_support(result, "partly"), missing_support(result, "fully")) == (partly, fully)


def test_instruct_rag_by_useful_documents() -> None:
    assert missing_support(asked(instruct_rag()), "fully") == ""
    unread = asked(instruct_rag("I believe that the answer is Jane Austen."))
    assert missing_support(unread) == "the rationale uses no document"
    declining = asked(instruct_rag("Document [1] is useful. The documents do not say."))
    assert missing_support(declining).startswith("the answer declines to answer: 'The documents")
