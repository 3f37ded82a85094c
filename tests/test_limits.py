"""max_model_calls and max_tokens: always an answer, marked, and within the limit."""

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag import create_instruct_rag, create_self_crag
from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.nodes.limits import limit_met
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
)
from selfcorrect_rag.state import known_tokens, total
from tests.crag_runs import AMBIGUOUS, CORRECT, PagesWebSearch, WordEvaluator
from tests.crag_runs import document as text_document
from tests.instruct_runs import documents
from tests.providers import saying
from tests.scripted import ScriptedReflectionLLM, echo, timeless
from tests.test_costs import QUESTION, READ, WROTE, ByRequest, both, counts, crag, self_rag, write

KINDS = [ScriptedReflectionLLM, ByRequest]


def calls(result: Any) -> int:
    return total(result["costs"])["model_calls"]


def self_crag(llm: ScriptedReflectionLLM) -> Any:
    return create_self_crag(
        llm,
        lambda query: [text_document(text) for text in AMBIGUOUS],
        WordEvaluator(),
        PagesWebSearch(),
    )


COSTS: Any = {
    "a": {"model_calls": 3, "prompt_tokens": 40, "generated_tokens": 5, "seconds": 1.0},
    "b": {"model_calls": 1, "prompt_tokens": None, "generated_tokens": 5, "seconds": 1.0},
}
"""4 calls and 50 tokens that are known."""


@pytest.mark.parametrize(
    ("most_calls", "most_tokens", "takes", "met"),
    [
        (None, None, (1000, 1000), None),
        (6, None, (2, 1000), None),
        (6, None, (3, 1), "max_model_calls"),
        (None, 60, (1000, 10), None),
        (None, 60, (1, 11), "max_tokens"),
        (6, 60, (2, 10), None),
        (5, 59, (2, 10), "max_model_calls"),
        (None, 51, (1,), None),  # a step writes a token at least
        (None, 50, (1,), "max_tokens"),
    ],
)
def test_a_step_begins_where_it_fits_exactly(
    most_calls: int | None, most_tokens: int | None, takes: tuple[int, ...], met: str | None
) -> None:
    settings = CRAGSettings(max_model_calls=most_calls, max_tokens=most_tokens)
    assert limit_met({"costs": COSTS}, settings, *takes) == met


@pytest.mark.parametrize(
    "settings", [SelfRAGSettings, CRAGSettings, SelfCRAGSettings, InstructRAGSettings]
)
@pytest.mark.parametrize("limit", ["max_model_calls", "max_tokens"])
def test_limits_have_bounds(settings: Any, limit: str) -> None:
    assert getattr(settings(**{limit: None}), limit) is None
    with pytest.raises(BadSettings, match=limit):
        settings(**{limit: 0})


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [self_rag, self_crag])
def test_an_answer_within_any_number_of_calls(make: Any, kind: Any, most: int) -> None:
    free = calls(make(kind(write=write)).invoke(QUESTION))
    result = both(make(kind(write=write)), context={"max_model_calls": most})
    assert result["answer"].startswith("First.")
    assert calls(result) <= most
    assert (result["stopped"] == "max_model_calls") == (free > most)
    assert any("max_model_calls" in note for note in result["notes"]) == (free > most)


@pytest.mark.parametrize(
    ("kind", "most", "decided", "written", "answer"),
    [
        # A whole batch is a call: 1 is a first segment, 2 decides too, 3 is all there is.
        (ScriptedReflectionLLM, 1, False, 3, "First."),
        (ScriptedReflectionLLM, 2, True, 3, "First."),
        (ScriptedReflectionLLM, 3, True, 9, "First. Second."),
        # A candidate takes a call to write and one to criticise.
        (ByRequest, 1, False, 1, "First."),
        (ByRequest, 2, False, 1, "First."),
        (ByRequest, 3, True, 1, "First."),
        (ByRequest, 5, True, 2, "First."),
        (ByRequest, 7, True, 3, "First."),
        (ByRequest, 9, True, 4, "First. Second."),
    ],
)
def test_what_self_rag_gives_up_first(
    kind: Any, most: int, decided: bool, written: int, answer: str
) -> None:
    llm = kind(write=write)
    result = self_rag(llm).invoke(QUESTION, context={"max_model_calls": most})
    assert (result["retrieval"]["probability"] is not None) == decided
    assert result["retrieval"]["retrieve"], "evidence is what is kept"
    assert (len(result["candidates"]), result["answer"]) == (written, answer)
    without_critique = [options for options in llm._options if options.get("critique") is False]
    assert bool(without_critique) == (kind is ByRequest and most == 1)


def test_the_decision_of_a_mode_costs_nothing_and_stays() -> None:
    result = self_rag(ByRequest(write=write)).invoke(
        QUESTION, context={"max_model_calls": 2, "mode": "never"}
    )
    assert (result["retrieval"]["retrieve"], result["passages"]) == (False, [])


def test_a_limit_that_is_not_met_changes_nothing() -> None:
    for make in (self_rag, self_crag):
        free = make(ByRequest(write=write)).invoke(QUESTION)
        wide = make(ByRequest(write=write)).invoke(
            QUESTION, context={"max_model_calls": 1000, "max_tokens": 100_000}
        )
        assert timeless(free) == timeless(wide)
        assert free["stopped"] is None


@pytest.mark.parametrize("most", [1, 50, 150, 250, 400, 900])
@pytest.mark.parametrize("make", [self_rag, self_crag])
def test_an_answer_within_tokens(make: Any, most: int) -> None:
    result = both(make(ScriptedReflectionLLM(write=write)), context={"max_tokens": most})
    assert result["answer"].startswith("First.")
    # No more than the prompts of one step above it; each has 7 tokens here, and 10 are written.
    assert known_tokens(result["costs"]) <= most + 17


