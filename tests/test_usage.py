"""What models cost, from what callbacks tell: calls, and tokens that are known or are not."""

from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.runnables import RunnableLambda, ensure_config

from selfcorrect_rag.nodes.node import (
    UsageCounter,
    counted_calls,
    counted_config,
    counter,
    counting,
    used,
)
from selfcorrect_rag.state import Segment
from selfcorrect_rag.state import Usage
from tests.scripted import segment


def costs(counted: UsageCounter) -> tuple[int, int | None, int | None]:
    cost = counted.cost(1.5)
    assert cost["seconds"] == 1.5
    return cost["model_calls"], cost["prompt_tokens"], cost["generated_tokens"]


def message(read: int, written: int, **info: Any) -> LLMResult:
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    said = AIMessage("x", usage_metadata=usage)  # type: ignore[arg-type]
    return LLMResult(generations=[[ChatGeneration(message=said, generation_info=info or None)]])


def text(output: Any = None, **info: Any) -> LLMResult:
    return LLMResult(
        generations=[[Generation(text="x", generation_info=info or None)]], llm_output=output
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (message(3, 4), (1, 3, 4)),
        (message(3, 4, requests=0), (1, 3, 4)),
        (message(3, 4, requests=2), (2, 3, 4)),
        (message(3, 4, finish_reason="stop"), (1, 3, 4)),
        (text(), (1, None, None)),
        (text({}), (1, None, None)),
        (text({"token_usage": None}), (1, None, None)),
        (text({"token_usage": {"prompt_tokens": 5, "completion_tokens": 0}}), (1, 5, 0)),
        (text({"token_usage": {"completion_tokens": 6}}), (1, None, 6)),
        (text({"token_usage": {"prompt_tokens": 5}}, requests=3), (3, 5, None)),
    ],
)
def test_what_a_model_tells_at_its_end(told: LLMResult, expected: tuple[Any, ...]) -> None:
    counted = UsageCounter()
    counted.on_llm_end(told, run_id=uuid4())
    assert costs(counted) == expected


def test_calls_add_up_and_what_is_not_known_stays_so() -> None:
    counted = UsageCounter()
    assert costs(counted) == (0, 0, 0)
    counted.add(2, 10, 20)
    counted.add(3, 1, None)
    assert costs(counted) == (5, 11, None)
    counted.add(1, None, 7)
    counted.add(1, 4, 7)
    assert costs(counted) == (7, None, None)
    assert counted.model_calls == 7


def begin(counted: UsageCounter, kind: str, parent: UUID | None = None) -> UUID:
    run_id = uuid4()
    getattr(counted, f"on_{kind}_start")({}, [], run_id=run_id, parent_run_id=parent)
    return run_id


def test_of_models_within_models_the_innermost_is_counted() -> None:
    counted = UsageCounter()
    outer = begin(counted, "chat_model")
    chain = begin(counted, "chain", outer)
    middle = begin(counted, "chat_model", chain)
    inner = begin(counted, "llm", begin(counted, "chain", middle))
    counted.on_llm_end(message(1, 2), run_id=inner)
    counted.on_llm_end(message(10, 20), run_id=middle)
    counted.on_llm_end(message(100, 200), run_id=outer)
    assert costs(counted) == (1, 1, 2)
    counted.on_llm_end(message(5, 5), run_id=begin(counted, "llm"))
    assert costs(counted) == (2, 6, 7)


def test_a_failed_call_is_counted_once_however_deep() -> None:
    counted = UsageCounter()
    outer = begin(counted, "llm")
    inner = begin(counted, "chat_model", begin(counted, "chain", outer))
    counted.on_llm_error(ConnectionError(), run_id=inner)
    counted.on_llm_error(ConnectionError(), run_id=outer)
    assert costs(counted) == (1, 0, 0)


def test_a_chain_without_a_model_below_it_counts_nothing() -> None:
    counted = UsageCounter()
    begin(counted, "chain", begin(counted, "chain"))
    assert costs(counted) == (0, 0, 0)


def model() -> FakeListChatModel:
    return FakeListChatModel(responses=["x"])


