"""The sentence or line in which some characters of a text stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.prompts.sentences import LONGEST_QUOTE, sentence_at


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
    if "\n" not in text[start:end]:
        assert "\n" not in sentence
