"""Counts beside accuracy, and accuracy against abstention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.counts import (
    abstention_curve,
    count,
    official_retrieval_frequency,
)
from selfcorrect_rag.evaluation.rows import Outcome

OUTCOMES = st.fixed_dictionaries(
    {
        "answer": st.sampled_from(("", " ", "Paris")),
        "citations": st.sampled_from(((), ({"number": 1},))),
        "refused": st.booleans(),
        "retrieved": st.booleans(),
        "searched": st.booleans(),
        "action": st.sampled_from(("", "correct", "incorrect", "ambiguous")),
        "error": st.sampled_from(("", "down")),
    }
).map(lambda drawn: Outcome("1", "crag", "")._replace(**drawn))


@given(st.lists(OUTCOMES, min_size=1, max_size=80))
def test_every_row_is_counted_as_one_kind(outcomes: list[Outcome]) -> None:
    counts = count(outcomes)
    assert counts.rows == len(outcomes)
    assert counts.failed + counts.refused + counts.empty + counts.answered == counts.rows
    answered = [o for o in outcomes if o.error == "" and not o.refused and o.answer == "Paris"]
    assert counts.answered == len(answered)
    assert counts.cited == len([o for o in answered if len(o.citations)])
    assert counts.retrieved == len([o for o in outcomes if o.retrieved])
    assert counts.searched == len([o for o in outcomes if o.searched])
    assert counts.corrected == len([o for o in outcomes if o.action in {"ambiguous", "incorrect"}])
    assert counts.share("retrieved") == counts.retrieved / len(outcomes)


def test_failed_rows_are_in_the_divisor() -> None:
    good, failed = Outcome("1", "rag", "Paris"), Outcome("2", "rag", "", error="down")
    assert count([good, failed]).share("answered") == 0.5
    assert count([failed]).empty == 0
    assert count([]).share("answered") is None


def test_the_official_retrieval_frequency_divides_by_the_keys_of_its_result() -> None:
    outcomes = [Outcome(str(i), "rag", "Paris", retrieved=i < 16) for i in range(40)]
    assert official_retrieval_frequency(outcomes) == 2
    assert count(outcomes).share("retrieved") == 0.4


def test_a_curve_goes_from_the_surest_rows_to_all_that_answer() -> None:
    answered = [Outcome(str(i), "rag", "Paris") for i in range(4)]
    refused = Outcome("4", "rag", "I do not know.", refused=True)
    unscored = Outcome("5", "rag", "Paris")
    curve = abstention_curve(
        [*answered, refused, unscored],
        [1.0, 0.0, 1.0, 0.0, 0.0, None],
        [0.9, 0.5, 0.5, 0.1, 1.0, 1.0],
    )
    assert curve == [(0.9, 0.2, 1.0), (0.5, 0.6, pytest.approx(2 / 3)), (0.1, 0.8, 0.5)]


def test_without_confidences_the_curve_is_the_method_as_it_ran() -> None:
    outcomes = [Outcome("1", "rag", "Paris"), Outcome("2", "rag", "", error="down")]
    assert abstention_curve(outcomes, [1.0, 0.0]) == [(0.0, 0.5, 1.0)]
    assert abstention_curve(outcomes[1:], [0.0]) == []
    with pytest.raises(BadArgument, match="2 outcomes, 1 scores and 2 confidences"):
        abstention_curve(outcomes, [1.0])


SCORED = st.tuples(
    OUTCOMES, st.sampled_from((None, 0.0, 0.5, 1.0)), st.sampled_from((0.1, 0.5, 0.5, 0.9))
)


@given(st.lists(SCORED, min_size=1, max_size=60))
def test_each_point_is_what_its_threshold_gives(rows: list[tuple[Outcome, float, float]]) -> None:
    outcomes, scores, confidences = (list(each) for each in zip(*rows, strict=True))
    scored = [row for row in rows if row[1] is not None]
    for point in abstention_curve(outcomes, scores, confidences):
        kept = [s for o, s, c in scored if c >= point.threshold and count([o]).answered]
        assert point.answered == len(kept) / len(scored)
        assert point.accuracy == pytest.approx(sum(kept) / len(kept))
