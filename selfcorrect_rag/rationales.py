"""What a rationale says: the final answer, and which documents it uses or dismisses.

Pure text, sentence by sentence. Where a rationale contradicts itself, a document is dismissed.
"""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from selfcorrect_rag.search.chunking import sentences


class Reading(NamedTuple):
    """The documents that a rationale names, by number from 1, in order of first name."""

    useful: list[int]
    dismissed: list[int]
    missing: list[int]
    """Numbers that no document has."""


class _Grade(IntEnum):
    """What a clause says about a document; over a rationale, the highest grade decides."""

    DESCRIBED = 1
    LACKING = 2
    USEFUL = 3
    IRRELEVANT = 4


def read_documents(rationale: str, titles: Sequence[str]) -> Reading:
    """Which of the documents a rationale uses, and which it only names to dismiss them.

    A document is named by number ("Document [2]", "documents 1 and 3", "Documents 2-4", "[2]") or,
    where one document alone bears it, by its title in quotes after such a word as "titled". It is
    useful where the rationale says that it is, or says what is in it, and dismissed where any
    clause calls it irrelevant, or says that it lacks what is asked for and none calls it useful.
    What stands in quotes, or is reported ("states that ..."), is no verdict.

    Args:
        rationale: what a model wrote.
        titles: of the documents as they were numbered; empty where one has none.
    """
    text = _marked(rationale, titles)
    grades: dict[int, _Grade] = {}
    before: list[int] = []
    for sentence, heading in _with_headings(text):
        found = _read_sentence(sentence, before)
        if heading:
            found = {n: max(grade, heading) for n, grade in found.items()}
        for number, grade in found.items():
            grades[number] = max(grade, grades.get(number, grade))
        before = list(found) or before
    there = {n: g for n, g in grades.items() if 1 <= n <= len(titles)}
    verdicts = {n: g in (_Grade.DESCRIBED, _Grade.USEFUL) for n, g in there.items()}
    return Reading(
        useful=[n for n, is_useful in verdicts.items() if is_useful],
        dismissed=[n for n, is_useful in verdicts.items() if not is_useful],
        missing=[n for n in grades if n not in there],
    )


# Documents by name, as marks


_BEGIN, _END = "\x02", "\x03"
_ITEM = r"[\[(#]{0,2}\d{1,3}(?![\d%])[\])]{0,2}"
_AND = r"\s*(?:,\s*(?:(?:and|or|nor)\s+)?|(?:and|or|nor|&|to|through)\s+|[-–]\s*)"
_BRACKET = r"\[\d{1,3}(?:\s*[,–-]\s*\d{1,3})*\]"
_MENTION = re.compile(
    rf"\bdoc(?:ument)?s\s*:?\s*{_ITEM}(?:{_AND}{_ITEM})*"
    rf"|\bdoc(?:ument)?\.?\s*(?:no\.\s*|number\s+)?{_ITEM}"
    rf"(?:\s*,?\s*(?:(?:and|or|nor|&)\s*)?{_BRACKET}|\s*(?:and|or|nor|&)\s*\d{{1,3}}(?![\d%]))*"
    rf"|{_BRACKET}",
    re.IGNORECASE,
)
_TITLED = re.compile(
    r"\b(?:documents?|passages?|articles?|titled|entitled|title)\s*[:,]?\s*"
    r"[\"“]([^\"“”\n]{1,200})[\"”]",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"\n]{0,500}\"|“[^“”\n]{0,500}”")


def _marked(text: str, titles: Sequence[str]) -> str:
    """The text with documents named in one way, and without quotations and emphasis."""
    numbers: dict[str, list[int]] = {}
    for number, title in enumerate(titles, start=1):
        numbers.setdefault(_plain(title), []).append(number)

    def by_title(match: re.Match[str]) -> str:
        found = numbers.get(_plain(match[1]), [])
        return f" {_BEGIN}{found[0]}{_END} " if len(found) == 1 else match[0]

    text = re.sub(rf"[{_BEGIN}{_END}]|\*\*|__", "", text)
    for title in titles:  # as the prompt shows it: words of a title are no verdict
        text = text.replace(f" (Title: {title})", "")
    text = _QUOTED.sub('""', _TITLED.sub(by_title, text))
    return _MENTION.sub(lambda m: f"{_BEGIN}{' '.join(map(str, _numbers(m[0])))}{_END}", text)


def _plain(title: str) -> str:
    return " ".join(title.casefold().split()).rstrip(".,")


_WIDEST = 100
"""Of ranges; a wider one is two numbers."""


def _numbers(mention: str) -> Iterator[int]:
    """The numbers of a mention, with ranges counted out."""
    last, is_range = 0, False
    for word in re.findall(r"\d+|to|through|[-–]", mention):
        if not word.isdigit():
            is_range = True
            continue
        number = int(word)
        if is_range and number - last <= _WIDEST:
            yield from range(last + 1, number)
        yield (last := number)
        is_range = False


# Sentences and clauses


_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")


def _with_headings(text: str) -> Iterator[tuple[str, _Grade | None]]:
    """The sentences, each with the grade of the heading that its list stands under."""
    heading: _Grade | None = None
    for line in text.splitlines():
        if not line.strip():
            continue
        bullet = _BULLET.match(line)
        if not bullet and _content(line):
            heading = None
        for sentence in sentences(line[bullet.end() :] if bullet else line):
            yield sentence, heading
        if line.rstrip().endswith(":") and _BEGIN not in line:
            grade = _grade(line)
            heading = grade if grade > _Grade.DESCRIBED else None


