"""Finds the option of a closed set that a text answers with.

Pure text, in time linear in its length. Options that a text merely mentions, denies or asks about
are no answer; an unclear answer gives None.
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
    None. A text that is one option word for word gives that one. The symbols around an option are
    read only where they tell it from another ("C", "C++"), or are a minus sign.

    Without options, the text itself without case and the punctuation around it, None where nothing
    is left.
    """
    given = list(dict.fromkeys(options))
    if not given:
        return _clean(text) or None
    verbatim = _word_for_word(text, given)
    if verbatim is not None:
        return verbatim
    names = _names(given)
    cleaned = _clean(text)
    whole = {name.option for name in names if name.is_plain and _clean(name.text) == cleaned}
    if whole:
        return whole.pop() if len(whole) == 1 else None
    found = list(_mentions(text, names))
    for strength in (_ANNOUNCED, _LEADING, _NAMED):
        asserted = [m for m in found if m.strength == strength and m.stance == "asserted"]
        if strength == _ANNOUNCED:
            asserted = [m for m in asserted if m.group == asserted[-1].group]
        answers = {mention.option for mention in asserted}
        if answers:
            return answers.pop() if len(answers) == 1 else None
    return _opposite({m.option for m in found if m.stance == "denied"}, given)


def _clean(text: str) -> str:
    return _bare(text).lower()


def _bare(text: str) -> str:
    """Without the punctuation and space around it."""
    return _parts(text)[1]


def _parts(text: str) -> tuple[str, str, str]:
    """The text before, between and after its first and last letter or digit."""
    match = re.search(r"[^\W_](?:.*[^\W_])?", text, re.DOTALL)
    return (text[: match.start()], match[0], text[match.end() :]) if match else (text, "", "")


_WRAPPINGS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"(?:the\s+)?(?:(?:correct|right|best|final)\s+)?answer(?:\s+is\b|\s*:)(.+)",
        r"(.+)\.",
        r"[(\[\"'*](.+)[)\]\"'*]",
    )
)


def _word_for_word(text: str, options: Sequence[str]) -> str | None:
    """The option that equals the text, case-sensitively or else not, also without its wrapping."""
    stripped = text.strip()
    readings = [stripped]
    for wrapping in _WRAPPINGS:
        match = wrapping.fullmatch(stripped)
        if match:
            stripped = match[1].strip()
            readings.append(stripped)
    for reading in readings:
        for form in (str, str.lower):
            same = [option for option in options if form(option.strip()) == form(reading)]
            if len(same) == 1:
                return same[0]
    return None


# What names an option


class _Name(NamedTuple):
    """A wording of an option."""

    option: str
    text: str
    is_label: bool
    is_plain: bool = True
    """Whether no symbols and no case tell it from other names."""
    left: str = ""
    """Symbols that make it another name where they stand before it."""
    right: str = ""


_LABELLED = re.compile(r"[(\[]?([A-Za-z]|\d{1,2})(?:[)\]]?[.:]|[)\]])\s+(\S.*)", re.DOTALL)
_ARTICLE = re.compile(r"(?:an?|the)\s+(?=\S)", re.IGNORECASE)


def _names(options: Sequence[str]) -> list[_Name]:
    matches = [_LABELLED.fullmatch(option.strip()) for option in options]
    labels = [match[1] for match in matches if match]
    if len(labels) == len(options) and _is_run(labels):
        texts = [match[2] for match in matches if match]
        marks = [_Name(option, label, True) for option, label in zip(options, labels, strict=True)]
        return [*marks, *(name._replace(is_label=False) for name in _spelled(options, texts))]
    return [*_spelled(options, options), *_synonyms(options)]


_MINUS = re.compile(r".*[-−]", re.DOTALL)