@pytest.mark.parametrize(
    ("most", "depths", "notes"),
    [
        # 8 tokens to decide, and 100 that each candidate may write; it reads 7 and writes 10.
        (108, [0], ["1 of 3 candidates were written", "the answer ends after segment 1"]),
        (124, [0], ["1 of 3 candidates were written", "the answer ends after segment 1"]),
        (125, [0, 1], ["1 of 3 candidates were written", "1 of 3 candidates were written"]),
        (207, [0, 1], ["1 of 3 candidates were written", "1 of 3 candidates were written"]),
        (208, [0, 0, 1], ["2 of 3 candidates were written", "1 of 6 candidates were written"]),
        (
            307,
            [0, 0] + [1] * 2,
            ["2 of 3 candidates were written", "2 of 6 candidates were written"],
        ),
        (308, [0, 0, 0] + [1] * 2, ["2 of 6 candidates were written"]),
        (658, [0, 0, 0] + [1] * 5, ["5 of 6 candidates were written"]),
        (659, [0, 0, 0] + [1] * 6, []),
    ],
)
def test_what_may_be_written_is_held_against_the_tokens(
    most: int, depths: list[int], notes: list[str]
) -> None:
    graph = self_rag(ScriptedReflectionLLM(write=write))
    result = both(graph, context={"max_tokens": most})
    assert [c["depth"] for c in result["candidates"]] == depths
    assert result["answer"] == ("First. Second." if 1 in depths else "First.")
    assert result["stopped"] == ("max_tokens" if notes else None)
    assert result["notes"] == [f"max_tokens is {most}: {note}" for note in notes]
    told = [
        event
        for event in graph.stream(QUESTION, context={"max_tokens": most}, stream_mode="custom")
        if event["event"] == "stopped"
    ]
    assert told == [
        {"event": "stopped", "by": "max_tokens", "note": note} for note in result["notes"]
    ]


# CRAG: what comes first in the run is paid first


@pytest.mark.parametrize(
    ("most", "steps"),
    [
        (1, ["generate"]),
        (2, ["grade_documents", "generate"]),
        (3, ["grade_documents", "rewrite_query", "generate"]),
        (4, ["grade_documents", "rewrite_query", "refine_strips", "generate"]),
        (
            5,
            [
                "grade_documents",
                "rewrite_query",
                "refine_strips",
                "select_web_strips",
                "generate",
            ],
        ),
    ],
)
def test_an_answer_of_crag_within_calls(most: int, steps: list[str]) -> None:
    graph = crag(AMBIGUOUS, saying("Jane Austen."), rewriter=saying("Emma"))
    result = both(graph, context={"max_model_calls": most})
    assert result["answer"] == "Jane Austen."
    assert sorted(counts(result)) == sorted(steps)
    assert result["stopped"] == (None if most == 5 else "max_model_calls")
    assert result["knowledge"]
    assert (result["action"] is None) == (most == 1)
    assert bool(result["web_results"]) == (most > 1), "a search is no model call"


def test_what_crag_cannot_grade_is_knowledge_as_it_is() -> None:
    result = both(crag(CORRECT, echo_chat()), context={"max_model_calls": 1})
    assert [piece.page_content for piece in result["knowledge"]] == CORRECT
    assert result["grades"] == []
    assert result["notes"] == [
        "max_model_calls is 1: what was retrieved was not graded",
        "max_model_calls is 1: passages were kept whole",
    ]


def test_a_chat_model_that_would_take_too_many_calls_is_not_asked() -> None:
    def graph() -> Any:
        evaluator = ChatEvaluator(saying("yes"), passages_per_call=1)
        return crag(CORRECT, echo_chat(), evaluator)

    # 2 documents, their 2 strips, and the answer.
    assert calls(both(graph(), context={"max_model_calls": 5})) == 5
    assert calls(both(graph(), context={"max_model_calls": 4})) == 3
    assert calls(both(graph(), context={"max_model_calls": 2})) == 1


def test_an_answer_of_crag_within_tokens() -> None:
    graph = crag(AMBIGUOUS, saying("Austen."), rewriter=saying("Emma"))
    result = both(graph, context={"max_tokens": READ + WROTE})
    # Grading tells no tokens, rewriting does: nothing begins after it but the answer.
    assert sorted(counts(result)) == ["generate", "grade_documents", "rewrite_query"]
    assert (result["answer"], result["stopped"]) == ("Austen.", "max_tokens")


def echo_chat() -> Any:
    return FakeListChatModel(responses=["Jane Austen."])


# InstructRAG asks once: only tokens can be saved


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_instruct_rag_takes_one_call(most: int) -> None:
    graph = create_instruct_rag(echo_chat(), lambda query: documents())
    result = both(graph, context={"max_model_calls": most})
    assert (result["answer"], result["stopped"]) == ("Jane Austen", None)
    assert calls(result) == 1


def test_instruct_rag_drops_the_weakest_documents_for_its_tokens() -> None:
    graph = create_instruct_rag(echo(), lambda query: documents())
    context: Any = {"rationale_tokens": 20}
    whole = graph.invoke(QUESTION, context=context)
    assert (whole["stopped"], len(whole["numbering"])) == (None, 3)
    short = both(graph, context={**context, "max_tokens": 100})
    assert short["stopped"] == "max_tokens"
    assert short["numbering"] == [0]
    assert any("that max_tokens leaves" in note for note in short["notes"])
    assert both(graph, context={**context, "max_tokens": 1})["answer"]
    roomy = both(graph, context={**context, "max_tokens": 10_000})
    assert timeless(roomy) == timeless(whole)
