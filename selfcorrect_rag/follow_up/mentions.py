"""What an English question is about, by its words: names, and noun phrases behind a determiner."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from selfcorrect_rag.follow_up.lexicon import (
    ADVERBS,
    AUXILIARIES,
    BE,
    DEFINITE,
    DETERMINERS,
    ENDS,
    INSIDE,
    LINKS,
    NAMING,
    NO_NAMES,
    NUMBERED,
    PARTICIPLES,
    PARTS,
    PREDICATES,
    STARTS,
    VERBS,
    WH,
)


class Word(NamedTuple):
    """A word of a text without the punctuation around it and without ``'s``."""

    text: str
    start: int
    end: int
    breaks: bool
    """Whether punctuation or ``'s`` follows, so that no phrase goes on."""
    opens: bool
    """Whether it begins a sentence."""

    @property
    def lower(self) -> str:
        return self.text.lower()


@dataclass(frozen=True)
class Mention:
    """What a question mentions: words ``first`` to ``last``."""

    first: int
    last: int
    name: tuple[int, int] | None
    """First and last word of the name in it."""
    definite: bool = True
    subject: bool = False
    """Whether it stands right behind an auxiliary."""


_LONGEST_PHRASE = 6


def words_of(text: str) -> list[Word]:
    """The words of a text, with their places."""
    words: list[Word] = []
    opens = True
    for match in re.finditer(r"\S+", text):
        raw = match[0].replace("’", "'")
        core = raw.rstrip(".,;:!?\"')]}”…*`").lstrip("\"'([{“‘*`")
        if not core:
            opens = opens or raw[-1] in ".!?"
            continue
        if core.endswith("(") and f"{core})" in raw:
            core += ")"  # a call
        start = match.start() + raw.index(core)
        bare = core[:-2] if core.endswith("'s") and len(core) > 2 else core
        after = raw[raw.index(core) + len(bare) :]
        words.append(Word(bare, start, start + len(bare), bool(after), opens))
        opens = any(mark in after for mark in ".!?")
    return words


def names_in(words: Sequence[Word]) -> list[tuple[int, int]]:
    """First and last word of each name: runs of capitalised words, and words like code.

    None in a text that is in capitals, or has a capital on every word.
    """
    if _is_titled(words):
        return []
    found: list[tuple[int, int]] = []
    i = 0
    while i < len(words):
        last = _name_end(words, i)
        if last is not None:
            found.append((i, last))
            i = last
        i += 1
    return found


def is_code(word: str) -> bool:
    """Whether a word looks like code: an option, a path, an identifier, a brand's odd capitals."""
    if len(word) < 3 or word[0].isdigit() or " " in word:
        return False
    if word.startswith(("--", "/")) or "_" in word or "@" in word or word.endswith("()"):
        return True
    inner = "." in word[1:-1] and word.count(".") * 2 < len(word) - 1
    mixed = any(c.isdigit() for c in word) and word[0].isalpha()
    odd = any(c.isupper() for c in word[1:]) and any(c.islower() for c in word)
    return inner or mixed or odd


def _is_titled(words: Sequence[Word]) -> bool:
    letters = "".join(word.text for word in words)
    small = AUXILIARIES | WH
    return (len(words) > 1 and letters.isupper()) or any(
        word.text[0].isupper() and word.lower in small and not word.opens for word in words
    )


def _is_capital(word: Word) -> bool:
    return word.text[0].isupper() and word.lower not in NO_NAMES


def _name_end(words: Sequence[Word], i: int) -> int | None:
    """The last word of the name that begins with word ``i``; None where none does."""
    word = words[i]
    if is_code(word.text):
        return i
    if not _is_capital(word) or (word.opens and word.lower in STARTS):
        return None
    last = i
    while not words[last].breaks and last + 1 < len(words):
        after = last + 1
        numbered = words[after].text[0].isdigit() or (
            words[after].text == "I" and words[last].lower in NUMBERED
        )
        if numbered or _is_capital(words[after]):
            last = after
            continue
        inside = after
        while inside < min(after + 3, len(words)) and words[inside].lower in INSIDE:
            inside += 1
        is_acronym = words[last].text.isupper()  # "the CEO of Apple" is no name
        is_inside = not is_acronym and after < inside < len(words) and _is_capital(words[inside])
        if not is_inside or any(word.breaks for word in words[after:inside]):
            break
        last = inside
    # A sentence begins with a capital anyway.
    return None if word.opens and last == i else last


