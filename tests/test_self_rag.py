"""Self-RAG as a graph: what is asked of the model, what comes out, its beam (Algorithm 1)."""

import math
from typing import Any

import pytest

from selfcorrect_rag import SelfRAGSettings, create_self_rag
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval, next_step
from selfcorrect_rag.reflection import CONTINUE, NO_RETRIEVAL, NO_SUPPORT, RETRIEVAL, Reflection
from selfcorrect_rag.state import Segment
from tests.nodes.parts import beam
from tests.scripted import (
    FULL,
    IRRELEVANT,
    NONE,
    RELEVANT,
    USEFUL,
    ScriptedLLM,
    document,
    passage_of,
    reflection,
    segment,
)
from tests.test_faults import FORMS, ask

QUESTION: Any = {"question": "Who?"}
OPENING = "### Instruction:\nWho?\n\n### Response:\n"
AGAIN = {RETRIEVAL: 0.8, NO_RETRIEVAL: 0.2}
KEEP = {CONTINUE: 0.8, RETRIEVAL: 0.1, NO_RETRIEVAL: 0.1}
ENOUGH = {NO_RETRIEVAL: 0.95, RETRIEVAL: 0.05}


def from_passage(prompt: str) -> Segment:
    """A is relevant and supports its answer; everything else is neither."""
    title = passage_of(prompt)
    if title == "A":
        return segment("From A.", RELEVANT, FULL, USEFUL)
    return segment(f"From {title}.", IRRELEVANT, NONE, USEFUL)


def build(titles: Any, write: Any = from_passage, **options: Any) -> Any:
    """Return a graph that finds documents with these titles, and its model."""
    llm = ScriptedLLM(write=write, **options)
    return create_self_rag(llm, lambda query: [document(title) for title in titles]), llm


def answer(given: Any, **context: Any) -> tuple[dict[str, Any], ScriptedLLM]:
    """A run on passages that are ``given`` with what is written from each: the first segment of an
    answer, the second, and so on."""

    def write(prompt: str) -> Segment:
        segments = given[passage_of(prompt)]
        return segments[min(prompt.count("<paragraph>"), len(segments)) - 1]

    graph, llm = build(given, write)
    return graph.invoke(QUESTION, context=context), llm


@pytest.mark.parametrize(
    ("retrieval", "no_retrieval", "threshold", "retrieves"),
    [
        (0.15, 0.05, 0.2, True),
        (0.01, 0.19, 0.2, False),  # 0.05 of the two
        (0.042, 0.158, 0.2, True),
        (0.038, 0.162, 0.2, False),
        (0.1, 0.1, 0.5, False),  # equal to the threshold
        (0.11, 0.09, None, True),
        (0.09, 0.11, None, False),
    ],
)
def test_without_evidence_continue_leaves_it_to_the_other_two(
    retrieval: float, no_retrieval: float, threshold: float | None, retrieves: bool
) -> None:
    """[Continue to Use Evidence] before any evidence, and after a segment without."""
    likely = {CONTINUE: 0.8, RETRIEVAL: retrieval, NO_RETRIEVAL: no_retrieval}
    context: Any = {"threshold": threshold}
    graph, _ = build("A", decision=likely)
    result = graph.invoke(QUESTION, context=context)
    assert result["retrieval"]["retrieve"] is retrieves
    assert result["retrieval"]["probability"] == pytest.approx(retrieval / 0.2)
    assert bool(result["passages"]) is retrieves

    def write(prompt: str) -> Segment:
        if prompt.endswith("[No Retrieval]") and "One." not in prompt:
            return segment("One.", next=likely)
        return segment("Two.", RELEVANT, FULL, USEFUL)

    graph, llm = build("A", write, retrieval=0.0)
    graph.invoke(QUESTION, context=context)
    ending = "</paragraph>" if retrieves else "[No Retrieval]"
    assert [prompt.endswith(ending) for prompt in llm.calls[2]] == [True]


@FORMS
async def test_a_decision_that_cannot_be_read_retrieves_and_is_said(form: str) -> None:
    graph, _ = build("A", decision={RETRIEVAL: 0.1, NO_RETRIEVAL: math.nan})
    result = await ask(graph, form, QUESTION)
    assert (result["retrieval"]["retrieve"], result["retrieval"]["probability"]) == (True, None)
    assert "did not say whether it needs evidence" in result["notes"][0]


