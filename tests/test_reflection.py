"""Every score against values worked by hand (Eq. 3-4, A.3)."""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from selfcorrect_rag.reflection import (
    CONTINUE,
    CONTROL_TOKENS,
    PATH_RULES,
    TOKENS,
    Group,
    Reflection,
    ScoredSegment,
    Weights,
    best_path_score,
    critique,
    is_readable,
    path_score,
    probabilities,
    retrieval_probability,
    segment_score,
    segment_terms,
    sequence_probability,
)
from tests.scripted import reflection


def approx(value: float) -> object:
    return pytest.approx(value, abs=1e-9)


def critique_of(isrel: Any, issup: Any, isuse: Any) -> dict[str, float | None]:
    return {"ISREL": isrel, "ISSUP": issup, "ISUSE": isuse}


SILENT = critique_of(isrel=None, issup=None, isuse=None)


def score(given: dict[str, float]) -> float | None:
    """The one score that a reflection token with these probabilities gives."""
    (found,) = (value for value in critique([reflection(given)]).values() if value is not None)
    return found


def test_the_vocabulary_is_that_of_released_checkpoints() -> None:
    assert len(CONTROL_TOKENS) == len(set(CONTROL_TOKENS)) == 15
    assert CONTROL_TOKENS[:3] == ("[No Retrieval]", "[Retrieval]", "[Continue to Use Evidence]")
    assert CONTROL_TOKENS[5:7] == ("<paragraph>", "</paragraph>")
    assert CONTROL_TOKENS[-1] == "[No support / Contradictory]"


def test_retrieval_is_a_ratio_of_probabilities() -> None:
    for yes, no, expected in ((0.9, 0.09, 0.9 / 0.99), (3e-9, 1e-9, 0.75)):
        decided = reflection({"[Retrieval]": yes, "[No Retrieval]": no})
        assert retrieval_probability(decided) == approx(expected)
        decided["logprobs"][CONTINUE] = -0.01
        assert retrieval_probability(decided) == approx(expected)
    with pytest.raises(ValueError, match=r"no finite log-probability among \[\]"):
        probabilities({})


def test_isrel_issup_isuse_by_hand() -> None:
    assert score({"[Relevant]": 0.6, "[Irrelevant]": 0.2}) == approx(0.75)
    fully, partly, not_at_all = TOKENS["ISSUP"]
    assert score({fully: 0.5, partly: 0.2, not_at_all: 0.1}) == approx((0.5 + 0.1) / 0.8)
    shares = (0.1, 0.1, 0.2, 0.2, 0.4)
    isuse = {f"[Utility:{i}]": share for i, share in enumerate(shares, start=1)}
    assert score(isuse) == approx(-0.1 - 0.05 + 0.0 + 0.1 + 0.4)


def test_the_first_judgement_of_a_group_counts() -> None:
    twice = [reflection({"[Relevant]": 1.0}), reflection({"[Irrelevant]": 1.0})]
    assert critique(twice)["ISREL"] == approx(1.0)


def test_segment_score_by_hand() -> None:
    scores = critique_of(isrel=0.8, issup=0.6, isuse=-0.5)
    assert segment_score(scores, 0.4, Weights()) == approx(0.4 + 0.8 + 0.6 - 0.25)
    assert segment_score(scores, 0.4, Weights(5, 2, 3, 4)) == approx(2.0 + 1.6 + 1.8 - 2.0)
    terms = [(*t.values(),) for t in segment_terms({**scores, "ISSUP": None}, None, Weights())]
    assert terms == [("p(y)", 1, 0), ("ISREL", 1, 0.8), ("ISSUP", 1, 0), ("ISUSE", 0.5, -0.5)]


def test_sequence_probability_is_a_geometric_mean() -> None:
    assert sequence_probability(math.log(0.9) + math.log(0.1), 2) == approx(0.3)
    assert sequence_probability(math.log(0.5), 1) == approx(0.5)
    assert sequence_probability(0.0, 0) == approx(1.0)
    assert sequence_probability(math.inf, 1) is None
    assert sequence_probability(1e-9, 1) == 1.0, "rounding lifts nothing above 1"


@given(st.sampled_from(list(Group)), st.data())
def test_probabilities_sum_to_one_in_every_group(group: Group, data: st.DataObject) -> None:
    normal = probabilities({token: data.draw(st.floats(-800, 0)) for token in TOKENS[group]})
    assert math.fsum(normal.values()) == pytest.approx(1)
    assert all(0 <= p <= 1 for p in normal.values())


@pytest.mark.parametrize("group", list(Group))
def test_a_reflection_without_a_log_probability_says_nothing(group: Group) -> None:
    tokens = TOKENS[group]

    def given_by(logprobs: dict[str, float]) -> Reflection:
        return Reflection(group=group.value, position=0, token=tokens[0], logprobs=logprobs)

    for token, value in product(tokens, (math.nan, math.inf)):
        given = given_by({**dict.fromkeys(tokens, -1.0), token: value})
        assert not is_readable(given)
        assert critique([given]) == SILENT
    silent = dict.fromkeys(tokens, -math.inf)
    assert not is_readable(given_by(silent))
    decides = tokens[-1] != CONTINUE
    assert is_readable(given_by({**silent, tokens[-1]: -1.0})) is decides


def path(*scores: tuple[float | None, float | None, float | None, float]) -> list[ScoredSegment]:
    """Segments with ISREL, ISSUP, ISUSE and p, each of a passage retrieved for it."""
    return [ScoredSegment(critique_of(isrel=r, issup=s, isuse=u), p, True) for r, s, u, p in scores]


