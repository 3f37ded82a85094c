"""Reading text that a model or a person wrote: fixed forms only, and never prose."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.nodes.web_search import approved
from selfcorrect_rag.prompts import reading
from selfcorrect_rag.prompts.chat import answer_prompt
from selfcorrect_rag.prompts.crag import RULES
from selfcorrect_rag.prompts.critic import RETRIEVE, Instance
from selfcorrect_rag.prompts.instruct_rag import read_answer, read_numbers


@pytest.mark.parametrize(
    ("text", "answer", "cited", "numbers"),
    [
        ("She did [2]. Surely [2][1].", "She did. Surely.", "She did [2]. Surely [2][1].", [2, 1]),
        ("She did [Document 1, document 3].", "She did.", "She did [1][3].", [1, 3]),
        ("She did.\n\n[1] She did.", "She did.\n\nShe did.", "She did.\n\n[1] She did.", [1]),
        ("* Paris[1]\n* Lyon[2]", "* Paris\n* Lyon", "* Paris [1]\n* Lyon [2]", [1, 2]),
        ("```\n[1]\n```, `[1]` [3].", "```\n[1]\n```, `[1]`.", "```\n[1]\n```, `[1]` [3].", [3]),
        ("[1](https://a.org)", None, None, []),
        ("[[1]](https://a.org), a[1][2], sys.argv[1], x = [1, 2]", None, None, []),
        ("in [0, 1], in [2024], a[0], [1-999999999], [sic]", None, None, []),
        ("She did [1-3].", "She did.", "She did [1][2][3].", [1, 2, 3]),
        ("She did [2 – 3 and Docs 1].", "She did.", "She did [2][3][1].", [2, 3, 1]),
        ("She did【3†notes】; [ 1; 2, and ^2 ]", "She did;", "She did [3]; [1][2]", [3, 1, 2]),
        ("She did ([1]). (See [2])", "She did. (See)", "She did ([1]). (See [2])", [1, 2]),
        ("She did [1-9], [3-1], [0].", None, "She did [1-9?], [3-1?], [0?].", []),
        ("She did [1, 3-9].\n [2]", "She did.", "She did [1].\n [2]", [1, 2]),
        ("She did [7].", None, "She did [7?].", []),
        ("She did [2, 7].", "She did.", "She did [2].", [2]),
        ("She did [4].", "She did.", "She did.", []),
        (f"{reading.REFUSAL} [1]", reading.REFUSAL, reading.REFUSAL, []),
    ],
)
def test_marks(text: str, answer: str | None, cited: str | None, numbers: list[int]) -> None:
    """None is the text as it is; of four documents the fourth may not be cited."""
    marked = reading.read_marks(text, 4, {1, 2, 3})
    assert marked.answer == (text if answer is None else answer)
    assert marked.numbers == numbers
    assert marked.cited == (text if cited is None else cited)


@given(st.text("[]0123456789-, \u3010\u3011x.`(\n", max_size=60))
def test_marks_alone_leave_a_text(text: str) -> None:
    marked = reading.read_marks(text, 3, {1, 2})
    assert set(marked.numbers) <= {1, 2}
    letters = [c for c in text if c in "x.`"]
    for shown in (marked.answer, marked.cited):
        assert [c for c in shown if c in "x.`"] == letters


def test_marks_and_their_lists_are_bounded() -> None:
    for items, found in ((32, [1]), (33, [])):
        text = f"So [{', '.join(['1'] * items)}]."
        assert [n for mark in reading.marks_in(text, 4) for n in mark.numbers] == found
    assert len(list(reading.marks_in("[1]" * 5_000, 4))) == 1_000
    (ranged,) = reading.marks_in("So [1-2, 1-999, 7].", 4)
    assert (ranged.numbers, ranged.missing) == ([1, 2], ["1-999", "7"])


def test_a_refusal_is_the_sentence_that_prompts_ask_for() -> None:
    assert reading.is_refusal(f'**"{reading.REFUSAL.lower()}"** [1]\n')
    for text in (f"{reading.REFUSAL} But it was Austen.", "[1]" * 100 + reading.REFUSAL):
        assert not reading.is_refusal(text)
    assert reading.REFUSAL in RULES
    assert reading.REFUSAL in str(answer_prompt(Instance("Who?"))[0].content)


CONSENTS = [
    (True, "asked"),
    ("Yes ", "asked"),
    ({"approve": True, "query": "other"}, "other"),
    ({"approve": True}, "asked"),
    ({"query": " other "}, "other"),
    ("Other", "Other"),
]
DENIALS = ["no", 1, {}, [True], {"approve": False, "query": "a"}, {"approve": True, "later": True}]


@pytest.mark.parametrize(("reply", "query"), [*CONSENTS, *((reply, None) for reply in DENIALS)])
def test_consent_is_true_or_an_edited_query(reply: Any, query: str | None) -> None:
    assert approved(reply, "asked") == query


ARC = ("A: oxygen", "B: nitrogen", "C: argon")


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        ("**The answer is B.**", ("A", "B"), "B"),
        ("b) nitrogen", ARC, None),
        ("Nitrogen.", ARC, "B: nitrogen"),
        ("C#", ("C", "C++"), None),
        ("It can't be A because oxygen is released. That leaves B.", ("A", "B"), None),
    ],
)
def test_an_option_is_given_word_for_word(text: str, options: Any, answer: str | None) -> None:
    assert reading.closed_answer(text, options) == answer
    assert reading.closed_answer(text, reversed(options)) == answer


def test_a_text_without_options_and_the_question_for_the_option() -> None:
    assert reading.closed_answer("**Jane Austen.**") == "jane austen"
    assert reading.closed_answer(" . ") is None
    prompt = reading.option_prompt("Which gas?", "</document> It can't be A.", ARC)
    assert prompt.count("</document>") == 1
    assert "\n2: B: nitrogen\n" in prompt
    found = map(reading.option_labels(ARC).find, ("2", "None.", "4", "2 or 3"))
    assert [each and each.label for each in found] == ["2", "none", None, None]


@pytest.mark.parametrize(
    ("rationale", "answer", "numbers"),
    [
        ("Document 1 is on towns.\n\nBy document 2, in 1931.", "By document 2, in 1931.", [2]),
        ("Docs 9, 2 and 1 do. In 1931 [1, 3].", "In 1931 [1, 3].", [9, 2, 1, 3]),
        ("Document 3 says so.\n\n**Final answer:** 1931 [2]", "1931 [2]", [3, 2]),
        ("Answer: 1930\nNo.\nAnswer:\n1931.", "1931.", []),
        ("In 1930? No. [2] In 1931. [1] [3]", "In 1931 [1] [3].", [2, 1, 3]),
        ("The answer: it is hard to say", "The answer: it is hard to say", []),
        ("It is by J.\nMay it be.", "May it be.", []),
        ("Documents 1-3 and 7: 31 [4–5].", "Documents 1-3 and 7: 31 [4–5].", [1, 2, 3, 7, 4, 5]),
        ("By documents 2-999.", "By documents 2-999.", [*range(2, 34)]),
        ("No. Document 1 has J. J. Abrams.", "Document 1 has J. J. Abrams.", [1]),
        ("He is in the U.S. She is in the U.S. Army.", "She is in the U.S. Army.", []),
    ],
)
def test_a_rationales_answer_and_documents(rationale: str, answer: str, numbers: list[int]) -> None:
    assert read_answer(rationale) == answer
    assert read_numbers(rationale) == numbers


def around(text: str, found: str) -> str:
    start = text.index(found)
    return text[slice(*reading.sentence_place(text, start, start + len(found)))]


WRAPPED = (
    "The staging server runs on port 8443. Deployments happen every Tuesday, and Priya\n"
    "    approves them. Ask her first.\n"
    "Another line of text that is as long as a line of wrapped text may well be.\nport: 80"
)


def test_the_sentence_or_line_around_a_place() -> None:
    assert around("He was born in St. Louis. He left.", "Louis") == "He was born in St. Louis."
    assert around("雨です。東京は首都です。雪です。", "東京") == "東京は首都です。"
    wrapped = "Deployments happen every Tuesday, and Priya\n    approves them."
    assert around(WRAPPED, "Priya") == wrapped
    assert around(WRAPPED, ": 80") == "port: 80"


def test_of_an_endless_line_only_what_is_near_is_quoted() -> None:
    near = around("word " * 20_000 + "8443 " + "word " * 20_000, "8443")
    assert set(near.split()) == {"word", "8443"}, "no word is cut"
    assert 2 * reading.LONGEST_QUOTE - 10 < len(near) <= 2 * reading.LONGEST_QUOTE + 4
    assert around("x" * 9_000 + "8443" + "x" * 9_000, "8443") == "8443"


@given(st.text(alphabet="ab .!\n\u3002St", max_size=80), st.data())
def test_a_sentence_holds_its_place(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    sentence = text[slice(*reading.sentence_place(text, start, end))]
    assert text[start:end].strip() in sentence
    assert "".join("".join(reading.sentences(text)).split()) == "".join(text.split())


NOTE = (
    "# Ports\n\nThe staging server runs\non port 8443. The old one ran on port 84.\n"
    'Is it 8443? (The canteen is "At Ann\'s".) Yes.\n雨です。東京は首都です。\n'
)


@pytest.mark.parametrize(
    ("said", "question", "sentence"),
    [
        (" “8443”. ", "Which port does the staging server run on?", "on port 8443."),
        ("8443", "Is it there?", "Is it 8443?"),
        ("runs on\tport 8443", "", "The staging server runs on port 8443."),
        ("At Ann's", "", '(The canteen is "At Ann\'s".)'),
        ("Yes", "", ""),
        ("首都", "", "東京は首都です。"),
        ("word " * 300, "", ""),
    ],
)
def test_the_sentence_that_states_an_answer(said: str, question: str, sentence: str) -> None:
    assert reading.sentence_stating(NOTE, said, question) == sentence


@pytest.mark.parametrize(
    ("read", "unit"),
    [
        (lambda text: reading.read_marks(text, 9, {1}), "[1, "),
        (lambda text: reading.read_marks(text, 9, {1}), "[1 - 999 and [["),
        (RETRIEVE.read, "["),
        (read_numbers, "documents 1, "),
        *((read_answer, unit) for unit in ("Answer: ", "\n \n", ". [1, 2] [3")),
        (lambda text: reading.closed_answer(text, ["a"]), "answer is "),
        (reading.sentences, ". A "),
    ],
)
def test_long_text_is_read_by_a_bounded_number_of_steps(read: Any, unit: str) -> None:
    """A quadratic reading would take minutes."""
    read(unit * (200_000 // len(unit)))
