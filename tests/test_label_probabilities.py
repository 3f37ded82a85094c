"""Distributions over labels, worked out by hand."""

import math
from typing import Any

import pytest

from selfcorrect_rag.models.classification import ABSENT, ChatClassifier, Classification, LabelField
from selfcorrect_rag.prompts.labels import LabelParser
from selfcorrect_rag.reflection import probabilities
from tests.classifications import (
    BOTH,
    FULLY,
    IRRELEVANT,
    NONE,
    PARTIALLY,
    RELEVANCE,
    SUPPORT,
    UTILITY,
    chosen,
)
from tests.providers import LOGPROBS, Provider


def given(*pieces: Any, form: Classification = SUPPORT) -> dict[str, float]:
    """The probabilities, not normalised, that an answer of these tokens gives."""
    prediction = chosen(Provider(answer=lambda prompt: list(pieces), **LOGPROBS), form)
    assert not prediction.is_hard
    return {label: math.exp(value) for label, value in prediction.logprobs.items()}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # One token a label.
        ([(FULLY, 0.7, {PARTIALLY: 0.2, NONE: 0.05})], (0.7, 0.2, 0.05)),
        # They part at the second token; the bracket alone says nothing.
        (
            [("[", 0.9), ("Fully", 0.6, {"Part": 0.3, "No": 0.1}), (" supported", 1.0), ("]", 1.0)],
            (0.54, 0.27, 0.09),
        ),
        # Some of the first token's mass is already decided, in another spelling.
        (
            [
                ("[", 0.8, {"Fully": 0.1, " No": 0.05, "I": 0.05}),
                ("Fully", 0.5, {"Part": 0.5}),
                (" supported]", 1.0),
            ],
            (0.1 + 0.4, 0.4, 0.05),
        ),
        # Letter by letter.
        (
            [("[", 1.0), ("P", 0.5, {"F": 0.25, "N": 0.125}), *((c, 1.0) for c in NONE[:0])]
            + [(c, 1.0) for c in "artially supported]"],
            (0.25, 0.5, 0.125),
        ),
        # A token that runs over the label's end, one that leads nowhere, one within a longer word.
        (
            [(FULLY + "\n", 0.6, {PARTIALLY + "\n": 0.1, "Sorry": 0.2, "Nobody": 0.1}), ("E", 1.0)],
            (0.6, 0.1, 0.0),
        ),
        # A heading, emphasis, lower case.
        (
            [
                ("Score", 1.0),
                (":", 1.0),
                (" **", 1.0),
                ("fully", 0.5, {"part": 0.5}),
                (" supported", 1.0),
                ("**", 1.0),
            ],
            (0.5, 0.5, 0.0),
        ),
        # The first token of the label brings the end of the heading along.
        ([("Score: ", 1.0), ("[Fully", 0.5, {"[No": 0.5}), (" supported]", 1.0)], (0.5, 0.0, 0.5)),
        (
            [("Score", 1.0), (": [F", 0.5, {": [N": 0.25, "!": 0.25}), ("ully supported]", 1.0)],
            (0.5, 0.0, 0.25),
        ),
    ],
)
def test_distributions_by_hand(pieces: Any, expected: tuple[float, ...]) -> None:
    assert list(given(*pieces).values()) == pytest.approx(expected, abs=1e-12)


def test_a_label_that_begins_another() -> None:
    form = Classification("", (LabelField(LabelParser(("no", "no retrieval", "yes"))),))
    pieces = [("no", 0.8, {"yes": 0.2}), (".", 0.75, {" ret": 0.25})]
    assert given(*pieces, form=form) == pytest.approx({"no": 0.6, "no retrieval": 0.2, "yes": 0.2})
    pieces = [("no", 0.8, {"yes": 0.2}), (" retrieval", 0.25, {"\n": 0.75})]
    found = given(*pieces, form=form)
    assert found == pytest.approx({"no": 0.0, "no retrieval": 0.2, "yes": 0.2}, abs=1e-12)


def test_what_is_left_out_is_shared_alike() -> None:
    """The scores are those of the mass that is known, as Eq. 3 normalises it."""
    prediction = chosen(
        Provider(
            answer=lambda p: [
                ("[", 0.5, {" [": 0.5}),
                ("Fully", 0.8, {"No": 0.2}),
                (" supported]", 1.0),
            ],
            **LOGPROBS,
        ),
        SUPPORT,
    )
    assert prediction.logprobs[PARTIALLY] == ABSENT
    assert probabilities(prediction.logprobs) == pytest.approx(
        {FULLY: 0.8, PARTIALLY: 0.0, NONE: 0.2}, abs=1e-12
    )


def test_the_chosen_label_need_not_be_the_likeliest() -> None:
    pieces = [("2", 0.1, {"5": 0.6, "4": 0.2})]
    prediction = chosen(Provider(answer=lambda p: pieces, **LOGPROBS), UTILITY)
    assert prediction.label == "2"
    assert max(prediction.logprobs, key=lambda label: prediction.logprobs[label]) == "5"


def test_thoughts_and_the_end_of_a_turn_are_no_part_of_the_answer() -> None:
    class Thinking(Provider):
        def _message(self, *args: Any) -> Any:
            message = super()._message(*args)
            message.content = "[Relevant]"
            return message

    pieces = [
        ("Is it [Irrelevant]?", 1.0),
        ("</think>", 1.0),
        ("[Rel", 0.75, {"[Ir": 0.25}),
        ("evant]", 1.0),
        ("<|end|>", 1.0),
    ]
    prediction = chosen(Thinking(answer=lambda p: pieces, **LOGPROBS), RELEVANCE)
    assert not prediction.is_hard
    assert math.exp(prediction.logprobs[IRRELEVANT]) == pytest.approx(0.25)


def test_several_labels_in_one_answer() -> None:
    pieces = [
        ("Score:", 1.0),
        (" [", 1.0),
        ("Part", 0.5, {"Fully": 0.25, "No": 0.25}),
        ("ially supported]", 1.0),
        ("\n", 1.0),
        ("Perceived utility", 1.0),
        (": ", 1.0),
        ("4", 0.5, {"5": 0.375, "3": 0.125}),
    ]
    (answer,) = ChatClassifier(Provider(answer=lambda p: pieces, **LOGPROBS)).classify([BOTH])
    support, utility = answer.predictions
    assert support is not None
    assert utility is not None
    assert (support.label, utility.label) == (PARTIALLY, "4")
    assert probabilities(support.logprobs) == pytest.approx(
        {FULLY: 0.25, PARTIALLY: 0.5, NONE: 0.25}
    )
    assert probabilities(utility.logprobs) == pytest.approx(
        {"1": 0, "2": 0, "3": 0.125, "4": 0.5, "5": 0.375}, abs=1e-12
    )
    assert answer.usage == (2, 10, 8), "the refused option is a request without tokens"
