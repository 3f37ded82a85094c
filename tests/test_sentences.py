"""The sentence or line in which some characters of a text stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.prompts.sentences import LONGEST_QUOTE, sentence_at, sentence_stating


def around(text: str, found: str) -> str:
    start = text.index(found)
    return sentence_at(text, start, start + len(found))


@pytest.mark.parametrize(
    ("text", "found", "sentence"),
    [
        ("It rains. The port is 8443. It snows.", "8443", "The port is 8443."),
        ("The port is 8443. It snows.", "The", "The port is 8443."),
        ("It rains. The port is 8443", "port is 8443", "The port is 8443"),
        ("# Run\n\nport: 8443\nhost: a.org", "8443", "port: 8443"),
        ("a\n\n  tar -xf FILE  \n\nb", "FILE", "tar -xf FILE"),
        ("one\ntwo\nthree", "e\ntwo\nt", "one\ntwo\nthree"),
        ("It rains. It snows. It hails. It ends.", "snows. It", "It snows. It hails."),
        ("He was born in St. Louis. He left.", "St. Louis", "He was born in St. Louis."),
        ("He was born in St. Louis. He left.", "Louis", "He was born in St. Louis."),
        ("She met J. R. R. Tolkien. He wrote.", "met", "She met J. R. R. Tolkien."),
        ("雨です。東京は首都です。雪です。", "東京", "東京は首都です。"),
        ("port 8443", "port 8443", "port 8443"),
    ],
)
def test_a_sentence_or_a_line(text: str, found: str, sentence: str) -> None:
    assert around(text, found) == sentence


def test_of_an_endless_line_only_what_is_near() -> None:
    words = "word " * 20_000
    near = around(f"{words}8443 {words}", "8443")
    assert near.split("8443")[0].split() == near.split("8443")[1].split()
    assert set(near.split()) == {"word", "8443"}, "no word is cut"
    assert 2 * LONGEST_QUOTE - 10 < len(near) <= 2 * LONGEST_QUOTE + 4
    assert around("x" * 9_000 + "8443" + "x" * 9_000, "8443") == "8443"


@given(st.text(alphabet="ab .!\n\u3002St", max_size=80), st.data())
def test_it_stands_in_the_text_and_holds_what_was_looked_for(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    sentence = sentence_at(text, start, end)
    assert sentence in text
    assert text[start:end].strip() in sentence
    if "\n" not in text[start:end]:  # no line is long enough to be wrapped
        assert "\n" not in sentence


NOTE = """\
# Ports

The staging server runs
on port 8443. The old one ran on port 84.
Is it 8443? (The canteen is "At Ann's".)
雨です。東京は首都です。
"""


@pytest.mark.parametrize(
    ("said", "question", "sentence"),
    [
        ("8443", "Which port does the staging server run on?", "on port 8443."),
        ("8443", "Is it there?", "Is it 8443?"),
        ("the  staging\nserver", "", ""),
        ("runs on\tport 8443", "", "The staging server runs on port 8443."),
        (" “8443”. ", "port?", "on port 8443."),
        ("84", "", "The old one ran on port 84."),
        ("44", "", ""),
        ("At Ann's", "", '(The canteen is "At Ann\'s".)'),
        ("The canteen is", "", '(The canteen is "At Ann\'s".)'),
        ("port 9000", "", ""),
        ("I", "", ""),
        ("Is", "", "Is it 8443?"),
        ("", "", ""),
        (" . ", "", ""),
        ("\U0001f600", "", ""),
        ("首都", "", "東京は首都です。"),
    ],
)
def test_a_quote_holds_what_was_said_word_for_word(said: str, question: str, sentence: str) -> None:
    assert sentence_stating(NOTE, said, question) == sentence


def test_yes_and_no_quote_nothing() -> None:
    for said in ("Yes", "no.", "True", "false", "A"):
        assert sentence_stating(f"So: {said}. A park.", said, "Is it?") == ""
    assert sentence_stating("It was 8 then.", "8", "When?") == "It was 8 then."


@given(st.lists(st.sampled_from(["a", "ab", "b.", "1", "\u00e9", "\n"]), max_size=30), st.data())
def test_every_run_of_whole_words_is_found(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words)))
    said = " ".join(words[start : data.draw(st.integers(start, len(words)))]).strip()
    quote = sentence_stating("  ".join(words), said, "")
    plain = " ".join(said.split()).strip(" .")
    assert plain in quote or (quote == "" and len(plain) < 2 and plain != "1")


def test_what_is_too_long_for_a_sentence_is_no_quote() -> None:
    text = "It rains and " * 500
    assert sentence_stating(text, text[:900], "")
    assert sentence_stating(text, text[:1100], "") == ""


def test_of_very_many_places_the_first_are_compared() -> None:
    text = "It is 7. " * 10_000 + "The port is 7."
    assert sentence_stating(text, "7", "Which port?") == "It is 7."


WRAPPED = (
    "The staging server runs on port 8443. Deployments happen every Tuesday, and Priya\n"
    "    approves them. Ask her first.\n"
    "- a list of things that is as long as a line of wrapped text may well be here\n"
    "Another line of text that is as long as a line of wrapped text may well be.\n"
    "host: short\nport: 80"
)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ("Priya", "Deployments happen every Tuesday, and Priya\n    approves them."),
        ("approves", "Deployments happen every Tuesday, and Priya\n    approves them."),
        ("8443", "The staging server runs on port 8443."),
        ("her", "Ask her first."),
        ("list", "- a list of things that is as long as a line of wrapped text may well be here"),
        ("host", "host: short"),
        ("80", "port: 80"),
    ],
)
def test_a_wrapped_line_goes_on_and_others_end(found: str, sentence: str) -> None:
    assert around(WRAPPED, found) == sentence
