"""Refusals, and citation marks of numbered documents: ``[1]``, ``[1, 2]``, ``[1-3]``."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

REFUSAL = "The documents do not say."
"""The refusal of this package's own models, prompts and graphs."""
NOT_ENGLISH = "I cannot answer: I read questions in English only."
NO_DOCUMENTS = "I cannot answer this: I answer from documents alone."
"""Refusals of the embedded reader."""


def is_refusal(text: str) -> bool:
    """Return whether ``text`` is a fixed refusal, apart from case, punctuation and marks."""
    refusals = map(_words, (REFUSAL, NOT_ENGLISH, NO_DOCUMENTS))
    return len(text) <= 200 and _words(text) in refusals


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


_RANGE = r"\d{1,3}(?:\s?[-\u2010-\u2015]\s?\d{1,3})?"
_ITEM = rf"(?:(?:documents?|docs?|passages?|sources?)\s)?{_RANGE}"
_MARK = re.compile(
    # Up to 32 items; ``[1](`` begins a link of Markdown.
    rf"\[\s?{_ITEM}(?:\s?(?:, and\b|[,;&]|and\b)\s?{_ITEM}){{0,31}}\s?\](?!\()",
    re.IGNORECASE | re.ASCII,
)
_SKIPPED = re.compile(
    r"(?P<fence>```|~~~).*?(?:(?P=fence)|\Z)|`[^`\n]+`"
    r"|\[[^\[\]\n]{0,200}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,200}+){0,3}"
    r"\]\([^()\n]{0,1000}+\)",
    re.DOTALL,
)
"""Code, and links of Markdown: ``[1](http://a.org)``, ``[[1]](http://a.org)``."""
_VARIABLE = re.compile(r"(?:\b[a-z]|\w_\w*|\w\.[a-z]\w*)$")
"""Text before an index: ``x``, ``my_list``, ``self.items``."""
_SPACES = " \t\xa0"
MOST_MARKS = 1_000
"""Marks that are read of a text; each becomes an annotation of the message."""


class Mark(NamedTuple):
    """A mark in a text: ``text[bracket:end]``; ``start`` includes the space before it."""

    start: int
    bracket: int
    end: int
    text: str
    numbers: list[int]
    """Its existing documents; a mark without any cites nothing."""
    missing: list[str]
    """Its numbers and ranges without a document."""


class Marked(NamedTuple):
    """An answer, and the documents that it cites."""

    answer: str
    """The answer without marks of documents."""
    cited: str
    """The answer with ``[n]`` for each cited document; ``[9?]`` marks a missing document."""
    numbers: list[int]
    """The cited documents, in order of first mark."""
    unknown: list[str]
    """Numbers and ranges in marks, as written, that belong to no document."""
    refused: list[int]
    """Marked documents that may not be cited."""


def read_marks(text: str, documents: int, citable: Collection[int]) -> Marked:
    """Parse the marks of an answer to ``documents`` documents, numbered from 1, and remove them.

    A range with an end that does not exist cites nothing; neither does a refusal.
    """
    marks = list(marks_in(text, documents))
    valid = [mark for mark in marks if mark.numbers]
    answer = _replace(text, valid, [""] * len(valid))
    named = [] if is_refusal(answer) else [n for mark in valid for n in mark.numbers]
    cited = dict.fromkeys(n for n in named if n in citable)
    shown = [
        "".join(f"[{n}]" for n in mark.numbers if n in cited)
        if mark.numbers
        else f"{mark.text[:-1]}?]"
        for mark in marks
    ]
    return Marked(
        answer,
        _replace(text, marks, shown),
        list(cited),
        list(dict.fromkeys(item for mark in marks for item in mark.missing)),
        list(dict.fromkeys(n for n in named if n not in citable)),
    )


def without_marks(text: str) -> str:
    """Return the text with its marks disabled: ``[3]`` becomes ``[3?]``."""
    return read_marks(text, 0, ()).cited


def marks_in(text: str, documents: int) -> Iterator[Mark]:
    """Yield the marks of a text in order; code, links, indices and lists from 0 hold none."""
    spans = (match.span() for match in _SKIPPED.finditer(text))
    start, end = next(spans, (len(text), len(text)))
    for match in islice(_MARK.finditer(text), MOST_MARKS):
        while end <= match.start():
            start, end = next(spans, (len(text), len(text)))
        items = re.findall(_RANGE, match[0], re.ASCII)
        before = text[max(match.start() - 40, 0) : match.start()]
        if start <= match.start() or not items[0].strip("0") or _VARIABLE.search(before):
            continue
        begin = match.start()
        while begin and text[begin - 1] in _SPACES:
            begin -= 1
        if not begin or text[begin - 1] == "\n":  # the mark begins a line: its indent stays
            begin = match.start()
        found = {item: _numbers(item, documents) for item in items}
        numbers = dict.fromkeys(n for some in found.values() for n in some)
        missing = [item for item, some in found.items() if not some]
        yield Mark(begin, match.start(), match.end(), match[0], list(numbers), missing)


def _numbers(item: str, documents: int) -> range:
    ends = [int(number) for number in re.findall(r"\d+", item)]
    is_known = 1 <= ends[0] <= ends[-1] <= documents
    return range(ends[0], ends[-1] + 1) if is_known else range(0)


def _replace(text: str, marks: Sequence[Mark], by: Sequence[str]) -> str:
    """Replace each mark. A removed one takes along the space before it (at the beginning of a
    line, after it), and brackets that contain nothing else."""
    parts: list[str] = []
    end, last = 0, ""
    for mark, instead in zip(marks, by, strict=True):
        before, after = text[end : mark.start], mark.end
        if instead:
            before += text[max(mark.start, end) : mark.bracket]
            last = before[-1:] or last
            before += " " * (not last.isspace() and last not in "([]") + instead
        else:
            if not mark.bracket or text[mark.bracket - 1] == "\n":
                while text[after : after + 1] and text[after] in _SPACES:
                    after += 1
            if before.endswith("(") and text[after : after + 1] == ")":
                before, after = before[:-1].rstrip(_SPACES), after + 1
        last = before[-1:] or last
        parts.append(before)
        end = after
    return "".join([*parts, text[end:]]).strip()
