"""Which option of a closed set a text answers with."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.closed_set import closed_answer

LETTERS = ("A", "B", "C", "D", "E")
MATTER = ("A: a gas", "B: a metal", "C: a liquid")
FACTS = ("true", "false")
POLAR = ("yes", "no")


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        # without options: the text itself
        ("True.", (), "true"),
        ("", (), None),
        ("...", (), None),
        # the whole text
        ("(A)", LETTERS, "A"),
        ("b", LETTERS, "B"),
        ("a gas.", MATTER, "A: a gas"),
        ("Metal", MATTER, "B: a metal"),
        ("no", POLAR, "no"),
        # labels
        ("It is a gas.", LETTERS, None),
        ("A gas.", LETTERS, None),
        ("I think A gas is meant.", LETTERS, None),
        ("B: a metal", LETTERS, "B"),
        ("B. because metals conduct.", LETTERS, "B"),
        ("B because A gas does not conduct.", LETTERS, "B"),
        ("(B) since it conducts", LETTERS, "B"),
        ("[B] A metal", LETTERS, "B"),
        ("**C**\nIt flows.", LETTERS, "C"),
        ("Option D", LETTERS, "D"),
        ("I would go with (b).", LETTERS, "B"),
        ("Vitamin C.", LETTERS, None),
        ("It was found by A. B. Smith.", LETTERS, None),
        ("B) a gas", ("A) a gas", "B) a metal"), "B) a metal"),
        ("It is a metal.", ("A) a gas", "B) a metal"), "B) a metal"),
        ("2", ("1. a gas", "2. a metal"), "2. a metal"),
        ("It lives in E. coli.", ("E. coli", "C. elegans"), "E. coli"),
        # announced
        ("Answer: B", LETTERS, "B"),
        ("The answer is B.", LETTERS, "B"),
        ("The correct answer is therefore option (D).", LETTERS, "D"),
        ("A. A gas expands. B. A metal conducts. So the answer is B.", LETTERS, "B"),
        ("A is tempting, but B is the best answer.", LETTERS, "B"),
        ("Some hold it to be true. Therefore, the statement is false.", FACTS, "false"),
        # first of all
        ("True. Some call it false.", FACTS, "true"),
        ("No, although some say yes.", POLAR, "no"),
        # denied or left open
        ("The answer is not A but C.", LETTERS, "C"),
        ("A is wrong. B.", LETTERS, "B"),
        ("A, B and D are wrong, so C.", LETTERS, "C"),
        ("B, not A", LETTERS, "B"),
        ("B rather than A", LETTERS, "B"),
        ("Neither A nor B", LETTERS, None),
        ("It is not A.", ("A", "B"), None),
        ("It is a metal, not a gas.", MATTER, "B: a metal"),
        ("It is not true.", FACTS, "false"),
        ("This isn't false.", FACTS, "true"),
        ("I do not think that the claim is true.", FACTS, "false"),
        ("It is not clear whether it is true.", FACTS, None),
        ("There is no evidence that it is true.", FACTS, None),
        ("Is it true? False.", FACTS, "false"),
        ("True or false?", FACTS, None),
        ("There is no record of it.", POLAR, None),
        # more than one
        ("A or B", LETTERS, None),
        ("The answer is A or B.", LETTERS, None),
        ("(A) and (B)", LETTERS, None),
        ("yes or no", POLAR, None),
        ("I know", POLAR, None),
        # words
        ("SUPPORTS", ("SUPPORTS", "REFUTES"), "SUPPORTS"),
        ("The evidence supports it.", FACTS, None),
        ("There is not enough information.", ("true", "false", "not enough information"),
         "not enough information"),
        ("Noble gas.", ("gas", "noble gas"), "noble gas"),
        ("It is in New York.", ("York", "New York"), "New York"),
    ],
)  # fmt: skip
def test_what_a_text_answers_with(text: str, options: tuple[str, ...], answer: str | None) -> None:
    assert closed_answer(text, options) == answer


@pytest.mark.parametrize("label", LETTERS)
@pytest.mark.parametrize("mark", ["{}", "({})", "[{}]", "**{}**", "({}).", '"{}"'])
@pytest.mark.parametrize(
    "said",
    [
        "{}",
        "{}: a metal",
        "{}\nIt conducts.",
        "Answer: {}",
        "The answer is {}.",
        "The correct answer is option {}, because it conducts.",
        "A gas cannot conduct. I choose {}",
        "{} is the correct answer.",
    ],
)
def test_a_label_however_it_is_announced(label: str, mark: str, said: str) -> None:
    assert closed_answer(said.format(mark.format(label)), LETTERS) == label


@pytest.mark.parametrize("options", [FACTS, POLAR, ("False", "True"), ("B", "A"), MATTER[:2]])
@pytest.mark.parametrize("denial", ["It is not {}.", "Never {}", "It isn't {}.", "{} is wrong."])
def test_to_deny_one_of_two_is_to_give_the_other_only_where_they_are_opposites(
    options: tuple[str, str], denial: str
) -> None:
    other = options[1] if options[0].lower() in ("true", "false", "yes", "no") else None
    assert closed_answer(denial.format(options[0]), options) == other


OPTIONS = st.sampled_from([LETTERS, MATTER, FACTS, POLAR, ("New York", "York", "no")])
SAID = st.lists(
    st.sampled_from(
        [
            *"ABCab.,()?\n",
            " ",
            "not",
            "true",
            "false",
            "yes",
            "no",
            "York",
            "New",
            "gas",
            "or",
            "is",
        ]
    ).map(lambda word: f"{word} ")
    | st.text(max_size=4)
).map("".join)


@given(SAID, OPTIONS, st.randoms())
def test_whatever_is_said_the_answer_is_an_option_or_none_and_their_order_does_not_count(
    text: str, options: tuple[str, ...], random: Random
) -> None:
    answer = closed_answer(text, options)
    assert answer is None or answer in options
    assert closed_answer(text, random.sample(options, len(options))) == answer


@pytest.mark.parametrize(
    "unit", ["A, ", "A and ", "(A) ", "not A. ", "... ", '"', "the answer is "]
)
def test_long_texts_are_read_to_their_end(unit: str) -> None:
    # Of this length, only what is linear ends.
    assert closed_answer(unit * 20_000 + "\n\nThe answer is B.", LETTERS) == "B"
