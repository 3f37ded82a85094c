"""Which option of a closed set a text answers with.

Pure text, in time linear in its length. What a text merely mentions, denies or asks is no answer:
where it is not clear which one option it gives, it gives none.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


def closed_answer(text: str, options: Iterable[str] = ()) -> str | None:
    """The option that ``text`` answers with, as the options spell it; None where it gives none.

    An option is a label ("A"), a label with its text ("A: a gas", "(B) a metal") or a phrase
    ("yes", "not enough information"). Labels are read by case and where they stand as a label,
    never as the article "a" or the pronoun "I"; phrases without case. An option that the text
    announces ("the answer is B", "B is correct") counts before the one that it begins with ("B: a
    metal", "Yes, ..."), and that one before any other that it names. What stands in a question, is
    denied ("not A", "A is wrong") or left open ("whether it is true") is not named; but of "true"
    and "false", or "yes" and "no", to deny one is to give the other. Two that count alike give
    None.

    Without options, the text itself without case and the punctuation around it, None where nothing
    is left.
    """
    given = list(options)
    if not given:
        return _clean(text) or None
    names = _names(given)
    cleaned = _clean(text)
    whole = {name.option for name in names if _clean(name.text) == cleaned}
    if whole:
        return whole.pop() if len(whole) == 1 else None
    found = list(_mentions(text, names))
    for strength in (_ANNOUNCED, _LEADING, _NAMED):
        asserted = [m for m in found if m.strength == strength and m.stance == "asserted"]
        if strength == _ANNOUNCED:
            asserted = [m for m in asserted if m.group == asserted[-1].group]
        said = {mention.option for mention in asserted}
        if said:
            return said.pop() if len(said) == 1 else None
    return _opposite({m.option for m in found if m.stance == "denied"}, given)


def _clean(text: str) -> str:
    return _bare(text).lower()


def _bare(text: str) -> str:
    """Without the punctuation and space around it."""
    match = re.search(r"[^\W_](?:.*[^\W_])?", text, re.DOTALL)
    return match[0] if match else ""


# What names an option


class _Name(NamedTuple):
    """A wording that stands for an option."""

    option: str
    text: str
    is_label: bool


_LABELLED = re.compile(r"[(\[]?([A-Za-z]|\d{1,2})(?:[)\]]?[.:]|[)\]])\s+(\S.*)", re.DOTALL)
_ARTICLE = re.compile(r"(?:an?|the)\s+(?=\S)", re.IGNORECASE)


def _names(options: Sequence[str]) -> list[_Name]:
    matches = [_LABELLED.fullmatch(option.strip()) for option in options]
    labels = [match[1] for match in matches if match]
    if len(labels) == len(options) and _is_run(labels):
        pairs = [(match[1], match[2]) for match in matches if match]
        return [
            name
            for option, (label, text) in zip(options, pairs, strict=True)
            for name in (_Name(option, label, True), _phrase(option, text))
        ]
    names = []
    for option in options:
        label = re.sub(r"\W", "", option)
        names.append(_Name(option, label, True) if len(label) == 1 else _phrase(option, option))
    return [*names, *_synonyms(options)]


_OPPOSITES = (("true", "false"), ("yes", "no"))
_SYNONYMS = {
    "true": ("correct",),
    "false": ("untrue", "incorrect"),
    "yes": ("yeah", "yep", "yup"),
    "no": ("nope", "nah"),
}


def _synonyms(options: Sequence[str]) -> Iterator[_Name]:
    """What else people say where both of a pair of opposites may be given."""
    spelt = {_clean(option): option for option in options}
    for pair in _OPPOSITES:
        for word in pair if all(word in spelt for word in pair) else ():
            yield from (_Name(spelt[word], said, False) for said in _SYNONYMS[word])
            if word in ("true", "false"):
                yield _Name(spelt[word], word[0].upper(), True)


def _is_run(labels: Sequence[str]) -> bool:
    """Whether they count from A, a or 1: "E. coli" and "C. elegans" have no labels."""
    ranks = {
        int(label) if label.isdigit() else ord(label.lower()) - ord("a") + 1 for label in labels
    }
    return ranks == set(range(1, len(labels) + 1))


def _phrase(option: str, text: str) -> _Name:
    text = _bare(text) or text
    return _Name(option, _ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text, False)


# Where a text names one, and how


_ANNOUNCED, _LEADING, _NAMED = range(3)


class _Mention(NamedTuple):
    option: str
    group: int
    """Options that "and", "or" or commas join are of one group, and count as the first of it."""
    strength: int
    stance: str
    """"asserted", "denied" or "open"."""


class _Place(NamedTuple):
    option: str
    start: int
    end: int


_NEAR = 100
"""Characters before and after a name that are read for what is said about it."""


def _mentions(text: str, names: Sequence[_Name]) -> Iterator[_Mention]:
    borders = [match.start() for match in re.finditer(r"[.!?\n]", text)]
    border = 0
    for group, places in enumerate(_grouped(text, _places(text, names))):
        first, last = places[0], places[-1]
        before = text[max(0, first.start - _NEAR) : first.start]
        after = text[last.end : last.end + _NEAR]
        while border < len(borders) and borders[border] < last.end:
            border += 1
        is_question = border < len(borders) and text[borders[border]] == "?"
        if _announces(before, after):
            strength = _ANNOUNCED
        elif first.start <= _NEAR and _BEGINNING.fullmatch(before):
            strength = _LEADING
        else:
            strength = _NAMED
        stance = "open" if is_question else _stance(before, after)
        for place in places:
            yield _Mention(place.option, group, strength, stance)


_BEGINNING = re.compile(r"[\W_]*(?:(?:option|choice|well|answer)\b[\W_]*)?", re.IGNORECASE)


def _places(text: str, names: Sequence[_Name]) -> Iterator[_Place]:
    """Where names stand, the longest of those that begin at one place."""
    phrases: dict[str, set[str]] = {}
    labels: dict[str, str] = {}
    for name in names:
        if name.is_label:
            labels[name.text] = name.option
        else:
            phrases.setdefault(" ".join(name.text.lower().split()), set()).add(name.option)
    wordings = [re.escape(key).replace(r"\ ", r"\s+") for key in sorted(phrases, key=len)[::-1]]
    small: dict[str, str] = {}  # labels in the other case, which count only where marked off
    either = [f"(?P<phrase>(?i:{'|'.join(wordings)}))"] if wordings else []
    if labels:
        either.append(f"(?P<label>{'|'.join(map(re.escape, labels))})")
        small = {label.swapcase(): option for label, option in labels.items()}
        either.append(f"(?P<small>{'|'.join(map(re.escape, small))})")
    for match in re.finditer(rf"(?<!\w)(?:{'|'.join(either)})(?!\w)", text):
        before = text[max(0, match.start() - _NEAR) : match.start()]
        after = text[match.end() : match.end() + _NEAR]
        if match.lastgroup == "phrase":
            said = " ".join(match[0].lower().split())
            options = phrases[said]
            if len(options) == 1 and (said != "no" or _IS_REPLY.match(after)):
                yield _Place(next(iter(options)), match.start(), match.end())
        elif match.lastgroup == "small":
            if _is_marked_off(before, after):
                yield _Place(small[match[0]], match.start(), match.end())
        elif _is_label(match[0], before, after):
            yield _Place(labels[match[0]], match.start(), match.end())


_IS_REPLY = re.compile(
    r"\s*(?:[^\w\s]|$|(?:because|since|as|it|he|she|they|that|this|there|and|or|but)\b)",
    re.IGNORECASE,
)
"""What follows "no" where it is the reply, and not of "no evidence"."""
_BEFORE_LABEL = re.compile(
    r"(?:^|['’]s\s+|[^\w\s]\s*|\n\s*|\b(?:options?|choices?|answers?|letters?|labels?|is|are|was|be|not|nor|or|and|than|with"
    r"|say|choose|chose|pick|select|only|either|neither|both|so|thus|therefore|of|but|between|to|that)\s+)$",
    re.IGNORECASE,
)
_INITIAL = re.compile(r"\b[A-Z]\.\s*$")
_AFTER_WORD = re.compile(
    r"[^\w\s]|\s*$|\s+(?:[^\w\s]|(?:is|was|isn|because|since|as|and|or|nor|but|seems|looks|would|must"
    r"|should|can|cannot|does|doesn)\b)|\s*\n"
)
"""What follows "A" and "I" where they are no article and no pronoun."""


def _is_label(label: str, before: str, after: str) -> bool:
    if _INITIAL.search(before) or not _BEFORE_LABEL.search(before):
        return False
    if after[:1] in ("'", "’", "-", "/") and after[1:2].isalpha() and after[:1] != "/":
        return False
    return label not in ("A", "I", "a") or _AFTER_WORD.match(after) is not None


def _is_marked_off(before: str, after: str) -> bool:
    """Whether punctuation, or an announcement, makes any letter a label: "b)", "Answer: b."."""
    if after.startswith((")", "]")):
        return True
    is_first = _BEGINNING.fullmatch(before) or _ANNOUNCES.search(before)
    return is_first is not None and re.match(r"[.:]|\s*$", after) is not None


_JOINT = re.compile(
    r"[\s\"'*)\](\[]*(?:,|(?:,\s*)?(?:and|or|nor)\b|[/&])[\s\"'*)\](\[]*", re.IGNORECASE
)

_APART = re.compile(r"[\W_]*(?:(?:an?|the)\s+)?", re.IGNORECASE)


def _grouped(text: str, places: Iterable[_Place]) -> Iterator[list[_Place]]:
    """Names that "and", "or" or a slash join, and those that commas put before them."""
    held: list[_Place] = []  # joined by commas so far
    joined = False
    for place in places:
        between = text[held[-1].end : place.start] if held else ""
        if held and held[-1].option == place.option and _APART.fullmatch(between[:_NEAR]):
            held[-1] = held[-1]._replace(end=place.end)  # "A: a gas"
            continue
        is_joint = held and len(between) <= _NEAR and _JOINT.fullmatch(between) is not None
        if held and not is_joint:
            yield from [held] if joined else [[single] for single in held]
            held, joined = [], False
        held.append(place)
        joined = joined or bool(is_joint and between.strip("\"'*)([] \t\n") != ",")
    if held:
        yield from [held] if joined else [[single] for single in held]


_ANNOUNCES = re.compile(
    r"\b(?:answers?|choice|verdict|conclusion|response|judge?ment|selection|option|therefore|thus|hence"
    r"|so|overall|consequently|accordingly)\b(?:\s+(?:to|for)\b[^.:;!?\n]{0,60}?)?"
    r"(?:[\s,:=*\"'(\[]|\b(?:is|are|be|would|should|must|seems|has|to|most|likely|probably|clearly|definitely"
    r"|therefore|thus|simply|that|it|this|the|an?|option|choice|letter|answer|correct|final|best|statement"
    r"|claim|conclude|we|can|i)\b|['’]s\b){0,30}$"
    r"|\b(?:choose|chose|pick|select|go(?:ing)?\s+with|conclude|I(?:['’]d|\s+would)\s+say)\s+(?:(?:that|it|is|option|answer|choice"
    r"|the|letter)\s+){0,4}[\"'*(\[]*$",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"[\"'*)\]]*\s+(?:is|seems|must be|would be|looks)\s+(?:(?:the|clearly|definitely|most|likely"
    r"|probably|therefore|thus|only|single|my|also)\s+){0,3}(?:correct|right|best|answer|accurate|final)\b",
    re.IGNORECASE,
)


def _announces(before: str, after: str) -> bool:
    return bool(_ANNOUNCES.search(before) or _IS_RIGHT.match(after))


_CLAUSE = re.compile(
    r"[.;!?\n,]|\b(?:but|because|since|so|while|although|though|whereas|however)\b"
)
_OPEN = re.compile(
    r"\b(?:whether|if|unclear|unknown|uncertain|unsure|(?<!no\s)doubt|(?:no|not\s+enough|insufficient|little)\s+"
    r"(?:\w+\s+)?(?:evidence|proof|indication|information|reason|way|basis)"
    r"|(?:not|n['’]t|cannot)\s+(?:(?:be|really|yet|at\s+all)\s+)?(?:clear|known|certain|sure|possible|proven|tell|say|know|enough))\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|rather\s+than|instead\s+of|hardly|far\s+from|except|unlike"
    r"|(?:wrong|incorrect|untrue|false)\s+(?:to|that)|rul(?:e[sd]?|ing)\s+out|eliminat\w+|exclud\w+|reject\w*)\b|n['’]t\b)(?!\s+only\b)",
    re.IGNORECASE,
)
_IS_WRONG = re.compile(
    r"[\"'*)\]]*\s*(?:,\s*which\s+)?(?:(?:is|was|are|were|would|can|could|does|do|did|has|must|should)\b"
    r"\s*(?:(?:also|clearly|definitely|both|all|therefore|thus|be|obviously|simply)\s+){0,3}"
    r"(?:not\b|wrong|incorrect|false|untrue|ruled|eliminated|excluded|impossible|n['’]t\b)"
    r"|(?:is|was|are|were|would|ca|could|does|do|did|has|wo|should)n['’]t\b|cannot\b)",
    re.IGNORECASE,
)


def _stance(before: str, after: str) -> str:
    clause = _CLAUSE.split(before)[-1]
    if _OPEN.search(clause):
        return "open"
    return "denied" if _DENIED.search(clause) or _IS_WRONG.match(after) else "asserted"


def _opposite(denied: set[str], options: Sequence[str]) -> str | None:
    """The other one of two that are each other's denial."""
    both = sorted(_clean(option) for option in options)
    if len(denied) != 1 or both not in map(sorted, _OPPOSITES):
        return None
    return next(option for option in options if option not in denied)
