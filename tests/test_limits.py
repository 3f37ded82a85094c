"""Limits on the cost of a question, and faults after something was written."""

import math
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.nodes.limits import CallCounter, batch_usage, first_beams, limit_met
from selfcorrect_rag.reflection import RETRIEVAL
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import FREE, Segment
from tests.nodes.parts import beam
from tests.scripted import FULL, RELEVANT, ByRequest, ScriptedLLM, document, segment


def write(prompt: str) -> Segment:
    """Two segments: the first asks for more evidence."""
    if "First." in prompt:
        return segment("Second.", RELEVANT, FULL)
    return segment("First.", RELEVANT, FULL, next={RETRIEVAL: 0.9})


def ask(llm: Any, titles: str = "AB", **context: Any) -> Any:
    llm = llm(write=write) if isinstance(llm, type) else llm
    graph: Any = create_self_rag(llm, lambda _: [document(title) for title in titles])
    return graph.invoke({"question": "Who?"}, context=context)


@pytest.mark.parametrize("kind", [ScriptedLLM, ByRequest])
@pytest.mark.parametrize("most", range(1, 14))
def test_no_limit_on_calls_is_passed_and_there_is_always_an_answer(kind: Any, most: int) -> None:
    result = ask(kind, max_model_calls=most)
    assert 1 <= result["usage"]["model_calls"] <= most
    assert result["answer"].startswith("First.")
    if result["stopped"]:
        assert result["stopped"] == "max_model_calls"
        assert f"max_model_calls is {most}" in " ".join(result["notes"])
    else:
        assert (result["answer"], result["notes"]) == ("First. Second.", [])


def test_the_decision_is_spared_if_only_the_answer_fits() -> None:
    result = ask(ScriptedLLM, max_model_calls=1)
    assert (result["retrieval"]["retrieve"], result["retrieval"]["probability"]) == (True, None)
    assert "retrieved without asking for the decision" in result["notes"][0]
    assert result["answer"] == "First."
    limits: Any = [{"max_model_calls": n} for n in (2, 3)] + [{"max_tokens": n} for n in (100, 101)]
    decisions = [ask(ByRequest, **limit)["retrieval"]["probability"] for limit in limits]
    assert [d is not None for d in decisions] == [False, True] * 2, "one call and one token decide"


def test_a_candidate_goes_without_critique_if_that_does_not_fit() -> None:
    llm = ByRequest(write=lambda prompt: segment("One.", shortened=5))
    result = ask(llm, max_model_calls=1, mode="always")
    assert llm._options[-1]["critique"] is False
    assert result["notes"] == [
        "1 of 1 prompts were longer than the model's context: up to 5 tokens were cut, passages "
        "first",
        "max_model_calls is 1: the first 1 of 2 candidates were written, without critique",
    ]


def test_tokens_are_bounded_too_and_the_first_candidates_written() -> None:
    result = ask(ScriptedLLM, max_tokens=150, mode="always", segment_tokens=100)
    assert [c["passage"] for c in result["candidates"] if c["depth"] == 0] == [0]
    assert result["stopped"] == "max_tokens"
    assert result["notes"][0] == "max_tokens is 150: the first 1 of 2 candidates were written"
    for most, answer in ((117, "First. Second."), (116, "First.")):  # 17 for the first segment
        result = ask(ScriptedLLM, "A", mode="always", max_tokens=most)
        assert result["answer"] == answer
    assert result["notes"] == ["max_tokens is 116: the answer ends after segment 1"]
    twice = ask(ByRequest, "A", mode="always", max_model_calls=2 + 2)
    assert twice["answer"] == "First. Second."


@pytest.mark.parametrize(("most", "fit"), [(3, 1), (4, 2), (5, 2), (6, 3), (8, 4)])
def test_as_many_candidates_as_fit_are_written(most: int, fit: int) -> None:
    result = ask(ByRequest, "ABCD", max_model_calls=most, mode="always", depth=1)
    assert [c["passage"] for c in result["candidates"]] == list(range(fit))


def test_calls_are_counted_once_with_what_they_report_and_as_failed_ones() -> None:
    """A model inside another, such as a fallback, and an LLM that reports in ``llm_output``."""
    counter, ids = CallCounter(), [uuid4() for _ in range(5)]
    outer, chain, inner, failed, again = ids
    counter.on_llm_start(run_id=outer)
    counter.on_chain_start(run_id=chain, parent_run_id=outer)
    counter.on_llm_start(run_id=inner, parent_run_id=chain)
    usage = {"token_usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    reported = LLMResult(generations=[[Generation(text="")]], llm_output=usage)
    for run_id in (inner, inner, outer):
        counter.on_llm_end(reported, run_id=run_id)
    assert counter.usage == {**FREE, "model_calls": 1, "prompt_tokens": 3, "generated_tokens": 2}
    for run_id in (failed, again, again):
        counter.on_llm_error(ValueError(), run_id=run_id)
    assert counter.usage["model_calls"] == 3


def test_tokens_are_read_wherever_a_model_reports_them() -> None:
    counter = CallCounter()
    usage = UsageMetadata(input_tokens=3, output_tokens=2, total_tokens=5)
    info = {"prompt_tokens": 30, "tokens": 20, "requests": 4, "logprob": 20 * math.log(0.5)}
    for generation in (
        ChatGeneration(message=AIMessage("", usage_metadata=usage)),
        Generation(text="", generation_info=info),
    ):
        counter.on_llm_end(LLMResult(generations=[[generation]]), run_id=uuid4())
    assert counter.usage == {**FREE, "model_calls": 5, "prompt_tokens": 33, "generated_tokens": 22}
    assert counter.probability == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "costs"),
    [((0, 7), (1, 21, 30)), ((0, 0), (1, 0, 30)), ((2, 7), (6, 21, 30)), ((2, 0), (6, None, None))],
)
def test_a_batch_is_one_call_or_the_requests_of_its_provider(given: Any, costs: Any) -> None:
    given = dict(zip(("requests", "prompt_tokens"), given, strict=True))
    batch = [segment("", finish_reason=end, **given) for end in ("end", "pruned", "length")]
    named = dict(zip(("model_calls", "prompt_tokens", "generated_tokens"), costs, strict=True))
    assert batch_usage(batch) == {**named, "prompts": 3, "pruned": 1}


def test_limits_count_what_models_report() -> None:
    first: Any = {**FREE, "prompt_tokens": None, "model_calls": 2}
    state = {"route": [first, {**FREE, "prompt_tokens": 90}]}
    assert limit_met(state, Settings(max_model_calls=3), 1) is None
    assert limit_met(state, Settings(max_model_calls=3), 2) == "max_model_calls"
    assert limit_met(state, Settings(max_tokens=100), 1, 10) is None
    assert limit_met(state, Settings(max_tokens=100), 1, 11) == "max_tokens"
    assert limit_met(state, Settings(max_tokens=91), 1) is None
    assert first_beams({"beams": []}, [1]) == [beam(score=0.0, retrieved=[1])]
