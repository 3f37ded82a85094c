"""Citation marks of numbered documents: ``[1]``, ``[1, 2]``, ``[1-3]``."""

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


_SPACE = r"\s{0,3}+"
_RANGE = rf"\d{{1,3}}(?:{_SPACE}[-\u2010-\u2015]{_SPACE}\d{{1,3}})?"
_ITEM = rf"(?:(?:documents?|docs?\.?|passages?|sources?){_SPACE})?{_RANGE}"
_AND = rf"{_SPACE}(?:,{_SPACE}and\b|[,;&]|and\b){_SPACE}"
_LIST = (
    rf"{_SPACE}\^?{_ITEM}(?:{_AND}\^?{_ITEM}){{0,31}}\^?{_SPACE}(?:\u2020[^\]\u3011\n]{{0,60}})?"
)
"""Up to 32 items. A space is matched in one way only, so that no text takes long to read."""
_MARK = re.compile(
    rf"\[(?P<square>{_LIST})\](?!\()|\u3010(?P<lens>{_LIST})\u3011|\uff3b(?P<wide>{_LIST})\uff3d",
    re.IGNORECASE | re.ASCII,
)
"""``[1](`` begins a link of Markdown. ``\u30101\u2020source\u3011`` is how some models quote."""
_SKIPPED = re.compile(
    r"(?P<code>(?P<fence>```|~~~).*?(?:(?P=fence)|\Z)|`[^`\n]+`)"
    r"|\[[^\[\]\n]{0,200}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,200}+){0,3}"
    r"\]\([^()\n]{0,1000}+\)",
    re.DOTALL,
)
"""Code, and links of Markdown: ``[1](http://a.org)``, ``[[1]](http://a.org)``."""
_VARIABLE = re.compile(
    r"(?:^|[^\w.])(?:[a-z]|\w*_\w*|[a-z_]\w*\.[a-z_]\w*"
    r"|arr|args|argv|buf|dict|idx|lst|nums|obj|ptr|str|tmp|vec)$"
)
"""Text before the index of a variable: ``x``, ``my_list``, ``self.items``."""
_NAME = re.compile(r"(?:^|\W)[a-z]+(?:[A-Z]\w*|\d+)?$")
"""The same in a text with code; elsewhere these are words too: ``data``, ``iPhone``, ``p53``."""
_OPERATOR = re.compile(r"[ \t]*[-+*/%]?=|[ \t]+[*/<>][ \t]|\.[a-z_]\w*|\(")
"""Text behind an index, in the same line."""
_SPACES = " \t\xa0"
MOST_MARKS = 1_000
"""Marks of a text that are read; further ones stay text."""


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


class Mark(NamedTuple):
    """A mark in a text."""

    start: int
    """Start in the text, including the space before it."""
    bracket: int
    """Start of its bracket."""
    end: int
    text: str
    numbers: list[int]
    """Its existing documents; a mark without any cites nothing."""
    missing: list[str]
    """Its numbers and ranges without a document."""


def read_marks(text: str, documents: int, citable: Collection[int]) -> Marked:
    """Parse the marks of an answer, and remove them.

    A range with an end that does not exist cites nothing; neither does a refusal.

    Args:
        text: the model's output.
        documents: number of documents shown, numbered from 1.
        citable: the numbers that may be cited.
    """
    marks = list(marks_in(text, documents))
    valid = [mark for mark in marks if mark.numbers]
    answer = _replace(text, valid, [""] * len(valid))
    citing = [] if is_refusal(answer) else valid
    kept = {mark.start: [n for n in mark.numbers if n in citable] for mark in citing}
    shown = [
        "".join(f"[{n}]" for n in kept.get(mark.start, []))
        if mark.numbers
        else f"{mark.text[:-1]}?{mark.text[-1]}"
        for mark in marks
    ]
    return Marked(
        answer,
        _replace(text, marks, shown),
        list(dict.fromkeys(n for numbers in kept.values() for n in numbers)),
        list(dict.fromkeys(item for mark in marks for item in mark.missing)),
        list(dict.fromkeys(n for mark in citing for n in mark.numbers if n not in citable)),
    )


def without_marks(text: str) -> str:
    """Return the text with its marks disabled: ``[3]`` becomes ``[3?]``."""
    return read_marks(text, 0, ()).cited


def marks_in(text: str, documents: int) -> Iterator[Mark]:
    """Yield the marks of a text in order; code, links, indices and lists from 0 hold none."""
    skipped = list(_SKIPPED.finditer(text))
    has_code = any(match["code"] for match in skipped)
    spans = (match.span() for match in skipped)
    start, end = next(spans, (len(text), len(text)))
    indexed = -1  # end of the last index: a bracket right after it is one too
    for match in islice(_MARK.finditer(text), MOST_MARKS):
        while end <= match.start():
            start, end = next(spans, (len(text), len(text)))
        if start <= match.start():
            continue
        if match.start() == indexed or _is_index(text, match, has_code):
            indexed = match.end()
            continue
        listed = match["square"] or match["lens"] or match["wide"]
        items = re.findall(_RANGE, listed.split("\u2020")[0], re.ASCII)
        if len(items) > 1 and items[0].split()[0].strip("0") == "":
            continue  # an interval, or a value
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


def _is_index(text: str, match: re.Match[str], has_code: bool) -> bool:
    before = text[max(match.start() - 80, 0) : match.start()]
    if re.search(r"=[ \t]*\Z", before):
        return True
    if not before or not (before[-1].isalnum() or before[-1] in "_)"):
        return False
    if before[-1] == ")":
        return has_code and bool(re.search(r"\w\([^()\n]*\)$", before))
    if re.search(r"\b0+\b", match[0]) or (has_code and _NAME.search(before)):
        return True
    behind = text[match.end() : match.end() + 40]
    return bool(_VARIABLE.search(before) or _OPERATOR.match(behind))


def _replace(text: str, marks: Sequence[Mark], by: Sequence[str]) -> str:
    """Replace each mark.

    A removed mark takes along the space before it (at the beginning of a line, after it), and
    brackets that contain nothing else.
    """
    parts: list[str] = []
    end, last = 0, ""
    for mark, instead in zip(marks, by, strict=True):
        before, after = text[end : mark.start], mark.end
        if instead:
            before += text[max(mark.start, end) : mark.bracket]
            last = before[-1:] or last
            is_glued = last and not last.isspace() and last not in "([]\u3010"
            before += " " * bool(is_glued) + instead
        else:
            if not mark.bracket or text[mark.bracket - 1] == "\n":
                while after < len(text) and text[after] in _SPACES:
                    after += 1
            if before.endswith("(") and text[after : after + 1] == ")":
                before, after = before[:-1].rstrip(_SPACES), after + 1
        last = before[-1:] or last
        parts.append(before)
        end = after
    return "".join([*parts, text[end:]]).strip()