@pytest.mark.parametrize(("mode", "first"), [("adaptive", 1), ("always", 1), ("never", 0)])
def test_a_turn_begins_with_one_beam_and_the_decision(mode: str, first: int) -> None:
    llm = ScriptedLLM(write=from_passage, retrieval=0.1)
    given = {"mode": mode, "instruction": "Be brief.", "threshold": 0.0}
    settings = SelfRAGSettings.of(given)
    update = decide_retrieval(llm, settings).invoke(QUESTION)
    assert update["beams"] == [beam(score=0.0, next=("none", "retrieve")[first])]
    asked = {"probability": pytest.approx(0.1), "threshold": 0.0} if mode == "adaptive" else {}
    decision = {"retrieve": bool(first), "probability": None, "threshold": None, "mode": mode}
    assert update["retrieval"] == decision | asked
    opening = "### Instruction:\nBe brief.## Input:\n\nWho?\n\n### Response:\n"
    assert llm.calls == ([[opening]] if asked else [])


@pytest.mark.parametrize(
    ("mode", "steps"),
    [("adaptive", "continue none"), ("always", "continue retrieve"), ("never", "none none")],
)
def test_retrieval_tokens_and_mode_choose_the_next_step(mode: str, steps: str) -> None:
    settings, said = SelfRAGSettings.of({"mode": mode}), map(reflection, (KEEP, ENOUGH))
    assert [next_step(token, settings, has_evidence=True) for token in said] == steps.split()


def test_the_caller_may_fix_the_documents() -> None:
    graph, _ = build("C")
    many = [document(title) for title in "DEFGHIJKA"]
    result = graph.invoke({**QUESTION, "documents": many}, context={"passages": 2})
    assert result["answer"] == "From A."
    assert len(result["candidates"]) == 9, "what the caller gives is not cut to `passages`"
    assert result["usage"]["retrievals"] == 0


def test_hard_constraints_look_at_the_chosen_token() -> None:
    bold = segment("Bold.", RELEVANT, {NO_SUPPORT: 0.5, "[Fully supported]": 0.49}, USEFUL)
    given = {"A": [bold], "B": [segment("Careful.", IRRELEVANT, FULL)]}
    assert answer(given)[0]["answer"] == "Bold."
    result, _ = answer(given, hard_constraints=[NO_SUPPORT])
    assert result["answer"] == "Careful."
    assert result["candidates"][0]["dropped"] == f"hard constraint {NO_SUPPORT}"
    assert result["constraints_met"]


def test_each_beam_has_its_own_text_and_passages_and_all_one_batch_a_segment() -> None:
    """First A is better, then B."""
    worse = {"[Relevant]": 0.6, "[Irrelevant]": 0.4}
    first = [segment(f"1{t}.", j, FULL, next=AGAIN) for t, j in (("A", RELEVANT), ("B", worse))]
    later = [segment(f"2{t}.", j, FULL, USEFUL) for t, j in (("A", IRRELEVANT), ("B", RELEVANT))]
    result, llm = answer({"A": [first[0], later[0]], "B": [first[1], later[1]]})
    assert [len(call) for call in llm.calls] == [1, 2, 4]
    assert result["usage"]["model_calls"] == 3
    assert result["cited_answer"] == "1A. [1] 2B. [2]"
    assert [p.id for p in result["passages"]] == ["A", "B"], "each passage is kept once"
    assert sorted(llm.calls[2]) == [
        f"{OPENING}[Retrieval]<paragraph>{first}\nAbout {first}.</paragraph>[Relevant]1{first}."
        f"[Fully supported][Retrieval]<paragraph>{second}\nAbout {second}.</paragraph>"
        for first in "AB"
        for second in "AB"
    ]


def test_continue_keeps_the_passage_and_retrieves_nothing() -> None:
    def write(prompt: str) -> Segment:
        if CONTINUE in prompt:
            return segment("More.", FULL, USEFUL)
        return segment("One.", RELEVANT, FULL, next=KEEP)

    for mode in ("adaptive", "always"):
        graph, llm = build("A", write)
        result = graph.invoke(QUESTION, context={"mode": mode, "beam_width": 1})
        assert result["usage"]["retrievals"] == 1
        assert llm.calls[-1][0].endswith("One.[Fully supported][Continue to Use Evidence]")
        assert result["cited_answer"] == "One. [1] More. [1]"


