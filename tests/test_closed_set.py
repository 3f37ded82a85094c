"""Which option of a closed set a text answers with."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selfcorrect_rag.prompts.closed_set import closed_answer

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


ANY_OPTION = (
    st.text("ABCIabci0123456789", min_size=1, max_size=2)
    | st.text("ABa15+-#%$()*?!^]\\ ", min_size=1, max_size=4)
    | st.sampled_from(["a gas", "gas", "A: a gas", "not true", "true", "no", "New York", "A or B"])
    | st.text(min_size=1, max_size=6)
).filter(lambda option: bool(option.strip()) and "." not in option)
ANY_OPTIONS = st.lists(ANY_OPTION, min_size=1, max_size=6, unique_by=str.strip)


@given(ANY_OPTIONS)
@example(["-1", "1", "0"])
@example(["C", "C++", "C#"])
@example(["A", "a"])
@example(["+", "-"])
def test_an_option_word_for_word_is_that_option(options: list[str]) -> None:
    for option in options:
        assert closed_answer(option, options) == option
        assert closed_answer(f" {option}\n", options) == option
        assert closed_answer(f"The answer is {option}.", options) == option
        if f"({option})" not in options and option.isalpha():
            assert closed_answer(f"({option})", options) == option


SIGNED = ("-1", "1", "0")
LANGUAGES = ("C", "C++", "C#")
SIGNS = ("+", "-")
SHARES = ("5", "5%")
CASES = ("A", "a")
WORDS = ("Turkey", "turkey")
MARKS = ("A-", "A", "A+")
NAMES = ("The Who", "Who", "Queen")
LABELLED = ("A: -1", "B: 1", "C: 0")


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        (options, option, said)
        for options in (SIGNED, LANGUAGES, SIGNS, SHARES, CASES, WORDS, MARKS, NAMES)
        for option in options
        for said in (
            "I looked it up, and so the answer is {}.",
            "The answer is {}, because it fits.",
            "The answer is **{}**, as it fits.",
            "{}.\nIt fits.",
            "**{}**, because it fits.",
        )
    ],
)
def test_symbols_case_and_articles_count_where_options_differ_only_in_them(
    options: tuple[str, ...], option: str, said: str
) -> None:
    assert closed_answer(said.format(option), options) == option


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        ("yES", ("Yes", "No"), "Yes"),
        ("PARIS", ("Paris", "paris"), None),
        ("C++11", LANGUAGES, None),
        ("C+", LANGUAGES, None),
        ("(c)", LANGUAGES, "C"),
        ("So -1, I would say.", LABELLED, "A: -1"),
        ("The answer is 1 here.", LABELLED, "B: 1"),
        # a minus sign is part of a number, other symbols only where they tell options apart
        ("1", ("-1", "2"), None),
        ("The answer is -1 here.", ("-1", "2"), "-1"),
        ("The answer is 5 percent", ("5%", "10%"), "5%"),
        ("The answer is A, here", ("(A)", "(a)"), "(A)"),
    ],
)
def test_what_symbols_around_an_option_mean(
    text: str, options: tuple[str, ...], answer: str | None
) -> None:
    assert closed_answer(text, options) == answer


LEADS = ["hence", "I think", "probably", "likely", "definitely", "clearly", "just"]


@pytest.mark.parametrize("label", "BCD")
@pytest.mark.parametrize("said", ["{}", "{}.", "{} is correct", "{} because it conducts"])
@pytest.mark.parametrize("lead", [*LEADS, "It can't be A, hence", "In conclusion"])
def test_a_label_after_words_that_lead_up_to_it(lead: str, said: str, label: str) -> None:
    text = f"{lead} {said.format(label)}"
    assert closed_answer(text, LETTERS) == label
    assert closed_answer(text[0].upper() + text[1:], LETTERS) == label


@pytest.mark.parametrize("label", "ABCD")
@pytest.mark.parametrize(
    "lead",
    [
        *(f"The answer is {word}" for word in ("probably", "most likely", "clearly", "simply")),
        "The answer seems",
        "The answer must be",
        "In conclusion",
        "Overall",
    ],
)
@pytest.mark.parametrize("end", ["", ".", " because it conducts."])
def test_a_label_however_its_announcement_ends(lead: str, end: str, label: str) -> None:
    assert closed_answer(f"{lead} {label}{end}", LETTERS) == label


@pytest.mark.parametrize("lead", [*LEADS, "The answer is probably", "Overall", "In conclusion"])
@pytest.mark.parametrize(
    "words", ["A gas expands", "a gas", "B cells do it", "I would say so", "I, too, think so"]
)
def test_articles_pronouns_and_names_after_the_same_words_are_no_labels(
    lead: str, words: str
) -> None:
    assert closed_answer(f"{lead} {words}", ("A", "B", "I")) is None


@pytest.mark.parametrize(
    "text",
    ["I don't think B", "Not likely B", "Less likely B", "The answer is definitely not B.",
     "Is it just B?", "Vitamin C", "Probably B or C", "Just I."],
)  # fmt: skip
def test_what_leads_up_to_no_answer(text: str) -> None:
    assert closed_answer(text, (*LETTERS, "I")) is None


OPTIONS = st.sampled_from(
    [LETTERS, MATTER, FACTS, POLAR, ("New York", "York", "no"), ("A", "a", "(a)")]
)
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
    "unit",
    ["A, ", "A and ", "(A) ", "not A. ", "... ", '"', "the answer is ", "-1 ", "((", "probably "],
)
def test_long_texts_are_read_to_their_end(unit: str) -> None:
    assert closed_answer(unit * 2_000 + "\n\nThe answer is B.", LETTERS) == "B"
