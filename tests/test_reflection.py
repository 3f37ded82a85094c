"""Every score against values worked by hand (Eq. 3-4, A.3)."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selfcorrect_rag.reflection import (
    CONTROL_TOKENS,
    PATH_RULES,
    TOKENS,
    Critique,
    Group,
    Weights,
    critique,
    path_score,
    probabilities,
    retrieval_probability,
    segment_score,
    sequence_probability,
)
from tests.scripted import reflection


def approx(value: float) -> object:
    return pytest.approx(value, abs=1e-9)


def score(group: str, **given: float) -> float | None:
    named = {token: given.get(key, 0.0) for token, key in KEYS[group].items()}
    return critique([reflection({t: p for t, p in named.items() if p})])[group]  # type: ignore[literal-required]


KEYS = {
    "isrel": {"[Relevant]": "relevant", "[Irrelevant]": "irrelevant"},
    "issup": {
        "[Fully supported]": "full",
        "[Partially supported]": "part",
        "[No support / Contradictory]": "no",
    },
    "isuse": {f"[Utility:{i}]": f"u{i}" for i in range(1, 6)},
}


def test_the_vocabulary_is_that_of_released_checkpoints() -> None:
    assert len(CONTROL_TOKENS) == len(set(CONTROL_TOKENS)) == 15
    assert CONTROL_TOKENS[:3] == (
        "[No Retrieval]",
        "[Retrieval]",
        "[Continue to Use Evidence]",
    )
    assert CONTROL_TOKENS[5:7] == ("<paragraph>", "</paragraph>")
    assert CONTROL_TOKENS[-1] == "[No support / Contradictory]"


@pytest.mark.parametrize(
    ("yes", "no", "expected"),
    [(0.9, 0.09, 0.9 / 0.99), (0.02, 0.9, 0.02 / 0.92), (1e-6, 1e-6, 0.5), (3e-9, 1e-9, 0.75)],
)
def test_retrieval_is_a_ratio_of_probabilities(yes: float, no: float, expected: float) -> None:
    decided = reflection({"[Retrieval]": yes, "[No Retrieval]": no})
    assert retrieval_probability(decided) == approx(expected)


def test_continue_takes_no_part_in_the_retrieval_ratio() -> None:
    given = {"[Retrieval]": 0.3, "[No Retrieval]": 0.1, "[Continue to Use Evidence]": 0.5}
    assert retrieval_probability(reflection(given)) == approx(0.75)


def test_isrel_issup_isuse_by_hand() -> None:
    assert score("isrel", relevant=0.6, irrelevant=0.2) == approx(0.75)
    assert score("issup", full=0.5, part=0.2, no=0.1) == approx((0.5 + 0.1) / 0.8)
    assert score("issup", no=0.7) == approx(0.0)
    assert score("isuse", u1=0.1, u2=0.1, u3=0.2, u4=0.2, u5=0.4) == approx(
        -0.1 - 0.05 + 0.0 + 0.1 + 0.4
    )
    assert score("isuse", u1=1.0) == approx(-1.0)
    assert score("isuse", u5=1.0) == approx(1.0)


def test_a_judgement_not_given_is_none_and_no_number() -> None:
    assert critique([]) == Critique(isrel=None, issup=None, isuse=None)
    only = critique([reflection({"[No support / Contradictory]": 1.0})])
    assert only == Critique(isrel=None, issup=approx(0.0), isuse=None)  # type: ignore[typeddict-item]


def test_the_first_judgement_of_a_group_counts() -> None:
    twice = [reflection({"[Relevant]": 1.0}), reflection({"[Irrelevant]": 1.0})]
    assert critique(twice)["isrel"] == approx(1.0)


def test_segment_score_by_hand() -> None:
    scores = Critique(isrel=0.8, issup=0.6, isuse=-0.5)
    assert segment_score(scores, 0.4, Weights()) == approx(0.4 + 0.8 + 0.6 - 0.25)
    assert segment_score(scores, 0.4, Weights(2, 3, 4, 5)) == approx(2.0 + 1.6 + 1.8 - 2.0)


def test_absence_adds_nothing() -> None:
    nothing = Critique(isrel=None, issup=None, isuse=None)
    assert segment_score(nothing, 0.4, Weights()) == approx(0.4)


def test_sequence_probability_is_a_geometric_mean() -> None:
    assert sequence_probability(math.log(0.5) * 8, 8) == approx(0.5)
    assert sequence_probability(math.log(0.9) + math.log(0.1), 2) == approx(0.3)
    assert sequence_probability(0.0, 0) == approx(1.0)


logprobs = st.floats(-800, 0)


@given(st.sampled_from(list(Group)), st.data())
def test_probabilities_sum_to_one_in_every_group(group: Group, data: st.DataObject) -> None:
    given_logprobs = {token: data.draw(logprobs) for token in TOKENS[group]}
    normal = probabilities(given_logprobs)
    assert math.fsum(normal.values()) == pytest.approx(1)
    assert all(0 <= p <= 1 for p in normal.values())


def test_a_token_without_a_probability_has_none_and_all_without_is_an_error() -> None:
    assert probabilities({"a": -math.inf, "b": -900.0}) == {"a": 0.0, "b": 1.0}
    with pytest.raises(ValueError, match="no finite"):
        probabilities({"a": -math.inf, "b": -math.inf})


unit = st.floats(0, 1)
full_critiques = st.builds(
    lambda r, s, u: Critique(isrel=r, issup=s, isuse=u), unit, unit, st.floats(-1, 1)
)
candidates = st.lists(st.tuples(full_critiques, unit), min_size=2, max_size=6)
TERMS = ("isrel", "issup", "isuse")


@given(candidates, st.sampled_from(TERMS), st.floats(0, 5), st.floats(0.01, 5))
@example(
    [(Critique(isrel=0.5, issup=s, isuse=0.5), 0.0) for s in (0.0, 1e-9)],
    "isrel",
    0.0,
    0.5,
)
def test_raising_a_weight_takes_from_every_lead_over_the_candidate_that_is_best_in_it(
    given_candidates: list[tuple[Critique, float]], term: str, weight: float, more: float
) -> None:
    best = max(given_candidates, key=lambda c: c[0][term])  # type: ignore[literal-required]

    def leads(value: float) -> list[float]:
        weights = Weights(**{term: value})
        mine = segment_score(*best, weights)
        return [segment_score(*other, weights) - mine for other in given_candidates]

    for before, after in zip(leads(weight), leads(weight + more), strict=True):
        assert after <= before + 1e-9


# Paths


def segments(*scores: tuple[float | None, float | None, float | None, float]) -> list:
    return [(Critique(isrel=r, issup=s, isuse=u), p) for r, s, u, p in scores]


@given(full_critiques, unit)
def test_one_segment_is_worth_the_same_by_every_rule(scores: Critique, sequence: float) -> None:
    for rule in PATH_RULES:
        assert path_score([(scores, sequence)], Weights(), rule) == pytest.approx(
            segment_score(scores, sequence, Weights())
        )


def test_path_rules_by_hand() -> None:
    path = segments((0.8, 1.0, None, 0.5), (0.4, 0.5, 1.0, 0.3))
    # segment scores: 0.5 + 0.8 + 1.0 = 2.3 and 0.3 + 0.4 + 0.5 + 0.5 = 1.7
    assert path_score(path, Weights(), "sum") == approx(4.0)
    assert path_score(path, Weights(), "product") == approx(2.3 * 1.7)
    assert path_score(path, Weights(), "mean") == approx(0.4 + 0.6 + 0.75 + 0.5)


def test_the_mean_is_neutral_to_length_and_counts_utility_once_and_whole() -> None:
    one = segments((0.8, 0.9, 1.0, 0.5))
    long = segments(*[(0.8, 0.9, None, 0.5)] * 6, (0.8, 0.9, 1.0, 0.5))
    assert path_score(long, Weights(), "mean") == approx(path_score(one, Weights(), "mean"))


def test_a_segment_without_critique_leaves_the_means_alone() -> None:
    judged = segments((0.8, 0.9, None, 0.5), (0.6, 0.7, None, 0.5))
    continued = [judged[0], *segments((None, None, None, 0.5)), judged[1]]
    assert path_score(continued, Weights(), "mean") == approx(path_score(judged, Weights(), "mean"))


def test_an_empty_path_and_an_unknown_rule() -> None:
    assert path_score([], Weights(), "mean") == 0
    with pytest.raises(ValueError, match="mean, sum, product"):
        path_score(segments((1, 1, 1, 1)), Weights(), "median")