def test_each_node_counts_from_nothing_and_gives_back_what_was_before() -> None:
    with pytest.raises(LookupError):
        counter()
    with counting(ensure_config()) as first:
        counter().add(1, 2, 3)
        with suppress(ConnectionError), counting(ensure_config()) as second:
            assert counter() is second
            counter().add(5, 5, 5)
            raise ConnectionError
        assert counter() is first
        assert costs(first) == (6, 7, 8), "with those of a node that it calls"
    with pytest.raises(LookupError):
        counter()


def test_the_nodes_config_keeps_its_own_callbacks() -> None:
    mine = BaseCallbackHandler()

    def node(_: Any) -> None:
        with counting(ensure_config()) as counted:
            callbacks = counted_config()["callbacks"]
            assert mine in callbacks.handlers
            assert counted in callbacks.handlers
            model().invoke("?", counted_config())
            assert costs(counted) == (1, None, None)

    RunnableLambda(node).invoke(None, {"callbacks": [mine]})


@pytest.mark.parametrize("at_least", [0, 1, 3])
@pytest.mark.parametrize("called", [0, 1, 2])
def test_models_that_are_given_no_config(at_least: int, called: int) -> None:
    with counting(ensure_config()) as counted:
        counter().add(4, 0, 0)
        with counted_calls(at_least):
            for _ in range(called):
                model().invoke("?")
        assert counted.model_calls == 4 + (called or at_least)
        unknown = called or at_least
        assert costs(counted)[1:] == ((None, None) if unknown else (0, 0))
        model().invoke("?")
        assert counted.model_calls == 4 + (called or at_least), "the config is taken back"


def test_what_fails_within_is_not_made_up_for() -> None:
    with counting(ensure_config()) as counted:
        with pytest.raises(ConnectionError), counted_calls(3):
            raise ConnectionError
        assert costs(counted) == (0, 0, 0)
        assert not ensure_config()["callbacks"]


# A segment's model tells of itself


def spent(
    segments: list[Segment], **before: int
) -> tuple[Usage, tuple[int, int | None, int | None]]:
    nothing = dict.fromkeys(Usage.__annotations__, 0)
    with counting(ensure_config()) as counted:
        usage = used(Usage(**{**nothing, **before}), segments)  # type: ignore[typeddict-item]
        return usage, costs(counted)


def test_a_batch_is_one_call_added_to_the_usage_so_far() -> None:
    before = {"model_calls": 10, "prompts": 20, "prompt_tokens": 30, "generated_tokens": 40}
    more = {"retrievals": 50, "pruned": 60, "tokens_saved": 70}
    batch = [segment("a", tokens=4, prompt_tokens=7), segment("b", tokens=6, prompt_tokens=9)]
    usage, counted = spent(batch, **before, **more)
    assert usage == {
        "model_calls": 11,
        "prompts": 22,
        "prompt_tokens": 46,
        "generated_tokens": 50,
        "retrievals": 50,
        "pruned": 60,
        "tokens_saved": 70,
    }
    assert counted == (1, 16, 10)


def test_requests_are_counted_one_by_one() -> None:
    usage, counted = spent([segment("a", requests=2), segment("b", requests=1)])
    assert (usage["model_calls"], counted[0]) == (3, 3)


def test_a_provider_that_read_nothing_has_not_told_its_tokens() -> None:
    usage, counted = spent([segment("a", tokens=4, prompt_tokens=0, requests=1)])
    assert (usage["prompt_tokens"], usage["generated_tokens"]) == (0, 4)
    assert counted == (1, None, None)


def test_a_local_model_that_read_nothing_has_said_so() -> None:
    assert spent([segment("a", tokens=4, prompt_tokens=0)])[1] == (1, 0, 4)


@pytest.mark.parametrize(
    ("decoded", "pruned", "saved"),
    [
        ([10, 20], [], 0),
        ([10, 20], [1], 14),
        ([10, 20], [1, 3], 14 + 12),
        ([10, 11], [2], 8),  # whole tokens, rounded down
        ([2], [5], 0),  # never less than nothing
        ([4], [1, 5], 2),
    ],
)
def test_pruning_saves_a_mean_segment_each(
    decoded: list[int], pruned: list[int], saved: int
) -> None:
    batch = [segment("a", tokens=n) for n in decoded]
    batch += [segment("", tokens=n, finish_reason="pruned") for n in pruned]
    usage, _ = spent(batch, pruned=100, tokens_saved=1000)
    assert usage["pruned"] == 100 + len(pruned)
    assert usage["tokens_saved"] == 1000 + saved