def spoilt(given: Reflection) -> Reflection:
    return {**given, "logprobs": dict.fromkeys(given["logprobs"], math.nan)}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: {**s, "logprob": math.nan},
        lambda s: {**s, "logprob": math.inf},
        lambda s: {**s, "reflections": [spoilt(s["reflections"][0]), *s["reflections"][1:]]},
        lambda s: {**s, "reflections": [*s["reflections"][:-1], spoilt(s["reflections"][-1])]},
        lambda s: {**s, "next": spoilt(reflection(AGAIN)), "finish_reason": "retrieval"},
    ],
    ids=["sequence", "infinite", "isrel", "isuse", "next"],
)
@pytest.mark.parametrize("context", [{}, {"closed_set": True}], ids=str)
@pytest.mark.parametrize("title", ["A", "B"])
def test_broken_log_probabilities_never_win(spoil: Any, context: Any, title: str) -> None:
    given = {each: [segment("Sound.", IRRELEVANT, NONE)] for each in "AB"}
    given[title] = [spoil(segment("Spoilt.", RELEVANT, FULL, USEFUL))]
    result, _ = answer(given, **context)
    assert result["answer"].lower().startswith("sound")
    broken = next(c for c in result["candidates"] if c["text"] == "Spoilt.")
    assert broken["dropped"] == "log-probabilities that are not numbers"
    assert all(math.isfinite(c["path_score"]) for c in result["candidates"])


def test_nothing_but_log_probabilities_that_are_no_numbers_is_answered_with_a_note() -> None:
    result, _ = answer({"A": [segment("Spoilt.", RELEVANT, FULL, mean_logprob=math.nan)]})
    assert result["answer"] == "Spoilt."
    assert "not numbers" in result["notes"][0]
    assert result["constraints_met"], "no constraint was set"


@pytest.mark.parametrize(("ended", "why"), [("end", "no text"), ("pruned", "pruned by ISREL")])
def test_a_candidate_without_text_is_not_chosen(ended: str, why: str) -> None:
    silent, spoken = segment("", RELEVANT, FULL, USEFUL), segment("Something.", IRRELEVANT, NONE)
    result, _ = answer({"A": [{**silent, "finish_reason": ended}], "B": [spoken]})
    assert result["answer"] == "Something."
    assert result["candidates"][0]["dropped"] == why


def options(**given: tuple[str, float]) -> dict[str, list[Segment]]:
    """An answer from each passage, and how likely it is relevant."""
    return {
        title: [segment(text, {"[Relevant]": p, "[Irrelevant]": 1 - p}, mean_logprob=math.log(0.1))]
        for title, (text, p) in given.items()
    }


def test_closed_sets_sum_scores_by_answer() -> None:
    given = options(A=("False.", 0.9), B=("true", 0.5), C=("True", 0.7))
    result, _ = answer(given, closed_set=True)
    assert result["answer"] == "true"
    assert [c["chosen"] for c in result["candidates"]] == [False, False, True], "the best backer"
    assert result["options"] == {"true": pytest.approx(1.4), "false": pytest.approx(1.0)}
    assert list(result["options"]) == ["true", "false"], "best first"
    assert result["score"] == pytest.approx(1.4)
    assert answer(given, options=["True", "False"])[0]["answer"] == "True"


def test_candidates_that_match_no_option_are_left_out_of_the_sum_and_counted() -> None:
    given = options(A=("yes", 0.9), B=("Perhaps.", 0.9), C=("Yes.", 0.9))
    result, _ = answer(given, options=["yes", "no"])
    assert result["options"] == {"yes": pytest.approx(2.0)}
    assert result["notes"] == ["1 of 3 candidates match no option; ignored"]
    prose = options(A=("Perhaps.", 0.6), B=("Maybe.", 0.9), C=("Who?", 0.7))
    result, _ = answer(prose, options=["yes", "no"])
    assert (result["answer"], result["options"]) == ("Maybe.", {})
    assert "no candidate gave one of the options" in result["notes"][0]
