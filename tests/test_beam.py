"""The segment beam: long answers, several paths, closed sets."""

import math
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.nodes.decide_retrieval import next_step
from selfcorrect_rag.reflection import Reflection
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Segment
from tests.scripted import (
    FULL,
    IRRELEVANT,
    NONE,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    reflection,
    segment,
)

QUESTION: Any = {"question": "Who?"}
AGAIN = {"[Retrieval]": 0.8, "[No Retrieval]": 0.2}
KEEP = {"[Continue to Use Evidence]": 0.8, "[Retrieval]": 0.1, "[No Retrieval]": 0.1}
ENOUGH = {"[No Retrieval]": 0.95, "[Retrieval]": 0.05}
OPENING = "### Instruction:\nWho?\n\n### Response:\n"
FAIR = {"[Relevant]": 0.5, "[Irrelevant]": 0.5}


def ask(given: Any, **context: Any) -> tuple[dict[str, Any], ScriptedReflectionLLM]:
    """A run on passages that are ``given`` with what is written from each: the first segment of an
    answer, the second, and so on; or on A alone, with a function that writes."""

    def write(prompt: str) -> Segment:
        segments = given[passage_of(prompt)]
        return segments[min(prompt.count("<paragraph>"), len(segments)) - 1]

    llm = ScriptedReflectionLLM(write=given if callable(given) else write)
    found = [document(title) for title in ("A" if callable(given) else given)]
    queries: list[str] = []

    def retrieve(query: str) -> list[Document]:
        queries.append(query)
        return found

    result = create_self_rag(llm, retrieve).invoke(QUESTION, context=context)
    return {**result, "queries": queries}, llm


def test_each_beam_has_its_own_text_passages_and_query_and_all_one_batch_a_segment() -> None:
    """First A is better, then B."""
    worse = {"[Relevant]": 0.6, "[Irrelevant]": 0.4}
    first, second = (
        segment("1A.", RELEVANT, FULL, next=AGAIN),
        segment("1B.", worse, FULL, next=AGAIN),
    )
    later = segment("2A.", IRRELEVANT, FULL, USEFUL), segment("2B.", RELEVANT, FULL, USEFUL)
    result, llm = ask({"A": [first, later[0]], "B": [second, later[1]]})
    assert [len(call) for call in llm.calls] == [1, 2, 4]
    assert result["usage"]["model_calls"] == 3
    assert result["cited_answer"] == "1A. [1] 2B. [2]"
    assert sorted(result["queries"]) == ["Who?", "Who? 1A.", "Who? 1B."]
    assert [p.id for p in result["passages"]] == ["A", "B"], "each passage is kept once"
    assert sorted(llm.calls[2]) == [
        f"{OPENING}[Retrieval]<paragraph>{first}\nAbout {first}.</paragraph>[Relevant]1{first}."
        f"[Fully supported][Retrieval]<paragraph>{second}\nAbout {second}.</paragraph>"
        for first in "AB"
        for second in "AB"
    ]


def test_continue_keeps_the_passage_and_retrieves_nothing() -> None:
    def write(prompt: str) -> Segment:
        if "[Continue to Use Evidence]" in prompt:
            return segment("More.", FULL, USEFUL)
        return segment("One.", RELEVANT, FULL, next=KEEP)

    for mode in ("adaptive", "always"):
        result, llm = ask(write, mode=mode, beam_width=1)
        assert result["queries"] == ["Who?"]
        assert llm.calls[-1][0].endswith("One.[Fully supported][Continue to Use Evidence]")
        assert result["cited_answer"] == "One. [1] More. [1]"
        assert result["citations"][0]["segments"] == [0, 1]
        assert "[Continue" not in result["answer"]


@pytest.mark.parametrize(
    ("mode", "keep", "enough"),
    [
        ("adaptive", "continue", "none"),
        ("always", "continue", "retrieve"),
        ("never", *["none"] * 2),
    ],
)
def test_a_retrieval_token_and_the_mode_choose_the_next_step(
    mode: str, keep: str, enough: str
) -> None:
    settings, said = SelfRAGSettings.of({"mode": mode}), map(reflection, (KEEP, ENOUGH))
    assert [next_step(token, settings, has_evidence=True) for token in said] == [keep, enough]


def test_citations_follow_the_passage_that_was_read() -> None:
    """A segment without evidence in between is not cited, and shifts no number after it."""

    def write(prompt: str) -> Segment:
        if prompt.endswith("[No Retrieval]"):
            return segment("An aside.", next=AGAIN)
        if "An aside." in prompt:
            return segment("Second fact.", RELEVANT, FULL)
        return segment("First fact.", RELEVANT, FULL, next=ENOUGH)

    llm = ScriptedReflectionLLM(write=write)
    graph = create_self_rag(llm, lambda q: [document("Later" if "aside" in q else "Early")])
    result = graph.invoke(QUESTION)
    assert result["cited_answer"] == "First fact. [1] An aside. Second fact. [2]"
    assert [c["title"] for c in result["citations"]] == ["Early", "Later"]


def short_or_long(**certain: float) -> dict[str, list[Segment]]:
    """A finished answer from A (score 2.9), or one of four segments from B (the first: 2.0)."""
    later = [
        segment(f"Long {n}.", {"[Relevant]": 1.0}, FULL, next=AGAIN, **certain) for n in (2, 3)
    ]
    later.append(segment("Long 4.", {"[Relevant]": 1.0}, FULL, **certain))
    short = segment("Short and right.", RELEVANT, FULL, USEFUL)
    return {"A": [short, *later], "B": [segment("Long 1.", FAIR, FULL, next=AGAIN), *later]}


