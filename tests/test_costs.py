"""Calls, tokens and seconds by step, counted by hand on scripted models, for every graph."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.prompts import Prompt
from selfcorrect_rag.reflection import RETRIEVAL
from selfcorrect_rag.state import Segment
from selfcorrect_rag.state import costs_together, known_tokens, total
from tests.conftest import talkative
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesWebSearch, WordEvaluator
from tests.crag_runs import document as text_document
from tests.instruct_runs import DEMONSTRATIONS, RATIONALE, documents
from tests.providers import Provider, saying
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    segment,
    timeless,
)

QUESTION: Any = {"question": "Who wrote Emma?"}
READ, WROTE = 10, 1
"""Tokens that the chat model tells of each call."""


class ByRequest(ScriptedReflectionLLM):
    """Asks its provider for each prompt, and once more for the critique of it."""

    def most_calls(self, prompts: int, *, choose: bool = False, critique: bool = True) -> int:
        return prompts if choose or not critique else 2 * prompts

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        each = self.most_calls(
            1, choose="choose" in options, critique=options.get("critique", True)
        )
        return [{**s, "requests": each} for s in super()._segments(prompts, **options)]


def write(prompt: str) -> Segment:
    """Two segments: the first asks for more evidence."""
    if "First." in prompt:
        return segment("Second.", RELEVANT, FULL, USEFUL)
    return segment("First.", RELEVANT, FULL, next={RETRIEVAL: 0.9})


def counts(result: Any) -> dict[str, tuple[int, int | None, int | None]]:
    """Calls, tokens read and tokens written of each step that called a model."""
    return {
        step: (cost["model_calls"], cost["prompt_tokens"], cost["generated_tokens"])
        for step, cost in result["costs"].items()
        if cost["model_calls"]
    }


def both(graph: Any, asked: Any = QUESTION, **options: Any) -> Any:
    """What invoking gives, after a look that its async form counts the same."""
    result = graph.invoke(asked, **options)
    assert timeless(asyncio.run(graph.ainvoke(asked, **options))) == timeless(result)
    return result


def self_rag(llm: ScriptedReflectionLLM) -> Any:
    return create_self_rag(llm, lambda query: [document("A"), document("B"), document("C")])


def crag(texts: Sequence[str], llm: Any, evaluator: Any = None, **options: Any) -> Any:
    return create_crag(
        llm,
        lambda query: [text_document(text) for text in texts],
        evaluator or WordEvaluator(),
        PagesWebSearch(),
        **options,
    )


# Self-RAG


def test_each_step_of_self_rag_over_all_its_turns() -> None:
    result = both(self_rag(ScriptedReflectionLLM(write=write)))
    assert result["answer"] == "First. Second."
    # One token to decide; 3 candidates, then 3 for each of 2 beams; 7 tokens read and 10 written.
    assert counts(result) == {
        "decide_retrieval": (1, 7, 1),
        "generate_and_critique": (2, 9 * 7, 9 * 10),
    }
    whole = total(result["costs"])
    assert whole["model_calls"] == result["usage"]["model_calls"] == 3
    assert whole["prompt_tokens"] == result["usage"]["prompt_tokens"] == 70
    assert whole["generated_tokens"] == result["usage"]["generated_tokens"] == 91
    assert list(result["costs"]) == [
        "decide_retrieval",
        "retrieve",
        "generate_and_critique",
        "beam_select",
        "write_answer",
    ]
    assert all(cost["seconds"] > 0 for cost in result["costs"].values())


def test_requests_to_a_provider_are_counted_one_by_one() -> None:
    result = both(self_rag(ByRequest(write=write)), context={"depth": 1})
    assert counts(result) == {
        "decide_retrieval": (1, 7, 1),
        "generate_and_critique": (6, 3 * 7, 3 * 10),
    }
    assert result["usage"]["model_calls"] == 7


def test_a_retriever_that_asks_a_model_is_counted() -> None:
    model = saying("Emma")
    retriever = model | RunnableLambda(lambda message: [document(message.content)])
    graph = create_self_rag(ScriptedReflectionLLM(write=write), retriever)
    assert counts(both(graph, context={"depth": 1}))["retrieve"] == (1, READ, WROTE)


# CRAG


def test_each_step_of_crag() -> None:
    llm, rewriter = saying("Jane Austen."), saying("Emma, author")
    result = both(crag(AMBIGUOUS, llm, rewriter=rewriter))
    # The evaluator is no LangChain model: one call for a batch, and nobody tells its tokens.
    assert counts(result) == {
        "grade_documents": (1, None, None),
        "rewrite_query": (1, READ, WROTE),
        "refine_strips": (1, None, None),
        "select_web_strips": (1, None, None),
        "generate": (1, READ, WROTE),
    }
    assert result["costs"]["web_search"]["model_calls"] == 0
    assert total(result["costs"])["model_calls"] == 5
    assert total(result["costs"])["prompt_tokens"] is None
    assert known_tokens(result["costs"]) == 2 * (READ + WROTE)


def test_what_an_action_leaves_out_costs_nothing() -> None:
    result = both(crag(CORRECT, saying("Jane Austen."), rewriter=saying("")))
    assert list(counts(result)) == ["grade_documents", "refine_strips", "generate"]
    assert "web_search" not in result["costs"]
    nothing = both(crag([], saying("Jane Austen.")))
    assert list(counts(nothing)) == ["select_web_strips", "generate"]


def test_a_chat_model_that_grades_is_counted_by_its_calls() -> None:
    judge = saying("1: yes\n2: no")
    evaluator = ChatEvaluator(judge)
    result = both(crag(CORRECT, saying("Jane Austen."), evaluator))
    assert counts(result)["grade_documents"] == (1, READ, WROTE)
    assert counts(result)["refine_strips"] == (1, READ, WROTE)
    one_by_one = ChatEvaluator(saying("yes"), passages_per_call=1)
    result = both(crag(CORRECT, saying("Jane Austen."), one_by_one))
    assert counts(result)["grade_documents"] == (2, 2 * READ, 2 * WROTE)


def test_tokens_that_nobody_told_are_not_guessed() -> None:
    result = both(crag(CORRECT, FakeListChatModel(responses=["Jane Austen."] * 2)))
    assert counts(result)["generate"] == (1, None, None)


def test_a_call_that_fails_is_a_call() -> None:
    rewriter = Provider(answer=lambda prompt: ConnectionError("busy"))
    result = both(crag(INCORRECT, saying("Jane Austen."), rewriter=rewriter))
    assert counts(result)["rewrite_query"] == (1, 0, 0)
    answers: list[Any] = [ConnectionError("busy"), ConnectionError("busy"), "Jane Austen."]
    patient = Provider(answer=lambda prompt: answers.pop(0)).with_retry(
        stop_after_attempt=3, wait_exponential_jitter=False
    )
    result = crag(CORRECT, patient).invoke(QUESTION)
    assert counts(result)["generate"] == (3, READ, WROTE)


def test_a_reflection_llm_that_answers_crag_tells_its_tokens() -> None:
    result = both(crag(CORRECT, ScriptedReflectionLLM(write=write)))
    assert counts(result)["generate"] == (1, 7, 10)
    assert counts(both(crag(CORRECT, ByRequest(write=write))))["generate"] == (2, 7, 10)


# Self-CRAG and InstructRAG


def test_each_step_of_self_crag() -> None:
    graph = create_self_crag(
        ScriptedReflectionLLM(write=write),
        lambda query: [text_document(text) for text in INCORRECT],
        WordEvaluator(),
        PagesWebSearch(),
    )
    assert counts(both(graph)) == {
        "decide_retrieval": (1, 7, 1),
        "grade_documents": (1, None, None),
        "select_web_strips": (1, None, None),
        "generate_and_critique": (2, 2 * 7, 2 * 10),  # the one page of the web, twice
    }


@pytest.mark.parametrize(
    ("llm", "expected"),
    [
        (saying(RATIONALE), (1, READ, WROTE)),
        (saying(RATIONALE).bind(stop=["\n\n"]), (1, READ, WROTE)),
        (ScriptedReflectionLLM(write=write), (1, 7, 10)),
        (ScriptedReflectionLLM(write=write).with_retry(), (1, 7, 10)),
        (FakeListLLM(responses=[RATIONALE]), (1, None, None)),
    ],
)
def test_each_step_of_instruct_rag(llm: Any, expected: tuple[int, int, int]) -> None:
    graph = create_instruct_rag(llm, lambda query: documents(), DEMONSTRATIONS)
    assert counts(both(graph)) == {"write_rationale": expected}


def test_a_real_model_tells_its_tokens() -> None:
    llm = talkative()
    graph = create_instruct_rag(llm, lambda query: documents())
    result = graph.invoke(QUESTION, context={"mode": "ft", "rationale_tokens": 8})  # type: ignore[arg-type]
    calls, read, written = counts(result)["write_rationale"]
    assert calls == 1
    assert read is not None
    assert read > 20
    assert written in range(1, 9)


# Turns, pauses and retries


def test_a_turn_of_a_thread_begins_with_nothing() -> None:
    graph = create_self_rag(
        ScriptedReflectionLLM(write=write), lambda query: [], checkpointer=InMemorySaver()
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    first = graph.invoke(QUESTION, thread)
    assert counts(graph.invoke(QUESTION, thread)) == counts(first)


def test_a_pause_counts_what_ran_before_it_once() -> None:
    llm = saying("Jane Austen.")
    graph = crag(AMBIGUOUS, llm, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke(QUESTION, thread, context={"approve_search": True})
    # refine_strips ran beside the search that paused, and does not run again.
    result = graph.invoke(Command(resume="yes"), thread, context={"approve_search": True})
    assert [calls for calls, _, _ in counts(result).values()] == [1, 1, 1, 1]
    assert result["web_results"]


def test_a_step_that_is_tried_again_is_counted_once() -> None:
    failed: list[str] = []

    def sometimes(prompt: str) -> Segment:
        if not failed:
            failed.append(prompt)
            raise ConnectionError("busy")
        return write(prompt)

    builder = self_rag(ScriptedReflectionLLM(write=sometimes)).builder
    builder.nodes["generate_and_critique"].retry_policy = RetryPolicy(
        initial_interval=0.001, jitter=False
    )
    result = builder.compile().invoke(QUESTION, context={"depth": 1})
    assert len(failed) == 1
    assert counts(result)["generate_and_critique"] == (1, 3 * 7, 3 * 10)


class Breaking(ScriptedReflectionLLM):
    """Asks a chat model so many times for its second segment, and then breaks."""

    asks: int

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        if "First." in prompts[0].to_string():
            for _ in range(self.asks):
                saying("Second.").invoke("What comes second?")
            raise ConnectionError("the model is down")
        return super()._segments(prompts, **options)


@pytest.mark.parametrize("asks", [0, 2])
def test_what_failed_after_the_first_segment_is_paid_for(asks: int) -> None:
    """A batch of a model of ours is one call; of a chat model's calls, those that were made."""
    graph = create_self_rag(Breaking(write=write, asks=asks), lambda query: [document("Emma")])
    result = both(graph)
    assert (result["answer"], result["stopped"]) == ("First.", "model")
    calls, read, wrote = counts(result)["generate_and_critique"]
    assert (calls, read, wrote) == (1 + (asks or 1), 7 + asks * READ, 10 + asks * WROTE)
    assert result["usage"]["model_calls"] == total(result["costs"])["model_calls"]


def test_costs_of_branches_add_up_in_any_order() -> None:
    one: Any = {"a": {"model_calls": 1, "prompt_tokens": 2, "generated_tokens": 3, "seconds": 0.5}}
    unknown: Any = {
        "a": {"model_calls": 1, "prompt_tokens": None, "generated_tokens": 3, "seconds": 0.5}
    }
    assert costs_together(one, unknown) == costs_together(unknown, one)
    assert costs_together(one, unknown)["a"] == {
        "model_calls": 2,
        "prompt_tokens": None,
        "generated_tokens": 6,
        "seconds": 1.0,
    }
    assert costs_together(one, {}) == {}
