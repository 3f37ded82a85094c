"""Where a text names documents: by number, by ordinal, or by title, each as one kind of mark.

A mark stands between two control characters, so that no text can hold one: ``marked`` takes them
out of what it reads. It ends in a space where the text has brackets alone, "[2]". All patterns are
linear in the text.
"""

import re
from collections.abc import Iterator, Sequence

BEGIN, END = "\x02", "\x03"
MARK = rf"{BEGIN}[^{END}]*{END}"


ANSWER_IN_QUOTES = re.compile(
    r"^(?:therefore, )?(?:the )?(?:final )?answer(?: is|:) "
    r"“(?P<answer>[^“”\n]+)”\.\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
"""A last line that is an answer in quotes, with the full stop behind them: word for word."""
GUESS = re.compile(r" \(best guess\b[^\n]*\)\.?\s*\Z", re.IGNORECASE)
"""A guess at the end of a refusal."""


def marked(text: str, titles: Sequence[str]) -> str:
    """The text with the documents that it names as marks, without quotations and emphasis.

    Runs of spaces become one; lines stay. Words in quotes are no one's verdict: they go, unless
    they are the title of one document.
    """
    text = GUESS.sub("", ANSWER_IN_QUOTES.sub("", text))
    text = re.sub(rf"[{BEGIN}{END}⁰¹²³⁴-⁹]|\*\*|__|`", "", text)
    text = _TAG.sub(_line_of_tag, text)
    text = "\n".join(" ".join(line.split()) for line in text.splitlines())
    for title in titles:  # as the prompt shows it: words of a title are no verdict
        text = text.replace(f" (Title: {title})", "")
    text = _without_quotations(text, titles)
    text = _MENTION.sub(_by_number, text)
    text = _ORDINAL.sub(lambda match: _by_ordinal(match, len(titles)), text)
    text = _IN_BRACKETS.sub(
        lambda match: (
            f"({_mark([int(match[1])])})" if 1 <= int(match[1]) <= len(titles) else match[0]
        ),
        text,
    )
    text = _BARE_LIST.sub(lambda match: _by_bare_number(match, len(titles)), text)
    # "Document 3 (Title)": the title of a document that is named by number says nothing more
    for number, title in enumerate(titles, start=1):
        text = text.replace(f"{BEGIN}{number}{END} ({title})", f"{BEGIN}{number}{END}")
    return text


_TAG = re.compile(r"“[^“”\n]*”|<(?P<end>/?)(?P<name>[a-z_]{1,30})>", re.IGNORECASE)
"""The tag of a section, as in "<irrelevant>1, 3</irrelevant>"; in quotes it is none."""


def _line_of_tag(match: re.Match[str]) -> str:
    if match["name"] is None:
        return match[0]
    return "\n" if match["end"] else f"\n{match['name']}: "


def numbers_in(text: str) -> list[int]:
    """The documents that the marks of ``text`` name, in order."""
    return [int(n) for mark in re.findall(rf"{BEGIN}([^{END}]*){END}", text) for n in mark.split()]


def _mark(numbers: Iterator[int] | Sequence[int]) -> str:
    return f"{BEGIN}{' '.join(map(str, numbers))}{END}"


# By title


_QUOTED = re.compile(
    r"(?P<word>\b(?:documents?|passages?|articles?|titled|entitled|title) ?[:,]? ?)?"
    r"(?:[\"“](?P<double>[^\"“”\n]{1,500})[\"”]|(?<!\w)['‘](?P<single>[^'‘’\n]{1,200})['’](?!\w))",
    re.IGNORECASE,
)
_NUMBER_FOLLOWS = re.compile(r" ?[(\[](?:doc|\d)", re.IGNORECASE)
_STARTS = re.compile(r"(?:^|[.!?:;] |\n|, (?:and )?| and | or )\W{0,3}$")

_SPOKEN_OF = re.compile(
    r"[^.!?\n]{0,120}?\b(?:says?|states?|mentions?|tells?|explains?|names|answer|useful|use|used"
    r"|needed|documents?|helpful|help|helps|(?:ir)?relevant|unrelated|ignore)\b",
    re.IGNORECASE,
)


def _without_quotations(text: str, titles: Sequence[str]) -> str:
    """A title is a name after a word such as "titled", and where a clause begins with it."""
    known: dict[str, list[int]] = {}
    for number, title in enumerate(titles, start=1):
        known.setdefault(_plain(title), []).append(number)

    def replaced(match: re.Match[str]) -> str:
        quoted = match["double"] or match["single"]
        numbers = known.get(_plain(quoted), [])
        if len(numbers) == 1:
            before = text[max(0, match.start() - 12) : match.start()]
            if _NUMBER_FOLLOWS.match(text[match.end() : match.end() + 6]):
                return '""'  # "'Emma' (Document 3) says ...": the number names it
            after = text[match.end() : match.end() + 150]
            if match["word"] or (_STARTS.search(before) and _SPOKEN_OF.match(after)):
                return f" {_mark(numbers)}"
        elif match["single"]:
            return match[0]  # an apostrophe more likely than a quotation
        end = "." if quoted.endswith((".", "!", "?")) else ""
        return f'{match["word"] or ""}""{end}'

    return _QUOTED.sub(replaced, text)


def _plain(title: str) -> str:
    return " ".join(title.casefold().split()).rstrip(".,")


# By number


_ITEM = r"(?:\[\d{1,3}\]|\(\d{1,3}\)|#?\d{1,3}(?![\d%]))"
_AND = r" ?(?:, ?(?:(?:and|or|nor|&) )?|(?:and|or|nor|to|through) |[&+/] ?|[-–] ?)"
_BRACKET = r"\[\d{1,3}(?: ?[,–-] ?\d{1,3})*\]"
_WORD = r"(?:docs?|d[ocumen]{3,8}ts?|passages?|sources?|snippets?|excerpts?|contexts?|texts?)"
_MENTION = re.compile(
    rf"\b{_WORD}\.?(?<=s) ?:? ?(?:nos?\.? |numbers? )?{_ITEM}(?:{_AND}{_ITEM})*"
    rf"|\b{_WORD}\.? ?(?:no\.? |number )?{_ITEM}"
    rf"(?: ?,? ?(?:(?:and|or|nor|&) ?)?{_BRACKET}| ?(?:and|or|nor|&|\+|/) ?\d{{1,3}}(?![\d%]))*"
    rf"|{_BRACKET}(?: ?[-–] ?{_BRACKET})?",
    re.IGNORECASE,
)


def _by_number(match: re.Match[str]) -> str:
    mark = _mark(_numbers(match[0]))
    return f"{mark[:-1]} {END}" if match[0].startswith("[") else mark


_WIDEST = 100
"""Widest range; a wider one is read as two numbers."""


def _numbers(mention: str) -> Iterator[int]:
    """The numbers of a mention, with ranges counted out."""
    last, is_range = 0, False
    for word in re.findall(r"\d+|\bto\b|\bthrough\b|[-–]", mention):
        if not word.isdigit():
            is_range = True
            continue
        number = int(word)
        if is_range and number - last <= _WIDEST:
            yield from range(last + 1, number)
        yield (last := number)
        is_range = False


_IN_BRACKETS = re.compile(r"(?<=[a-z] )\((\d{1,2})\)")
_LISTED = r"\d{1,2}(?![\d%])(?: ?\([^()\n]{1,80}\))?"
_LIST = rf"{_LISTED}(?:{_AND}{_LISTED}){{0,31}}"
_BARE_LIST = re.compile(
    # after a word that speaks of documents, before what ends a list
    r"(?P<before>\b(?:(?:un)?used?|using|skip(?:ped)?|ignored?|(?:ir)?relevant|useful|useless"
    r"|(?:un)?helpful"
    r"|discard(?:ed)?|reject(?:ed)?|exclud(?:ed?|ing)|dismiss(?:ed)?|ones|those|keep|kept"
    r"|drop(?:ped)?|(?:yes|no)(?= ?:)|(?:so|nor|neither|as) (?:is|are|does|do|did)|numbers?|nos\."
    r"|sources?|refs\.)"
    rf" ?:? ?(?:are |is )?)(?P<after>{_LIST})(?= ?(?:[.,;:!?)\n–—-]|$|(?:are|is|do|does|have|has"
    rf"|both|all"
    r"|which|because|since|as|but|while|for|say|only)\b))"
    # before a verb that has no other subject: "1 and 3 are not", "(2 is ..."
    rf"|(?P<head>^|[.;:!(\n] ?|, |(?:, |\b)(?:and|but|while|whereas|neither"
    rf"|both) )(?P<subject>{_LIST})"
    r"(?= (?:(?:both|all|also|only) )?(?:too|likewise|agrees?|concurs?|confirms?|adds?|covers?"
    r"|concerns?|describes?|helps?|provides?|contains?|answers?|supports?|is|are|isn|aren|do"
    r"|does|did|don|doesn|didn|was|were|has|have|says?|states?|names?|mentions?|gives?|lists?)\b)"
    # before a colon, or in a table: "1: yes", "| 1 | no |"
    rf"|(?P<row>^\|? ?|[.;] )(?P<number>{_LIST})(?= ?(?:\||[:=] )|(?:[.)]"
    rf"| ?[–—-]) (?:(?:not )?(?:relevant|useful|helpful)|irrelevant|unhelpful|useless|yes|no)\b)",
    re.IGNORECASE | re.MULTILINE,
)


def _by_bare_number(match: re.Match[str], count: int) -> str:
    """Numbers alone are documents only where all are there."""
    before = match["before"] or match["head"] or match["row"] or ""
    said = match["after"] or match["subject"] or match["number"]
    listed = re.sub(r"\([^()]*\)", "", said)
    numbers = list(_numbers(listed))
    if not all(1 <= number <= count for number in numbers):
        return match[0]
    return f"{before}{_mark(numbers)}"


# By ordinal


# fmt: off
_ORDINALS = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"
]
# fmt: on
_COUNTS = ["two", "three", "four", "five"]
_ONE = rf"(?:{'|'.join(_ORDINALS)}|last|final|\d{{1,2}}(?:st|nd|rd|th))"
_NOUN = r"(?:documents?|passages?|sources?|texts?|articles?|excerpts?|snippets?|docs?)"
_VERBS = (
    r"(?:is|isn|was|wasn|does|doesn|did|has|says?|states?|tells?|told|names?|notes?|mentions?"
    r"|gives?"
    r"|gave|recalls?|explains?|describes?|discusses|covers?|confirms?|helped|helps|lists?|deals"
    r"|shows?)"
)
_ORDINAL = re.compile(
    rf"\b(?:the |my )?(?P<several>{_ONE}(?:(?:,? and |, | or ){_ONE}){{0,9}})"
    rf"(?: (?P<count>{'|'.join(_COUNTS)}))? {_NOUN}\b|(?P<at>^|[.;:!] |\n|, (?:and )?| and "
    rf"|\bwhile )the (?P<one>{_ONE})(?: one)?(?=,? (?:itself )?{_VERBS}\b)"
    rf"|(?P<top>^|[.;:!] |\n)the (?P<end>first|last) (?P<many>{'|'.join(_COUNTS)})(?: ones)?(?=,"
    rf"| {_VERBS}| are\b)",
    re.IGNORECASE | re.MULTILINE,
)


def _by_ordinal(match: re.Match[str], count: int) -> str:
    before = match["at"] or match["top"] or ""
    said = match["several"] or match["one"] or match["end"]
    numbers = [_rank(word, count) for word in re.findall(_ONE, said.lower())]
    many = match["count"] or match["many"]
    if many and len(numbers) == 1:
        width = _COUNTS.index(many.lower()) + 2
        start = count - width + 1 if numbers[0] == count else numbers[0]
        numbers = list(range(start, start + width))
    if not all(1 <= number <= count for number in numbers):
        return match[0]
    return f"{before}{_mark(numbers)}"


def _rank(word: str, count: int) -> int:
    if word in ("last", "final"):
        return count
    return _ORDINALS.index(word) + 1 if word in _ORDINALS else int(re.sub(r"\D", "", word))
