"""Whether a text contains an answer: InstructRAG's check of rationales by substring (section 2.2).

Compared are whole words in lower case, without articles and punctuation, as the papers' accuracy
compares. A bare substring would find the answer "US" in every "because".
"""

import unicodedata
from collections.abc import Iterable

_ARTICLES = frozenset({"a", "an", "the"})
_DROPPED = frozenset(".'’`´")
"""Punctuation within a word: "U.S." is "US". Any other ends one: "1990-1995" is two."""


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether ``text`` contains any of ``answers``; a blank answer is in no text.

    Letters of scripts without case are words of their own: many of these write no spaces. An
    answer of articles alone keeps them.
    """
    words = _words(text)
    bare = _without_articles(words)
    for answer in map(_words, answers):
        wanted = _without_articles(answer)
        if _within(wanted, bare) if wanted else _within(answer, words):
            return True
    return False


def answer_words(text: str) -> list[str]:
    """The words that are compared: without articles, unless nothing else is there."""
    words = _words(text)
    return _without_articles(words) or words


def _within(wanted: list[str], words: list[str]) -> bool:
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(words)} "


def _without_articles(words: list[str]) -> list[str]:
    return [word for word in words if word not in _ARTICLES]


def _words(text: str) -> list[str]:
    return unicodedata.normalize("NFKC", text).casefold().translate(_SPACED).split()


class _Spaced(dict[int, str]):
    """For `str.translate`: what each character becomes, found out once."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        if letter in _DROPPED:
            spaced = ""
        elif not letter.isalnum():
            spaced = letter if unicodedata.combining(letter) else " "
        else:
            spaced = f" {letter} " if letter.isalpha() and not letter.islower() else letter
        self[code] = spaced
        return spaced


_SPACED = _Spaced()
