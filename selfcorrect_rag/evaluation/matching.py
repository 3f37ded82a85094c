"""Whether a text contains an answer: in whole words, or as the papers' scripts compare."""

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cache

_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether ``text`` contains any of ``answers`` in whole words, in lower case and without
    articles and punctuation; a blank answer is in no text."""
    words = split_words(text)
    bare = [word for word in words if word not in _ARTICLES]
    for answer in map(split_words, answers):
        wanted = [word for word in answer if word not in _ARTICLES]
        within = bare if wanted else words  # an answer of articles alone keeps them
        if answer and f" {' '.join(wanted or answer)} " in f" {' '.join(within)} ":
            return True
    return False


def answer_words(text: str) -> list[str]:
    """The words without articles, unless nothing else is there."""
    words = split_words(text)
    return [word for word in words if word not in _ARTICLES] or words


def split_words(text: str) -> list[str]:
    """Words in lower case; each letter of a script without case (Chinese, ...) is one."""
    return "".join(map(_spaced, unicodedata.normalize("NFKC", text).casefold())).split()


@cache
def _spaced(letter: str) -> str:
    """Drop punctuation within a word ("U.S." is "US"); any other ends one ("1990-1995")."""
    if letter in ".'’`´":
        return ""
    if not letter.isalnum():
        return letter if unicodedata.combining(letter) else " "
    return f" {letter} " if letter.isalpha() and not letter.islower() else letter


def normalise(text: str) -> str:
    """SQuAD's normalisation, which Self-RAG, ALCE and InstructRAG use too: lower case, no ASCII
    punctuation, no articles. Trap: "A", an article alone, becomes empty."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def any_within(text: str, answers: Iterable[str]) -> bool:
    """Whether the normalised text contains any normalised answer (ALCE, InstructRAG). Traps: "US"
    is in "because"; an empty answer is in every text."""
    whole = normalise(text)
    return any(normalise(answer) in whole for answer in answers)
