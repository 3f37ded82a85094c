"""beam_select alone: which beams it keeps, what it notes, its event and what it streams."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.nodes.beam_select import beam_select, surviving
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate, SelfCRAGState
from tests.nodes.one_node import Ran, beam, candidate, costs, run_node
from tests.scripted import ScriptedReflectionLLM, segment
from tests.test_costs import ByRequest

PASSAGES = [Document(f"Text {i}.", metadata={"title": f"T{i}"}) for i in range(4)]
START = beam(score=0.0)


def select(
    beams: Sequence[Beam],
    candidates: Sequence[Candidate],
    *,
    llm: Any = None,
    source: Any = None,
    state: Any = None,
    **knobs: Any,
) -> Ran:
    given = {
        "question": "Who?",
        "reply_id": "reply",
        "beams": list(beams),
        "candidates": list(candidates),
        "depth": max(c["depth"] for c in candidates),
        "passages": PASSAGES,
        "notes": ["before"],
        "costs": costs(),
        **(state or {}),
    }
    llm = llm or ScriptedReflectionLLM(write=lambda prompt: segment("."))
    node = beam_select(llm, SelfRAGSettings(), *([source] if source else []))
    return run_node(node, SelfCRAGState, given, SelfRAGSettings(**knobs))


def chosen(text: str, score: float, settled: int, **fields: Any) -> dict[str, Any]:
    given = {"event": "segment_chosen", "text": text, "passage": 0, "score": score}
    return {**given, "answer": text, "settled": settled, **fields}


def test_each_candidate_makes_a_beam_that_ends_with_it() -> None:
    first = candidate("First.", next="retrieve", path_score=2.0)
    old = beam(first, score=2.0, retrieved=[0, 1])
    worse = candidate("Worse.", depth=1, next="continue", path_score=2.25, passage=1)
    best = candidate("Best.", depth=1, next="none", path_score=2.5, score=9.0, passage=2)
    lost = candidate("Lost.", depth=1, path_score=5.0, dropped="pruned by ISREL")
    ran = select([old], [first, worse, best, lost])
    assert ran.update == {
        "beams": [
            beam(first, best, score=2.5, next="none"),
            beam(first, worse, score=2.25, next="continue"),
        ],
        "depth": 2,
    }
    assert ran.events == [
        chosen("Best.", 2.5, 1, answer="First. Best.", passage=2),
    ]
    assert ran.said == []


def test_what_all_beams_begin_with_from_now_on_is_said() -> None:
    first = [candidate(f"First {i}.", passage=i, next="retrieve") for i in range(2)]
    new = [
        candidate("More.", depth=1, beam=i, passage=p, next="retrieve", path_score=3.0 - p)
        for p, i in enumerate((0, 0, 1))
    ]
    ran = select([beam(c) for c in first], [*first, *new], beam_width=2)
    assert [b["segments"] for b in ran.update["beams"]] == [[first[0], new[0]], [first[0], new[1]]]
    assert ran.said == ["First 0. [1]"]
    assert ran.events == [chosen("More.", 3.0, 1, answer="First 0. More.")]


def test_what_was_settled_before_is_not_said_again() -> None:
    first = candidate("First.", next="retrieve")
    second = candidate("Second.", depth=1, next="none", path_score=2.0, passage=2)
    ran = select([beam(first)], [first, second])
    assert ran.said == [" Second. [2]"]
    assert ran.events == [chosen("Second.", 2.0, 2, answer="First. Second.", passage=2)]


def test_a_finished_beam_and_each_beam_with_candidates_of_its_own_stay_in_the_race() -> None:
    done = beam(candidate("Done."), score=1.0, next=None)
    going = candidate("Going.", passage=1, next="retrieve")
    more = candidate("More.", depth=1, beam=1, passage=1, next="retrieve", path_score=2.0)
    ran = select([done, beam(going)], [done["segments"][0], going, more])
    assert ran.update["beams"] == [beam(going, more, score=2.0), done]
    assert ran.said == []


@pytest.mark.parametrize("cited", [True, False])
def test_knowledge_that_was_judged_irrelevant_is_not_cited(cited: bool) -> None:
    state = {
        "passages": [],
        "knowledge": PASSAGES,
        "judged": ["relevant" if cited else "irrelevant", None, None, None],
    }
    ran = select([START], [candidate("Said.")], source="knowledge", state=state)
    assert ran.said == ["Said. [1]" if cited else "Said."]


# Which beams survive


@pytest.mark.parametrize("score", [2.0, 3.0])
def test_ties_go_to_the_earlier(score: float) -> None:
    ran = select(
        [START],
        [
            candidate(f"{place} {end}", passage=place, next=end, path_score=score)
            for place in range(3)
            for end in ("retrieve", None)
        ],
        beam_width=2,
    )
    assert [b["segments"][0]["text"] for b in ran.update["beams"]] == [
        "0 None",
        "0 retrieve",
        "1 retrieve",
    ]


@pytest.mark.parametrize(
    ("rule", "to_beat", "stays"),
    # One segment of 3.0 and one to come of at most 3.5
    [
        ("sum", 6.5, False),
        ("sum", 6.25, True),
        ("product", 10.5, False),
        ("product", 10.25, True),
        ("mean", 3.25, False),
        ("mean", 3.125, True),
    ],
)
def test_a_beam_is_continued_where_its_best_is_better_than_the_finished(
    rule: Any, to_beat: float, stays: bool
) -> None:
    done, going = beam(candidate("Done."), score=to_beat, next=None), beam(candidate("Going."))
    settings = SelfRAGSettings(path_rule=rule)
    kept = surviving([going, done], settings, further=1)
    assert kept == ([done, going] if stays else [done])


def test_one_finished_beam_and_the_width_of_others_are_kept_best_first() -> None:
    done = [beam(candidate(f"D{s}"), score=s, next=None) for s in (0.5, 1.5)]
    going = [beam(candidate(f"G{s}"), score=s) for s in (1.0, 3.0, 2.0)]
    settings = SelfRAGSettings(beam_width=2)
    assert surviving([*done, *going], settings, further=1) == [going[1], going[2], done[1]]
    assert surviving(going, settings, further=1) == [going[1], going[2]]


@pytest.mark.parametrize("further", [0, -1])
def test_where_no_segment_is_left_the_best_is_cut(further: int) -> None:
    done = beam(candidate("Done."), score=1.0, next=None)
    going = [beam(candidate(f"G{s}"), score=s) for s in (2.0, 3.0)]
    settings = SelfRAGSettings(depth=4)
    cut = "the answer was cut at its limit of 4 segments"
    assert surviving([done, *going], settings, further) == [{**going[1], "next": None, "cut": cut}]
    assert surviving([{**done, "score": 4.0}, *going], settings, further) == [
        {**done, "score": 4.0}
    ]


@pytest.mark.parametrize(("depth", "cut"), [(3, False), (2, True), (1, True)])
def test_depth_counts_the_segments_that_are_written(depth: int, cut: bool) -> None:
    first, going = candidate("First."), candidate("Going.", depth=1, next="retrieve")
    (kept,) = select([beam(first)], [first, going], depth=depth).update["beams"]
    note = f"the answer was cut at its limit of {depth} segments"
    ends: Any = {"next": None, "cut": note} if cut else {"next": "retrieve"}
    assert kept == beam(first, going, **ends)


# Beams whose candidates are dropped


def test_a_beam_ends_where_all_its_candidates_are_dropped() -> None:
    first = [
        candidate(f"B{i}.", passage=i, next="retrieve", path_score=3.0 - i / 8) for i in range(4)
    ]
    beams = [beam(c, score=c["path_score"], retrieved=[i]) for i, c in enumerate(first)]
    beams[0]["next"] = None
    reasons = {1: ["no text", None], 2: ["no text", "pruned by ISREL", "no text"]}
    new = [
        candidate("More.", depth=1, beam=i, dropped=why, next="retrieve", path_score=2.9)
        for i, whys in reasons.items()
        for why in whys
    ]
    ended = {**beams[2], "next": None}
    ended["cut"] = (
        "the answer ends after segment 1: all candidates for the next dropped "
        "(no text, pruned by ISREL)"
    )

    def best_of(*these: Beam) -> list[Beam]:
        return select(list(these), [*first, *new]).update["beams"]  # type: ignore[no-any-return]

    assert best_of(beams[0], *beams[1:]) == [beams[0], beam(first[1], new[1], score=2.9)]
    weak = {**beams[0], "score": 0.0}
    assert best_of(weak, *beams[1:]) == [  # type: ignore[arg-type]
        beam(first[1], new[1], score=2.9),
        ended,
    ]
    # A limit left the last one no candidates: it ends without a word of its own.
    strong = {**beams[3], "score": 2.9375}
    quiet = {**strong, "next": None}
    assert best_of(weak, beams[1], beams[2], strong)[0] == quiet  # type: ignore[arg-type]


def test_where_all_first_segments_are_dropped_the_best_with_text_is_given() -> None:
    def best_of(*those: tuple[str, float, str]) -> Ran:
        made = [
            candidate(text, path_score=score, dropped=why, next="retrieve", passage=i)
            for i, (text, score, why) in enumerate(those)
        ]
        ran = select([START], made)
        (kept,) = ran.update["beams"]
        (only,) = kept["segments"]
        assert kept == beam(only, score=only["path_score"], next=None)
        return ran

    ran = best_of(("", 9.0, "no text"), ("Two.", 2.0, "hard constraint x"), ("Three.", 2.0, "y"))
    assert ran.update["constraints_met"] is False
    assert ran.update["notes"] == [
        "before",
        "every candidate was dropped (hard constraint x): the best of them is given all the same",
    ]
    assert ran.events == [chosen("Two.", 2.0, 1, passage=1)]
    best = best_of(
        ("Two.", 2.0, "no text"), ("Three.", 2.5, "log-probabilities that are not numbers")
    )
    assert best.update["constraints_met"] is True
    assert best.said == ["Three. [1]"]
    assert best_of(("", 2.0, "no text")).update["constraints_met"] is True


# Limits


@pytest.mark.parametrize("kind", [ScriptedReflectionLLM, ByRequest])
@pytest.mark.parametrize("spare", [0, -1])
@pytest.mark.parametrize("limit", ["max_model_calls", "max_tokens"])
def test_beams_end_as_they_are_where_no_segment_more_is_allowed(
    kind: Any, spare: int, limit: str
) -> None:
    two = [
        candidate(f"Path {i}.", passage=i, next="retrieve", path_score=2.0 + i / 8)
        for i in range(2)
    ]
    needed = {"max_model_calls": 3 + (2 if kind is ByRequest else 1), "max_tokens": 40 + 30}
    most = needed[limit] + spare
    ran = select(
        [START],
        two,
        llm=kind(write=lambda prompt: segment(".")),
        state={"costs": costs(3, 40)},
        segment_tokens=30,
        **{limit: most},
    )
    going = [beam(c, score=c["path_score"]) for c in reversed(two)]
    event = chosen("Path 1.", 2.125, 0, passage=1)
    if spare == 0:
        assert ran.update == {"beams": going, "depth": 1}
        assert ran.events == [event]
        return
    note = f"{limit} is {most}: the answer ends after segment 1"
    assert ran.update == {
        "beams": [{**one, "next": None} for one in going],
        "depth": 1,
        "stopped": limit,
        "notes": ["before", note],
    }
    assert ran.events == [{"event": "stopped", "by": limit, "note": note}, event]


@pytest.mark.parametrize(
    ("done", "said"),
    [(2.5, "no further segment was tried"), (2.0, "the answer ends after segment 1")],
)
def test_a_limit_ends_the_answer_only_where_it_is_the_one_given(done: float, said: str) -> None:
    two = [
        candidate("Done.", path_score=done),
        candidate("Going on.", passage=1, next="retrieve", path_score=2.25),
    ]
    ran = select([START], two, max_model_calls=3, state={"costs": costs(3, 40)})
    assert ran.update["notes"][-1] == f"max_model_calls is 3: {said}"


def test_a_finished_answer_needs_no_further_call() -> None:
    ran = select([START], [candidate("Done.")], max_model_calls=1, state={"costs": costs(1)})
    assert ran.update == {"beams": [beam(candidate("Done."), next=None)], "depth": 1}


# Closed sets


def closed(*those: tuple[str, float], **knobs: Any) -> tuple[list[Candidate], Ran]:
    made = [
        candidate(text, score=score, path_score=9.0 - score, passage=i, next="retrieve")
        for i, (text, score) in enumerate(those)
    ]
    return made, select([START], made, **knobs)


def test_the_answer_with_the_highest_sum_is_given_by_its_best_candidate() -> None:
    made, ran = closed(
        ("Yes.", 1.0), ("No.", 2.0), ("yes", 1.5), ("Yes", 1.5), options=["yes", "no"]
    )
    assert ran.update == {
        "beams": [beam(made[2], score=4.0, next=None)],
        "options": {"yes": 4.0, "no": 2.0},
        "depth": 1,
    }
    assert list(ran.update["options"]) == ["yes", "no"]
    assert ran.events == [chosen("yes", 4.0, 1, passage=2)]
    assert ran.said == [], "a closed set is answered by its option"


def test_sums_are_listed_best_first_and_ties_as_they_came() -> None:
    _, ran = closed(("a", 1.0), ("b", 2.0), ("c", 2.0), ("a", 0.5), closed_set=True)
    assert list(ran.update["options"].items()) == [("b", 2.0), ("c", 2.0), ("a", 1.5)]
    assert ran.update["beams"][0]["segments"][0]["text"] == "b"


def test_what_names_no_option_is_counted_and_what_is_dropped_is_not() -> None:
    made = [
        candidate("yes"),
        candidate("Perhaps."),
        candidate("Who knows."),
        candidate("yes", dropped="no text"),
        candidate("yes"),
    ]
    ran = select([START], made, options=["yes", "no"])
    assert ran.update["options"] == {"yes": 6.0}
    assert ran.update["notes"] == [
        "before",
        "2 of 4 candidates give no one option: they do not count",
    ]


def test_where_no_candidate_names_an_option_the_best_is_given_as_it_is() -> None:
    made, ran = closed(("Perhaps.", 1.0), ("Who knows.", 2.0), ("Well.", 2.0), options=["y", "n"])
    assert ran.update == {
        "beams": [beam(made[1], score=7.0, next=None)],
        "notes": [
            "before",
            "no candidate gave one of the options: the best candidate is given as it is",
        ],
        "depth": 1,
    }


def test_a_closed_set_all_of_whose_candidates_are_dropped_is_answered_all_the_same() -> None:
    made = [candidate("yes", dropped="hard constraint x"), candidate("no", dropped="no text")]
    ran = select([START], made, options=["yes", "no"])
    assert ran.update == {
        "beams": [beam(made[0], next=None)],
        "constraints_met": False,
        "notes": [
            "before",
            "every candidate was dropped (hard constraint x): "
            "the best of them is given all the same",
        ],
        "depth": 1,
    }