_CLAUSE = re.compile(
    r";|\s[—–]\s|\s(?=(?:but|however|while|whereas|although|though|except|unlike|yet)\b)"
    r"|,\s+(?=which\b)"
    rf"|(?:,\s+(?:and\s+)?|\sand\s+)(?=(?:(?:the|only|in|as|since|because|from)\s+){{0,2}}{_BEGIN})",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(
    r"(?:(?:but|however|yet|while|although|though|and|therefore|thus|so)\b[\s,]*)?"
    r"(?:(?:it|they|neither|both|which|itself|still|do|does|is|are)\b"
    r"|(?:this|these|that|those|the)\s+(?:documents?|passages?|is|are|does|do)\b)",
    re.IGNORECASE,
)
_BUT = re.compile(r"(?:but|however|yet)\b", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:others?|rest|remaining|none)\b", re.IGNORECASE)


def _read_sentence(sentence: str, before: Sequence[int]) -> dict[int, _Grade]:
    """The grade of each document that the sentence names, or that its pronouns stand for.

    ``before`` are the documents named last.
    """
    grades: dict[int, _Grade] = {}
    for clause in _clauses(sentence):
        grade, named = _grade(clause), _named(clause)
        for number in named:
            grades[number] = max(grade, grades.get(number, grade))
        if named or _OTHERS.search(clause) or not _FOLLOWS.match(clause):
            continue
        if grade > _Grade.DESCRIBED:
            for number in list(grades) or before:
                grades[number] = max(grade, grades.get(number, grade))
        elif _BUT.match(clause):
            # "does not mention the year, but it states ...": what it has is of use after all
            for number in [n for n, found in grades.items() if found == _Grade.LACKING]:
                grades[number] = grade
    return grades


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence in clauses; bare names ("Document 1, Document 2 and ...") go with the next one."""
    held: list[str] = []
    for piece in _CLAUSE.split(sentence):
        held.append(piece.strip())
        if _content(piece):
            yield ", ".join(held)
            held = []
    if held:
        yield ", ".join(held)


def _content(clause: str) -> bool:
    """Whether a clause says more than names of documents."""
    rest = re.sub(rf"{_BEGIN}[^{_END}]*{_END}", " ", clause)
    words = re.findall(r"[^\W_]+", rest.lower())
    return any(word not in _EMPTY for word in words)


_EMPTY = frozenset({"and", "or", "both", "neither", "either", "only", "the"})


def _named(clause: str) -> list[int]:
    marks = re.findall(rf"{_BEGIN}([^{_END}]*){_END}", clause)
    return [int(number) for mark in marks for number in mark.split()]


# Verdicts


_REPORTED = re.compile(
    rf"({_END}[^{_BEGIN}]{{0,200}}?\b(?:state|say|mention|note|report|explain|indicate|reveal|show|describe|confirm"
    r"|suggest|claim|impl(?:y|ie))s?(?:\s+us)?)\s+that\b.*?(?=,\s+(?:and|so)\b|$)",
    re.IGNORECASE,
)
_NOT = r"(?:\bnot|n['’]t|\bnor|\bless|\bhardly|\bcannot)\s+(?:\w+\s+){0,3}?"
_IRRELEVANT = re.compile(
    r"\b(?:irrelevant|unrelated|unhelpful|useless)\b"
    rf"|{_NOT}(?:relevant|useful|helpful|related|pertinent|needed|necessary|applicable|aligned"
    r"|considered|used|about)\b"
    r"|\bno\s+(?:\w+\s+)?(?:relevance|use|help|bearing)\b"
    r"|\b(?:ignor|disregard|dismiss|discard|exclud)(?:e|ed|ing)?\b|\bruled\s+out\b",
    re.IGNORECASE,
)
_LACKING = re.compile(
    rf"{_NOT}(?:mention|provide|contain|state|answer|address|specify|discuss|help|refer|give"
    r"|include|say|support|indicate|match|relate|name|offer|tell|describe|explain|talk|have|identify"
    r"|confirm|reveal|show|clarify)"
    r"|\b(?:fails?|lacks?|lacking|neither|unlike)\b"
    r"|\bno\s+(?:\w+\s+){0,2}(?:information|mention|answers?|details?|evidence|reference)\b"
    r"|\bwithout\s+(?:\w+\s+){0,2}(?:mention|provid|giv|stat|nam|answer|specif)"
    r"|\b(?:about|concerns?|describes?|discuss(?:es)?|refers?\s+to)\s+(?:an?\s+)?(?:different|another)",
    re.IGNORECASE,
)
_USEFUL = re.compile(
    r"\b(?:useful|helpful|relevant|pertinent|according\s+to|based\s+on|supports?|confirms?"
    r"|answers?)\b",
    re.IGNORECASE,
)


def _grade(clause: str) -> _Grade:
    clause = _REPORTED.sub(r"\1", re.sub(r"\bnot only\b", "", clause, flags=re.IGNORECASE))
    if _IRRELEVANT.search(clause):
        return _Grade.IRRELEVANT
    if _LACKING.search(clause):
        return _Grade.LACKING
    return _Grade.USEFUL if _USEFUL.search(clause) else _Grade.DESCRIBED