def without(sequence: float) -> ScoredSegment:
    """A segment of no passage of its own."""
    return ScoredSegment(SILENT, sequence, False)


unit = st.floats(0, 1)
given_or_not = st.none() | unit
any_critique = st.builds(critique_of, given_or_not, given_or_not, st.none() | st.floats(-1, 1))
any_segment = st.builds(ScoredSegment, any_critique, given_or_not, st.booleans())
retrieved_segment = st.builds(ScoredSegment, any_critique, given_or_not, st.just(True))
any_weights = st.builds(Weights, *[st.floats(0, 5)] * 4)
any_path = st.lists(any_segment, max_size=4)
two_segments = st.tuples(retrieved_segment, retrieved_segment)


@given(any_path, two_segments, any_weights, st.sampled_from(PATH_RULES))
def test_siblings_are_ordered_by_eq_3_4(parent: Any, two: Any, weights: Weights, rule: str) -> None:
    one, other = (segment_score(s.critique, s.sequence, weights) for s in two)
    before = path_score(parent, weights, rule) if parent else 1.0
    assume(abs(one - other) > 1e-6 and (rule != "product" or before > 1e-3))
    first, second = (path_score([*parent, s], weights, rule) for s in two)
    assert (first > second) == (one > other)


@given(any_path, retrieved_segment, st.sampled_from(("ISREL", "ISSUP")), unit)
def test_silence_about_a_retrieved_passage_is_no_better_than_any_judgement(
    parent: Any, segment: ScoredSegment, term: str, judged: float
) -> None:
    silent, told = (
        [*parent, segment._replace(critique={**segment.critique, term: value})]
        for value in (None, judged)
    )
    for rule in ("mean", "sum"):
        told_score = path_score(told, Weights(), rule)
        assert path_score(silent, Weights(), rule) <= told_score + 1e-9


unfinished = any_segment.filter(lambda s: s.critique["ISUSE"] is None)
halves = st.tuples(st.lists(unfinished, min_size=1, max_size=4), st.lists(unfinished, max_size=3))


@given(halves, any_segment, any_weights, st.sampled_from(PATH_RULES), st.integers(0, 2))
def test_no_path_ends_above_the_best_that_it_can_become(
    parts: Any, last: ScoredSegment, weights: Weights, rule: str, left: int
) -> None:
    begun, more = parts
    best = best_path_score(begun, len(more) + 1 + left, weights, rule)
    assert path_score([*begun, *more, last], weights, rule) <= best + 1e-6 * max(1.0, abs(best))


def test_the_best_that_a_path_can_become_by_hand() -> None:
    begun = path((0.5, 0.5, None, 0.5))  # 1.5
    assert best_path_score(begun, 2, Weights(), "mean") == approx((1.5 + 6.5) / 3)
    assert best_path_score(path((1, 1, None, 1)), 3, Weights(), "mean") == approx(3.25)
    assert best_path_score([without(0.1)], 4, Weights(), "mean") == approx(3.5)
    assert best_path_score(begun, 2, Weights(), "sum") == approx(1.5 + 6.5)
    assert best_path_score(begun, 3, Weights(), "product") == approx(1.5 * 3 * 3 * 3.5)
    assert best_path_score([], 2, Weights(), "product") == approx(3 * 3.5)
    assert best_path_score(path((0, 0, None, 0)), 2, Weights(), "product") == 0
    low = Weights(0.1, 0.1, 0.1, 0.1)
    assert best_path_score(begun, 2, low, "product") == approx(0.15)
    assert best_path_score(path((0, 0, -1.0, 0.1)), 2, Weights(), "product") == math.inf


def test_path_scores_by_hand() -> None:
    two = path((0.8, 1.0, None, 0.5), (0.4, 0.5, 1.0, 0.3))
    # segment scores: 0.5 + 0.8 + 1.0 = 2.3 and 0.3 + 0.4 + 0.5 + 0.5 = 1.7
    assert path_score(two, Weights(), "sum") == approx(4.0)
    assert path_score(two, Weights(), "product") == approx(2.3 * 1.7)
    assert path_score(two, Weights(), "mean") == approx(2.0)

    # A segment of no passage takes the means so far.
    judged = path((0.8, 0.9, None, 0.5), (0.4, 0.5, None, 0.5))
    assert path_score([judged[0], without(0.5)], Weights(), "mean") == approx(2.2)
    assert path_score([*judged, without(0.2)], Weights(), "mean") == approx((2.2 + 1.4 + 1.5) / 3)
    # What is absent of the first counts 0; then the mean so far is of what was counted.
    silent = path((0.8, None, None, 0.5))
    assert path_score([*silent, without(0.5)], Weights(), "mean") == approx(1.3)

    # A judgement that is given without a passage of its own counts.
    going_on = ScoredSegment(critique_of(isrel=None, issup=0.1, isuse=1.0), 0.5, False)
    scored = path_score([*path((0.8, 0.9, None, 0.5)), going_on], Weights(), "mean")
    assert scored == approx((2.2 + 0.5 + 0.8 + 0.1 + 0.5) / 2)

    # What comes before the first retrieved segment is left out.
    retrieved = path((0.8, 0.9, None, 0.5))
    assert path_score([without(0.1), *retrieved], Weights(), "mean") == approx(2.2)
    assert path_score([without(0.1), without(0.3)], Weights(), "mean") == approx(0.2)
    assert [path_score([], Weights(), rule) for rule in PATH_RULES] == [0, 0, 0]
    with pytest.raises(ValueError, match="one of mean, sum, product, got 'max'"):
        path_score([], Weights(), "max")
