"""The final answer of a rationale, whose prompt asks for reasoning and a concise conclusion."""

import re
from collections.abc import Iterator

from selfcorrect_rag.search.chunking import sentences

_QUOTED = r"\"[^\"\n]*\"|“[^”\n]*”"
_STATED = re.compile(
    r"(?:^[\s#>]*|\b(?:the|my|our)\s+)(?:(?:final|correct|short|concise|best)\s+)*answers?\b"
    rf"(?:\s+(?:to|for)\b(?:[^.:\n\"“]|{_QUOTED}){{0,200}}?)?"
    r"\s*(?::|\b(?:is|are|would be|must be)\b:?)[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_STATES_NONE = re.compile(
    r"(?:not|unclear|unknown|found|provided|given|mentioned|stated|supported|based|derived|located"
    r"|explicitly|(?:in|from)\s+(?:the\s+)?\W*documents?)\b",
    re.IGNORECASE,
)


def final_answer(rationale: str) -> str:
    """The answer that a rationale comes to; empty where the rationale is.

    What follows the last announcement ("Answer: ...", "the answer is ...", "the correct answers
    are: ...") up to the end of its sentence, or the list below it, joined by commas; without the
    quotes around it and its full stop. "The answer is not given" or "the answer is found in
    Document [2]" announces nothing. Where nothing is announced, the last sentence as it stands.
    """
    text = re.sub(r"\*\*|__", "", rationale).strip()
    for match in reversed(list(_STATED.finditer(text))):
        answer = _stated(text[match.end() :])
        if answer and not _STATES_NONE.match(answer):
            return answer
    return next(reversed(list(_whole_sentences(text))), "")


_BULLET = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+")


def _stated(rest: str) -> str:
    """The answer at the beginning of ``rest``: a sentence or, after a line break, a list."""
    line, *below = rest.split("\n")
    if not line.strip():
        lines = [text.strip() for text in below if text.strip()]
        line = lines[0] if lines else ""
        items = []
        while lines and _BULLET.match(lines[0]):
            items.append(_bare(_BULLET.sub("", lines.pop(0), count=1)))
        if items:
            return ", ".join(items)
    return _bare(next(_whole_sentences(line), ""))


_ABBREVIATION = re.compile(r"\b(?:[A-HJ-UWYZ]|[JS]r|Mrs?|Ms|[DM]r|St|Mt|No|vs|Inc|Co|Ltd)\.$")
"""A full stop that ends no sentence; I, V and X more often end a name, as in "World War I."."""


def _whole_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, one with "J. R. R. Tolkien" in one piece."""
    held = ""
    for line in text.splitlines():
        for piece in sentences(line):
            held = f"{held} {piece}".strip()
            if not _ABBREVIATION.search(held):
                yield held
                held = ""
        if held:
            yield held
            held = ""


def _bare(answer: str) -> str:
    answer = answer.strip()
    if not _ABBREVIATION.search(answer):
        answer = answer.rstrip(".!")
    is_quoted = re.fullmatch(r"[\"“]([^\"“”]*)[\"”]", answer)
    return (is_quoted[1].rstrip(".") if is_quoted else answer).strip()
