"""generate_and_critique alone: what it asks for, and whole candidates, events, notes and costs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document

from selfcorrect_rag.nodes.generate_and_critique import (
    generate_and_critique,
    prompted_notes,
    scored,
)
from selfcorrect_rag.prompts import segment_prompt
from selfcorrect_rag.reflection import Reflection, ScoredSegment
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Segment, SelfCRAGState, Usage
from tests.nodes.one_node import Ran, beam, candidate, costs, run_node
from tests.scripted import (
    FULL,
    RELEVANT,
    ScriptedReflectionLLM,
    nearly,
    passage_of,
    reflection,
    segment,
)
from tests.test_costs import ByRequest

PASSAGES = [Document(f"Text {i}.", metadata={"title": f"T{i}"}) for i in range(4)]
USAGE = Usage(
    model_calls=1,
    prompts=2,
    prompt_tokens=3,
    generated_tokens=4,
    retrievals=5,
    pruned=6,
    tokens_saved=7,
)
FIRST = [candidate(f"First {i}.", passage=i, next="retrieve") for i in range(4)]
BEAMS = [
    beam(FIRST[3], next=None),
    beam(FIRST[2], next="continue", retrieved=[0]),
    beam(FIRST[1], retrieved=[0, 2]),
    beam(FIRST[0], next="none", retrieved=[0]),
    beam(FIRST[3], retrieved=[]),
]
ASKS: Any = [
    (1, "continue", 2),
    (2, "retrieve", 0),
    (2, "retrieve", 2),
    (3, "none", None),
    (4, "none", None),
]
"""Beam, step and passage of all that these beams ask for."""
AGAIN = {"[Retrieval]": 0.75, "[No Retrieval]": 0.25}
KEEP = {"[Continue to Use Evidence]": 0.5, "[Retrieval]": 0.2, "[No Retrieval]": 0.3}
NAN = math.nan


def run(
    llm: ScriptedReflectionLLM,
    *,
    state: Any = None,
    source: Any = None,
    config: Any = None,
    **knobs: Any,
) -> Ran:
    given = {
        "question": "Who?",
        "beams": BEAMS,
        "candidates": FIRST,
        "depth": 1,
        "passages": PASSAGES,
        "notes": ["before"],
        "usage": USAGE,
        "costs": costs(),
        **(state or {}),
    }
    node = generate_and_critique(llm, SelfRAGSettings(), *([source] if source else []))
    return run_node(node, SelfCRAGState, given, SelfRAGSettings(**knobs), **(config or {}))


def first(write: Callable[[str], Segment], *passages: int, **options: Any) -> Ran:
    """The first segments, one for each passage."""
    opening = {"beams": [beam(retrieved=list(passages or [0]))], "candidates": [], "depth": 0}
    state = {**opening, **options.pop("state", {})}
    return run(ScriptedReflectionLLM(write=write), state=state, **options)


def one(written: Segment, **knobs: Any) -> Any:
    """The candidate that a segment makes, beside one that is sound."""

    def write(prompt: str) -> Segment:
        return written if passage_of(prompt) == "T0" else segment("Sound.")

    return first(write, 0, 1, **knobs).update["candidates"][0]


# What is asked for


class Starts(BaseCallbackHandler):
    run_inline = True

    def __init__(self) -> None:
        self.prompts = 0

    def on_llm_start(self, serialized: Any, prompts: list[str], **kwargs: Any) -> None:
        self.prompts += len(prompts)


@pytest.mark.parametrize("source", [None, "passages", "knowledge"])
def test_all_beams_are_asked_for_in_one_batch(source: str | None) -> None:
    llm, starts = ScriptedReflectionLLM(write=lambda prompt: segment(".")), Starts()
    state = {"passages": [], source or "passages": PASSAGES}
    ran = run(
        llm,
        state=state,
        source=source,
        config={"callbacks": [starts]},
        instruction="Say it.",
        segment_tokens=33,
        prune_below=0.25,
    )
    prompts = [
        segment_prompt("Say it.## Input:\n\nWho?", BEAMS[b]["segments"], PASSAGES, step, passage)
        for b, step, passage in ASKS
    ]
    assert llm._calls == [prompts] * 2, "the sync and the async form"
    for options in llm._options:
        asked = {k: options[k] for k in ("max_tokens", "prune_below", "critique")}
        assert asked == {"max_tokens": 33, "prune_below": 0.25, "critique": True}
        assert options["stop_at_retrieval"] is True
    assert starts.prompts == 2 * len(ASKS), "a trace of the run shows each prompt"
    made = ran.update["candidates"]
    assert made[:4] == FIRST
    assert [(c["beam"], c["step"], c["passage"]) for c in made[4:]] == ASKS
    assert [c["parent"] for c in made[4:]] == [2, 1, 1, 0, 3]
    assert {c["depth"] for c in made[4:]} == {1}
    assert [(e["beam"], e["passage"]) for e in ran.events] == [(b, p) for b, _, p in ASKS]


def test_in_short_form_a_whole_answer_is_asked_for() -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: segment("."))
    run(llm, form="short")
    assert [options["stop_at_retrieval"] for options in llm._options] == [False, False]


@pytest.mark.parametrize(
    ("kind", "knobs", "written", "limit"),
    [
        # 3 calls and 40 tokens are spent; a segment takes 100 tokens, and by request 2 calls.
        (ByRequest, {"max_model_calls": 13}, 5, None),
        (ByRequest, {"max_model_calls": 12}, 4, "max_model_calls"),
        (ByRequest, {"max_model_calls": 7}, 2, "max_model_calls"),
        (ByRequest, {"max_model_calls": 6}, 1, "max_model_calls"),
        (ByRequest, {"max_model_calls": 5}, 1, "max_model_calls"),
        (ByRequest, {"max_model_calls": 4}, 0, "max_model_calls"),
        (ScriptedReflectionLLM, {"max_model_calls": 4}, 5, None),
        (ScriptedReflectionLLM, {"max_tokens": 540}, 5, None),
        (ScriptedReflectionLLM, {"max_tokens": 539}, 4, "max_tokens"),
        (ScriptedReflectionLLM, {"max_tokens": 240}, 2, "max_tokens"),
        (ScriptedReflectionLLM, {"max_tokens": 239}, 1, "max_tokens"),
        (ByRequest, {"max_tokens": 1}, 1, "max_tokens"),
    ],
)
def test_a_limit_leaves_the_first_candidates_of_the_best_beam_and_then_one_without_critique(
    kind: Any, knobs: dict[str, int], written: int, limit: str | None
) -> None:
    """``written`` 0 is the only one, without critique."""
    llm = kind(write=lambda prompt: segment(f"{passage_of(prompt)}.", shortened=9))
    ran = run(llm, state={"costs": costs(3, 40)}, **knobs)
    count = max(written, 1)
    made = ran.update["candidates"][4:]
    assert [(c["beam"], c["step"], c["passage"]) for c in made] == ASKS[:count]
    assert [options["critique"] for options in llm._options] == [written > 0] * 2
    shortened = (
        f"{count} of {count} prompts were longer than the model's context: "
        "up to 9 tokens were cut, passages first"
    )
    events = [event for event in ran.events if event["event"] == "stopped"]
    if limit is None:
        assert "stopped" not in ran.update
        assert (ran.update["notes"], events) == (["before", shortened], [])
        return
    note = f"{limit} is {knobs[limit]}: {count} of 5 candidates were written"
    note += "" if written else ", without critique"
    assert ran.update["stopped"] == limit
    assert ran.update["notes"] == ["before", shortened, note]
    assert events == [{"event": "stopped", "by": limit, "note": note}]


# Candidates


def judged(**fields: Any) -> Segment:
    """ISREL 0.75, ISSUP 0.625, ISUSE 0.75, and 0.5 for its words."""
    return segment(
        "Said.",
        {"[Relevant]": 0.75, "[Irrelevant]": 0.25},
        {
            "[Fully supported]": 0.5,
            "[Partially supported]": 0.25,
            "[No support / Contradictory]": 0.25,
        },
        {"[Utility:5]": 0.5, "[Utility:4]": 0.5},
        mean_logprob=math.log(0.5),
        tokens=4,
        **fields,
    )


WEIGHTS = {"weight_isrel": 2, "weight_issup": 4, "weight_isuse": 1, "weight_sequence": 8}


def test_a_whole_candidate_and_its_event() -> None:
    llm = ScriptedReflectionLLM(write=lambda prompt: judged(next=AGAIN))
    beams = [BEAMS[0], beam(FIRST[1], FIRST[2], retrieved=[3])]
    ran = run(llm, state={"beams": beams, "depth": 2}, path_rule="sum", **WEIGHTS)
    expected = {
        "depth": 2,
        "beam": 1,
        "parent": 2,
        "step": "retrieve",
        "passage": 3,
        "text": "Said.",
        "pieces": judged()["pieces"],
        "judgements": {
            "ISREL": {"[Irrelevant]": 0.25, "[Relevant]": 0.75},
            "ISSUP": {
                "[Fully supported]": 0.5,
                "[Partially supported]": 0.25,
                "[No support / Contradictory]": 0.25,
            },
            "ISUSE": {
                **{f"[Utility:{grade}]": 0.0 for grade in (1, 2, 3)},
                "[Utility:4]": 0.5,
                "[Utility:5]": 0.5,
            },
        },
        "critique": {"ISREL": 0.75, "ISSUP": 0.625, "ISUSE": 0.75},
        "sequence_probability": 0.5,
        "hard": [],
        "score": 8 * 0.5 + 2 * 0.75 + 4 * 0.625 + 0.75,
        "terms": [
            {"name": "p(y)", "weight": 8, "value": 0.5},
            {"name": "ISREL", "weight": 2, "value": 0.75},
            {"name": "ISSUP", "weight": 4, "value": 0.625},
            {"name": "ISUSE", "weight": 1, "value": 0.75},
        ],
        "path_score": 2 * (8 + 2 + 4) + 8.75,
        "path_rule": "sum",
        "path_terms": [14.0, 14.0, 8.75],
        "next": "retrieve",
        "finish_reason": "retrieval",
        "dropped": None,
        "chosen": False,
    }
    assert nearly(ran.update["candidates"], [*FIRST, expected])
    event = {
        "event": "candidate_scored",
        "depth": 2,
        "beam": 1,
        "passage": 3,
        "text": "Said.",
        "critique": {"ISREL": 0.75, "ISSUP": 0.625, "ISUSE": 0.75},
        "score": 8.75,
    }
    assert nearly(ran.events, [event])
    assert ran.update.keys() == {"candidates", "notes", "usage"}
    assert ran.update["notes"] == ["before"]
    assert ran.update["usage"] == {
        "model_calls": 2,
        "prompts": 3,
        "prompt_tokens": 10,
        "generated_tokens": 8,
        "retrievals": 5,
        "pruned": 6,
        "tokens_saved": 7,
    }
    assert (ran.cost["model_calls"], ran.cost["prompt_tokens"]) == (1, 7)


def test_a_first_candidate_has_no_parent_and_a_path_of_its_own() -> None:
    made = one(judged(), **WEIGHTS)
    assert (made["parent"], made["depth"], made["beam"]) == (None, 0, 0)
    assert made["path_score"] == made["score"] == pytest.approx(8.75)
    assert (made["next"], made["finish_reason"]) == (None, "end")


@pytest.mark.parametrize(("step", "mean"), [("retrieve", 5.25), ("none", 7.0)])
def test_only_a_passage_of_its_own_is_asked_for_judgements(step: str, mean: float) -> None:
    """Without one, a segment takes the mean ISREL and ISSUP of its path (14 and then 4 or 14)."""
    beams = [beam(candidate("First."), next=step, retrieved=[0])]
    llm = ScriptedReflectionLLM(write=lambda prompt: segment("Said.", mean_logprob=math.log(0.5)))
    ran = run(llm, state={"beams": beams, "candidates": [candidate("First.")]}, **WEIGHTS)
    first_score, second = 14.0, (4.0 if step == "retrieve" else 10.0)
    assert ran.update["candidates"][-1]["path_score"] == pytest.approx((first_score + second) / 2)


def test_a_path_is_scored_by_its_critiques_and_by_what_was_retrieved() -> None:
    path = [
        candidate("One.", ISREL=0.1, ISSUP=0.2, ISUSE=0.3, sequence_probability=0.4),
        candidate("Two.", ISREL=None, ISSUP=None, step="continue", sequence_probability=None),
    ]
    assert scored(path) == [
        ScoredSegment({"ISREL": 0.1, "ISSUP": 0.2, "ISUSE": 0.3}, 0.4, True),
        ScoredSegment({"ISREL": None, "ISSUP": None, "ISUSE": None}, None, False),
    ]


@pytest.mark.parametrize(
    ("written", "with_passage", "without"),
    [
        (segment(".", next=KEEP), "continue", "retrieve"),
        (segment(".", next=AGAIN), "retrieve", "retrieve"),
        (segment("."), None, None),
        (segment(".", next=dict.fromkeys(AGAIN, NAN)), None, None),
    ],
)
def test_how_it_goes_on(written: Segment, with_passage: Any, without: Any) -> None:
    ran = run(ScriptedReflectionLLM(write=lambda prompt: written))
    assert [c["next"] for c in ran.update["candidates"][4:]] == [with_passage] * 3 + [without] * 2


def test_judgements_are_the_first_of_their_group_that_can_be_read() -> None:
    broken = {"[Relevant]": NAN, "[Irrelevant]": NAN}
    made = one(segment(".", broken, {"[Relevant]": 0.25, "[Irrelevant]": 0.75}, RELEVANT))
    assert nearly(made["judgements"], {"ISREL": {"[Irrelevant]": 0.75, "[Relevant]": 0.25}})
    assert made["critique"]["ISREL"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("form", "reflections", "isrel", "groups"),
    [
        ("long", [FULL, RELEVANT], 0.9, ["ISSUP", "ISREL"]),
        ("short", [FULL, RELEVANT], None, ["ISSUP"]),
        ("short", [RELEVANT, FULL], 0.9, ["ISREL", "ISSUP"]),
    ],
)
def test_in_short_form_isrel_is_the_one_before_the_first_word(
    form: str, reflections: Any, isrel: float | None, groups: list[str]
) -> None:
    made = one(segment(".", *reflections), form=form)
    assert made["critique"]["ISREL"] == (None if isrel is None else pytest.approx(isrel))
    assert made["critique"]["ISSUP"] == pytest.approx(1.0)
    assert list(made["judgements"]) == groups


PRUNED: Any = {"finish_reason": "pruned"}
UNREADABLE = "log-probabilities that are not numbers"
BROKEN = {"[Relevant]": NAN, "[Irrelevant]": NAN}


@pytest.mark.parametrize(
    ("written", "dropped"),
    [
        (segment("Said.", RELEVANT), None),
        (segment("Said.", mean_logprob=0.0), None),
        ({**segment("Said."), "logprob": None}, None),
        (segment("Said.", mean_logprob=-math.inf), None),
        ({**segment("", BROKEN, {"[Utility:1]": 1.0}), **PRUNED}, "pruned by ISREL"),
        (segment("", {"[Utility:1]": 1.0}, mean_logprob=NAN), UNREADABLE),
        (segment("Said.", mean_logprob=math.inf), UNREADABLE),
        (segment("Said.", RELEVANT, BROKEN), UNREADABLE),
        (segment("Said.", RELEVANT, next=dict.fromkeys(AGAIN, NAN)), UNREADABLE),
        (
            segment("", {"[Utility:2]": 1.0}, {"[Utility:1]": 1.0}),
            "hard constraint [Utility:2]",
        ),
        (segment("", RELEVANT), "no text"),
    ],
)
def test_why_a_candidate_is_dropped(written: Segment, dropped: str | None) -> None:
    made = one(written, hard_constraints=["[Utility:1]", "[Utility:2]"])
    assert made["dropped"] == dropped


# Notes


def prompted(kind: str, given: Any = RELEVANT) -> Reflection:
    return {**reflection(given), "prompted": kind}  # type: ignore[typeddict-item]


SOFT = "the model has no reflection tokens: prompts asked for what they say"
HARD = "its provider gave no probabilities: critiques are hard labels"


@pytest.mark.parametrize(
    ("segments", "notes"),
    [
        ([segment("."), segment(".", RELEVANT, next=AGAIN)], []),
        ([segment("."), {**segment("."), "reflections": [prompted("soft")]}], [SOFT]),
        ([{**segment("."), "reflections": [prompted("hard")]}], [SOFT, HARD]),
        ([{**segment("."), "next": prompted("hard", AGAIN)}, segment(".")], [SOFT, HARD]),
    ],
)
def test_what_no_model_has_generated_is_noted(
    segments: Sequence[Segment], notes: list[str]
) -> None:
    assert prompted_notes(segments) == notes
    assert prompted_notes(segments[::-1]) == notes


def test_hard_labels_are_named_and_noted_once() -> None:
    labels = [prompted("hard"), prompted("soft", {"[Utility:5]": 1.0}), prompted("hard", FULL)]
    written: Segment = {**segment("."), "reflections": labels}
    ran = first(lambda prompt: written, 0, 1, state={"notes": ["before", SOFT]})
    assert [c["hard"] for c in ran.update["candidates"]] == [["ISREL", "ISSUP"]] * 2
    assert ran.update["notes"] == ["before", SOFT, HARD]


def test_prompts_that_were_cut_are_counted_with_the_most_that_was_cut() -> None:
    cut = {"T0": 3, "T1": 0, "T2": 5, "T3": 4}
    ran = first(lambda prompt: segment(".", shortened=cut[passage_of(prompt)]), 0, 1, 2, 3)
    assert ran.update["notes"] == [
        "before",
        "3 of 4 prompts were longer than the model's context: "
        "up to 5 tokens were cut, passages first",
    ]