def test_a_finished_answer_takes_no_place_of_one_that_becomes_better() -> None:
    """With a beam of one, the long answer is followed although a better one is finished."""
    result, llm = ask(short_or_long(mean_logprob=0.0), beam_width=1, weight_isuse=0.1)
    # 2.0, 3.0, 3.0 and 3.0 against 2.5
    assert result["answer"] == "Long 1. Long 2. Long 3. Long 4."
    assert result["score"] == pytest.approx(2.75)
    assert len(llm.calls) == 5


def test_what_cannot_become_better_than_a_finished_answer_is_not_continued() -> None:
    result, llm = ask(short_or_long(), depth=2)  # at best (2.0 + 3.5) / 2 against 2.9
    assert result["answer"] == "Short and right."
    assert len(llm.calls) == 2
    assert result["notes"] == [], "nothing of the answer was cut"


@pytest.mark.parametrize("depth", [1, 3])
def test_depth_is_the_number_of_segments(depth: int) -> None:
    result, llm = ask({"A": [segment("More.", RELEVANT, FULL, next=AGAIN)]}, depth=depth)
    assert result["answer"].split() == ["More."] * depth
    assert len(llm.calls) == 1 + depth
    assert f"limit of {depth} segments" in result["notes"][-1]


def test_paths_are_compared_by_the_rule_that_is_chosen() -> None:
    """One strong segment, or three fair ones."""
    going, last = segment("Fair.", FAIR, FULL, next=AGAIN), segment("Fair.", FAIR, FULL)
    given = {"A": [segment("Strong.", RELEVANT, FULL), going, last], "B": [going, going, last]}
    assert ask(given)[0]["answer"] == "Strong."
    assert ask(given, path_rule="sum")[0]["answer"] == "Fair. Fair. Fair."
    assert ask(given, path_rule="product")[0]["score"] == pytest.approx(2.0**3)  # beats 2.4


def test_a_note_on_what_was_cut_is_about_the_answer_that_is_given() -> None:
    going = segment("Going on.", IRRELEVANT, NONE, next=AGAIN)
    result, _ = ask({"A": [segment("Right.", RELEVANT, FULL, USEFUL)], "B": [going]}, depth=1)
    assert (result["answer"], result["notes"]) == ("Right.", [])


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
@pytest.mark.parametrize("spoilt_title", ["A", "B"])
def test_log_probabilities_that_are_no_numbers_never_win(
    spoil: Any, context: dict[str, Any], spoilt_title: str
) -> None:
    given = {title: [segment("Sound.", IRRELEVANT, NONE)] for title in "AB"}
    given[spoilt_title] = [spoil(segment("Spoilt.", RELEVANT, FULL, USEFUL))]
    result, _ = ask(given, **context)
    assert result["answer"].lower().startswith("sound")
    broken = next(c for c in result["candidates"] if c["text"] == "Spoilt.")
    assert broken["dropped"] == "log-probabilities that are not numbers"
    assert all(math.isfinite(c["path_score"]) for c in result["candidates"])


def test_nothing_but_log_probabilities_that_are_no_numbers_is_answered_with_a_note() -> None:
    result, _ = ask({"A": [segment("Spoilt.", RELEVANT, FULL, mean_logprob=math.nan)]})
    assert result["answer"] == "Spoilt."
    assert "not numbers" in result["notes"][0]
    assert result["constraints_met"], "no constraint was set"


@pytest.mark.parametrize(("ended", "why"), [("end", "no text"), ("pruned", "pruned by ISREL")])
def test_a_candidate_without_text_is_not_chosen(ended: str, why: str) -> None:
    silent, spoken = segment("", RELEVANT, FULL, USEFUL), segment("Something.", IRRELEVANT, NONE)
    result, _ = ask({"A": [{**silent, "finish_reason": ended}], "B": [spoken]})
    assert result["answer"] == "Something."
    assert result["candidates"][0]["dropped"] == why


def option(text: str, relevant: float) -> list[Segment]:
    judged = {"[Relevant]": relevant, "[Irrelevant]": 1 - relevant}
    return [segment(text, judged, mean_logprob=math.log(0.1))]


def test_closed_sets_sum_scores_by_answer() -> None:
    given = {"A": option("False.", 0.9), "B": option("true", 0.5), "C": option("True", 0.7)}
    result, _ = ask(given, closed_set=True)
    assert result["answer"] == "true"
    assert [c["chosen"] for c in result["candidates"]] == [False, False, True], "the best backer"
    assert result["options"] == {"true": pytest.approx(1.4), "false": pytest.approx(1.0)}
    assert list(result["options"]) == ["true", "false"], "best first"
    assert result["score"] == pytest.approx(1.4)
    assert ask(given, options=["True", "False"])[0]["answer"] == "True"


def test_candidates_that_match_no_option_are_left_out_of_the_sum_and_counted() -> None:
    given = {"A": option("yes", 0.9), "B": option("Perhaps.", 0.9), "C": option("Yes.", 0.9)}
    result, _ = ask(given, options=["yes", "no"])
    assert result["options"] == {"yes": pytest.approx(2.0)}
    assert result["notes"] == ["1 of 3 candidates match no option; ignored"]
    prose = {"A": option("Perhaps.", 0.6), "B": option("Maybe.", 0.9), "C": option("Who?", 0.7)}
    result, _ = ask(prose, options=["yes", "no"])
    assert (result["answer"], result["options"]) == ("Maybe.", {})
    assert "no candidate gave one of the options" in result["notes"][0]
