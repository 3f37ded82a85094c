"""Parses citation marks of numbered documents: ``[1]``, ``[1, 2]``, ``[1-3]``."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from selfcorrect_rag.prompts.refusals import is_refusal, refuses
from selfcorrect_rag.prompts.sentences import sentences

_SPACE = r"\s{0,3}+"
_RANGE = rf"\d{{1,3}}(?:{_SPACE}[-\u2010-\u2015]{_SPACE}\d{{1,3}})?"
_ITEM = rf"(?:(?:documents?|docs?\.?|passages?|sources?){_SPACE})?{_RANGE}"
_AND = rf"{_SPACE}(?:,{_SPACE}and\b|[,;&]|and\b){_SPACE}"
_LIST = (
    rf"{_SPACE}\^?{_ITEM}(?:{_AND}\^?{_ITEM}){{0,31}}\^?{_SPACE}"
    r"(?:\u2020[^\]\u3011\n]{0,60})?"
)
"""Up to 32 items. A space is matched in one way only, so that no text takes long to read."""
_MARK = re.compile(
    rf"\[(?P<square>{_LIST})\](?!\()|\u3010(?P<lens>{_LIST})\u3011|\uff3b(?P<wide>{_LIST})\uff3d",
    re.IGNORECASE | re.ASCII,
)
"""``[1](`` begins a link of Markdown. ``\u30101\u2020source\u3011`` is how some models quote."""
_SPACES = " \t\xa0"
_SKIPPED = re.compile(
    r"(?P<code>(?P<fence>```|~~~).*?(?:(?P=fence)|\Z)|`[^`\n]+`)"
    r"|\[[^\[\]\n]{0,200}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,200}+){0,3}"
    r"\]\([^()\n]{0,1000}+\)",
    re.DOTALL,
)
"""Code, and links of Markdown: ``[1](http://a.org)``, ``[[1]](http://a.org)``."""


class Marked(NamedTuple):
    """An answer, and the documents that it cites."""

    answer: str
    """The answer without marks of documents."""
    cited: str
    """The answer with ``[n]`` for each cited document, and ``[9?]`` for a mark without a
    document."""
    numbers: list[int]
    """The cited documents, in order of first mark."""
    unknown: list[str]
    """Numbers and ranges in marks, as written, that belong to no document."""
    refused: list[int]
    """Marked documents that may not be cited."""


class Mark(NamedTuple):
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

    Marks are single numbers, lists and ranges in square or lenticular brackets, but not in code,
    indices (``arr[0]``), lists that begin with 0, or links. A mark attached to a word
    (``Austen[1]``) counts unless the word looks like a variable. A range with an end that does not
    exist cites nothing.

    A refusal cites nothing: its marks are removed like the rest, be it a sentence or the whole
    answer. A mark used as a noun there ("[1] does not say") is replaced by its document's number in
    words.

    Args:
        text: the model's output.
        documents: number of documents shown, numbered from 1.
        citable: the numbers that may be cited.
    """
    marks = list(marks_in(text, documents))
    valid = [mark for mark in marks if mark.numbers]
    answer, _ = _replaced(text, valid, [""] * len(valid))
    silent = _silent(*_replaced(text, valid, _nouns(text, valid)))
    loud = [mark for i, mark in enumerate(valid) if i not in silent]
    kept = {m.start: [n for n in m.numbers if n in citable] for m in loud}
    cited, _ = _replaced(text, marks, [_instead(m, kept.get(m.start, [])) for m in marks])
    return Marked(
        answer,
        cited,
        list(dict.fromkeys(n for numbers in kept.values() for n in numbers)),
        list(dict.fromkeys(item for mark in marks for item in mark.missing)),
        list(dict.fromkeys(n for mark in loud for n in mark.numbers if n not in citable)),
    )


def without_marks(text: str) -> str:
    """The text with its marks disabled: ``[3]`` becomes ``[3?]``."""
    return read_marks(text, 0, ()).cited


def _instead(mark: Mark, cited: Sequence[int]) -> str:
    """The replacement of a mark in the cited answer; empty if it cites nothing."""
    if not mark.numbers:
        return f"{mark.text[:-1]}?{mark.text[-1]}"
    return "".join(f"[{n}]" for n in cited)


def marks_in(text: str, documents: int) -> Iterator[Mark]:
    """The marks of a text in order; code, links and indices hold none."""
    skipped = list(_SKIPPED.finditer(text))
    has_code = any(match["code"] for match in skipped)
    spans = (match.span() for match in skipped)
    start, end = next(spans, (len(text), len(text)))
    indexed = -1  # end of the last index: a bracket right after it is one too
    for match in _MARK.finditer(text):
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
    first, *rest = [int(number) for number in re.findall(r"\d+", item)]
    last = rest[0] if rest else first
    return range(first, last + 1) if 1 <= first <= last <= documents else range(0)


_VARIABLE = re.compile(
    r"(?:^|[^\w.])(?:[a-z]|\w*_\w*|[a-z_]\w*\.[a-z_]\w*"
    r"|arr|args|argv|buf|dict|idx|lst|nums|obj|ptr|str|tmp|vec)$"
)
"""How a text before a bracket ends where the bracket is an index: ``x``, ``my_list``,
``self.items``."""
_NAME = re.compile(r"(?:^|\W)[a-z]+(?:[A-Z]\w*|\d+)?$")
"""The same in a text with code; elsewhere they are words too: ``data``, ``iPhone``, ``p53``."""
_OPERATOR = re.compile(r"[ \t]*[-+*/%]?=|[ \t]+[*/<>][ \t]|\.[a-z_]\w*|\(")
"""Text that follows an index, in the same line."""


def _is_index(text: str, match: re.Match[str], has_code: bool) -> bool:
    before = text[max(match.start() - 80, 0) : match.start()]
    after = text[match.end() : match.end() + 40]
    if re.search(r"=[ \t]*\Z", before):
        return True
    if not before or not (before[-1].isalnum() or before[-1] in "_)"):
        return False
    if before[-1] == ")":
        return has_code and bool(re.search(r"\w\([^()\n]*\)$", before))
    if re.search(r"\b0+\b", match[0]) or (has_code and _NAME.search(before)):
        return True
    return bool(_VARIABLE.search(before) or _OPERATOR.match(after))


def _replaced(text: str, marks: list[Mark], by: list[str]) -> tuple[str, list[int]]:
    """The text with each mark replaced, and the end of each replacement.

    A removed mark takes along the space before it (at the beginning of a line, after it), and
    brackets that contain nothing else.
    """
    parts: list[str] = []
    offsets, end, length, last = [], 0, 0, ""
    for mark, instead in zip(marks, by, strict=True):
        before, after = text[end : mark.start], mark.end
        if instead:
            before += text[max(mark.start, end) : mark.bracket]
            last = before[-1:] or last
            is_glued = last and not last.isspace() and last not in "([]\u3010"
            before += " " * bool(is_glued) + instead
        else:
            if not mark.bracket or text[mark.bracket - 1] == "\n":
                while text[after : after + 1] in (*_SPACES,):
                    after += 1
            if before.endswith("(") and text[after : after + 1] == ")":
                before, after = before[:-1].rstrip(_SPACES), after + 1
        last = before[-1:] or last
        parts.append(before)
        length += len(before)
        offsets.append(length)
        end = after
    whole = "".join([*parts, text[end:]])
    lead = len(whole) - len(whole.lstrip())
    return whole.strip(), [max(offset - lead, 0) for offset in offsets]


_NAMING = re.compile(
    r"\b(?:(?P<noun>documents?|docs?\.?|passages?|sources?)|neither|nor|and|or|of|in|both|does|do)\Z",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\s*(?:,\s*)?(?:and|or|nor)?\s*", re.IGNORECASE)
_BEGINS = re.compile(r"(?:^|\n|[.!?:]\s)[-*>\s]*\Z")
_SAYS = re.compile(r"\s*(?:,\s*)?(?:(?:and|or|nor)\s*)?[\[\u3010\uff3b]|\s+[a-z]")


def _nouns(text: str, marks: Sequence[Mark]) -> list[str]:
    """For each mark, its documents in words if it is used as a noun: ``[1] does not say``.

    That is at the beginning of a sentence that goes on with it, and after words such as "neither",
    "and" and "documents".
    """
    nouns: list[str] = []
    for i, mark in enumerate(marks):
        before = text[max(mark.bracket - 40, 0) : mark.bracket]
        naming = _NAMING.search(before.rstrip())
        listed = " and ".join(map(str, mark.numbers[:32]))
        gap = text[marks[i - 1].end : mark.bracket] if i else "."
        if i and nouns[-1] and len(gap) < 40 and _BETWEEN.fullmatch(gap):
            nouns.append(listed if gap.strip() else f"and {listed}")
        elif naming or (_BEGINS.search(before) and _SAYS.match(text[mark.end : mark.end + 40])):
            nouns.append(listed if naming and naming["noun"] else f"Documents {listed}")
        else:
            nouns.append("")
    return nouns


def _silent(answer: str, offsets: list[int]) -> set[int]:
    """Indices of the marks in refusing sentences.

    A mark after a full stop belongs to the sentence before it, one at the beginning of a line to
    the sentence after it.
    """
    if is_refusal(answer):
        return set(range(len(offsets)))
    silent, place, i = set[int](), 0, 0
    for sentence in sentences(answer):
        place = answer.find(sentence, place) + len(sentence)
        declines = refuses(sentence)
        while i < len(offsets) and offsets[i] <= place:
            if declines:
                silent.add(i)
            i += 1
    return silent