def _spelled(options: Sequence[str], texts: Sequence[str]) -> Iterator[_Name]:
    """The texts as names of the options, without what surrounds them unless it sets them apart."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for option, text in zip(options, texts, strict=True):
        alike.setdefault(_without_article(_clean(text)), []).append((option, text.strip()))
    for core, named in alike.items():
        prefixes, suffixes = ({_parts(text)[side] for _, text in named} for side in (0, 2))
        is_negative = core[:1].isdigit() and any(map(_MINUS.fullmatch, prefixes))
        keeps_prefix = not core or is_negative or len(prefixes) > 1
        keeps_suffix = len(suffixes) > 1
        left = "".join("".join(prefixes).split()) if keeps_prefix else ""
        right = "".join("".join(suffixes).split()) if keeps_suffix else ""
        is_plain = len(named) == 1 and not keeps_prefix
        for option, text in named:
            prefix, bare, suffix = _parts(text)
            name = (prefix if keeps_prefix else "") + bare + (suffix if keeps_suffix else "")
            if is_plain:
                name = _without_article(name)
            is_label = len(name) == 1 and bool(core)
            yield _Name(option, name, is_label, is_plain, left, right if core else left)


def _without_article(text: str) -> str:
    return _ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text


_OPPOSITES = (("true", "false"), ("yes", "no"))
_SYNONYMS = {
    "true": ("correct",),
    "false": ("untrue", "incorrect"),
    "yes": ("yeah", "yep", "yup"),
    "no": ("nope", "nah"),
}


def _synonyms(options: Sequence[str]) -> Iterator[_Name]:
    """Other words for true, false, yes and no, where both of a pair of opposites are options."""
    spelt = {_clean(option): option for option in options}
    for pair in _OPPOSITES:
        for word in pair if all(word in spelt for word in pair) else ():
            yield from (_Name(spelt[word], synonym, False) for synonym in _SYNONYMS[word])
            if word in ("true", "false"):
                yield _Name(spelt[word], word[0].upper(), True)


def _is_run(labels: Sequence[str]) -> bool:
    """Whether labels count up from A, a or 1: "E. coli" and "C. elegans" have none."""
    ranks = {
        int(label) if label.isdigit() else ord(label.lower()) - ord("a") + 1 for label in labels
    }
    return ranks == set(range(1, len(labels) + 1))


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
"""Characters before and after a name that decide how it is meant."""


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
    """Occurrences of names; of several at one place, the longest."""
    phrases: dict[str, list[_Name]] = {}
    labels: dict[str, _Name] = {}
    for name in names:
        if name.is_label:
            labels[name.text] = name
        else:
            phrases.setdefault(" ".join(name.text.lower().split()), []).append(name)
    # labels in the other case, which count only where marked off
    small = {
        label.swapcase(): name._replace(text=label.swapcase())
        for label, name in labels.items()
        if label.swapcase() not in labels
    }
    longest = sorted((name for same in phrases.values() for name in same), key=_length)[::-1]
    either = [f"(?P<phrase>(?i:{'|'.join(map(_pattern, longest))}))"] if longest else []
    if labels:
        either.append(f"(?P<label>{'|'.join(map(_pattern, labels.values()))})")
    if small:
        either.append(f"(?P<small>{'|'.join(map(_pattern, small.values()))})")
    for match in re.finditer(rf"(?<!\w)(?:{'|'.join(either)})(?!\w)", text):
        before = text[max(0, match.start() - _NEAR) : match.start()]
        after = text[match.end() : match.end() + _NEAR]
        if match.lastgroup == "phrase":
            phrase = " ".join(match[0].split())
            same = phrases.get(phrase.lower(), [])
            exact = [name for name in same if " ".join(name.text.split()) == phrase]
            options = {name.option for name in exact or same}
            if len(options) == 1 and (phrase.lower() != "no" or _IS_REPLY.match(after)):
                yield _Place(options.pop(), match.start(), match.end())
        elif match.lastgroup == "small":
            if _is_marked_off(before, after):
                yield _Place(small[match[0]].option, match.start(), match.end())
        elif _is_label(match[0], before, after):
            yield _Place(labels[match[0]].option, match.start(), match.end())


def _length(name: _Name) -> int:
    return len(name.text)


def _pattern(name: _Name) -> str:
    """Its words, where no symbol beside them makes them another name."""
    words = r"\s+".join(map(re.escape, name.text.split()))
    before = f"(?<![{re.escape(name.left)}])" if name.left else ""
    after = f"(?![{re.escape(name.right)}])" if name.right else ""
    return before + words + after


_IS_REPLY = re.compile(
    r"\s*(?:[^\w\s]|$|(?:because|since|as|it|he|she|they|that|this|there|and|or|but)\b)",
    re.IGNORECASE,
)
"""Text after a "no" that is the reply, unlike the one of "no evidence"."""
_BEFORE_LABEL = re.compile(
    r"(?:^|['’]s\s+|[^\w\s]\s*|\n\s*|\b(?:options?|choices?|answers?|letters?|labels?|is|are|was|be|not|nor|or|and|than|with"
    r"|say|choose|chose|pick|select|only|either|neither|both|so|thus|therefore|of|but|between|to|that)\s+)$",
    re.IGNORECASE,
)
_ADVERB = re.compile(
    r"\b(?:hence|think|probably|(?<!less\s)(?<!least\s)likely|definitely|clearly|just)\s+$",
    re.IGNORECASE,
)
"""Words before a label, and as often before an article or a pronoun."""
_INITIAL = re.compile(r"\b[A-Z]\.\s*$")
_AFTER_WORD = re.compile(
    r"[^\w\s]|\s*$|\s+(?:[^\w\s]|(?:is|was|isn|because|since|as|and|or|nor|but|seems|looks|would|must"
    r"|should|can|cannot|does|doesn)\b)|\s*\n"
)
"""Text after "A" and "I" where they are no article and no pronoun."""


def _is_label(label: str, before: str, after: str) -> bool:
    if _INITIAL.search(before):
        return False
    if after[:1] in ("'", "’", "-", "/") and after[1:2].isalpha() and after[:1] != "/":
        return False
    is_word = label in ("A", "I", "a")
    stands_alone = _AFTER_WORD.match(after) is not None
    if _BEFORE_LABEL.search(before):
        return stands_alone or not is_word
    if _ADVERB.search(before) and (_IS_RIGHT.match(after) if is_word else stands_alone):
        return True
    # "Overall I would say"
    ends = label != "I" or re.match(r"[^\w\s,]|\s*$", after) is not None
    return stands_alone and ends and _ANNOUNCES.search(before) is not None


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
    """The opposite of the denied option, for true/false and yes/no."""
    both = sorted(_clean(option) for option in options)
    if len(denied) != 1 or both not in map(sorted, _OPPOSITES):
        return None
    return next(option for option in options if option not in denied)