def mentions_in(words: Sequence[Word]) -> list[Mention]:
    """The names and noun phrases, in order, where the words tell how far each reaches.

    Those that belong together are one: "the gym in Bergen"; of "the port of Grafana" it is
    Grafana.
    """
    names = names_in(words)
    phrases = [phrase for i in range(len(words)) if (phrase := _phrase(words, i, names))]
    covered = {i for phrase in phrases for i in range(phrase.first, phrase.last + 1)}
    alone = [
        Mention(first, last, (first, last), subject=_is_aux(words, first - 1))
        for first, last in names
        if first not in covered
    ]
    return list(_linked(words, sorted([*phrases, *alone], key=lambda found: found.first)))


def _linked(words: Sequence[Word], found: Sequence[Mention]) -> Iterator[Mention]:
    before: Mention | None = None
    for mention in found:
        if before is None:
            before = mention
            continue
        between = words[before.last + 1].lower if mention.first == before.last + 2 else ""
        if words[before.last].breaks or between not in LINKS | PARTS:
            yield before
        elif _is_one(words, before, between):
            mention = Mention(
                before.first, mention.last, mention.name, before.definite, before.subject
            )
        elif between in LINKS:
            yield before
        before = mention
    if before is not None:
        yield before


def _is_one(words: Sequence[Word], before: Mention, link: str) -> bool:
    """Whether what a link joins is one thing."""
    is_naming = link == "of" and words[before.last].lower in NAMING
    return before.name is None and (link in LINKS or is_naming)


def _is_aux(words: Sequence[Word], i: int) -> bool:
    return i >= 0 and words[i].lower in AUXILIARIES


def _phrase(words: Sequence[Word], i: int, names: Sequence[tuple[int, int]]) -> Mention | None:
    """The noun phrase whose determiner is word ``i``."""
    if words[i].lower not in DETERMINERS or words[i].breaks:
        return None
    if any(first < i <= last for first, last in names):
        return None  # inside a name
    named = {i: last for first, last in names for i in range(first, last + 1)}
    end = i
    while end + 1 < len(words) and (end == i or not words[end].breaks):
        if words[end + 1].lower in ENDS and end + 1 not in named:
            break
        end = named.get(end + 1, end + 1)
    while end > i + 1 and words[end].lower in ADVERBS:
        end -= 1
    if i > 0 and words[i - 1].lower in WH | {"if", "whether"}:
        return None  # a clause begins, whose verb is not known
    last: int | None = end
    aux = _aux_before(words, i)
    if aux is not None:
        last = _subject_end(words, aux, i, end)
    if last is None or not i < last <= i + _LONGEST_PHRASE:
        return None
    last = _with_matter(words, aux, last)
    inner = [name for name in names if i < name[0] and name[1] <= last]
    name = inner[0] if inner else None
    return Mention(i, last, name, words[i].lower in DEFINITE, aux is not None)


def _with_matter(words: Sequence[Word], aux: int | None, last: int) -> int:
    """The end of a phrase with the bare nouns behind it: "the boiling point of water"."""
    rest = words[last + 1 :]
    if not 1 < len(rest) < 4 or words[last].breaks or rest[0].lower not in PARTS:
        return last
    is_whole = aux is None or (words[aux].lower in BE and words[0].lower in WH - {"when", "how"})
    is_bare = all(word.text.islower() and word.lower not in ENDS for word in rest[1:])
    return last + len(rest) if is_whole and is_bare else last


def _aux_before(words: Sequence[Word], i: int) -> int | None:
    """The auxiliary whose subject, or the end of whose subject, begins with word ``i``."""
    k = i - 1
    if k > 0 and words[k].lower in LINKS | PARTS:
        k -= 1
        while k > 0 and words[k].lower not in ENDS | VERBS and not words[k].breaks:
            k -= 1
        k -= words[k].lower in DETERMINERS
    return k if _is_aux(words, k) else None


def _subject_end(words: Sequence[Word], aux: int, i: int, end: int) -> int | None:
    """Where the subject ends that begins behind an auxiliary: before the verb or what is said of
    it. None where the words do not tell."""
    after = words[end + 1].lower if end + 1 < len(words) and not words[end].breaks else ""
    is_name = all(not word.text[0].islower() for word in words[i + 1 : end + 1])
    if words[aux].lower in BE:
        for k in range(i + 2, end + 1):
            word = words[k].lower
            if word in PARTICIPLES or (word.endswith("ed") and len(word) > 4):
                return k - 1
        if end == i + 1 or is_name or after in PREDICATES:
            return end
        if words[0].lower == "why" and not after:
            return end - 1
        asks = words[0].lower
        what = asks in ("what", "who", "where", "which") or (asks == "how" and aux > 1)
        return end if what and not words[end].lower.endswith("ing") else None
    for k in range(i + 2, end + 1):
        if words[k].lower in VERBS:
            return k - 1
    if end == i + 1 or is_name:
        return end
    return end - 1 if after or end == i + 2 else None
