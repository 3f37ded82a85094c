"""Which documents a rationale uses, and which it dismisses.

Pure text, clause by clause, in time linear in its length. Where a rationale does not clearly use a
document, the document is not useful; where it contradicts itself, the document is dismissed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from selfcorrect_rag.prompts.rationale import anaphora, clauses
from selfcorrect_rag.prompts.rationale.clauses import Stance
from selfcorrect_rag.prompts.rationale.conclusions import is_closing
from selfcorrect_rag.prompts.rationale.exceptions import exceptions, without_exceptions
from selfcorrect_rag.prompts.rationale.mentions import BEGIN, MARK, marked, numbers_in
from selfcorrect_rag.prompts.sentences import sentences


class Reading(NamedTuple):
    """The documents that a rationale speaks of, by number from 1: first those that it names."""

    useful: list[int]
    dismissed: list[int]
    missing: list[int]
    """Numbers that no document has."""


def read_documents(rationale: str, titles: Sequence[str]) -> Reading:
    """Which of the documents a rationale uses, and which it dismisses.

    A document is named by number ("Document [2]", "documents 1 and 3", "Documents 2-4", "[2]"), by
    place ("the first document") or, where one document alone bears it, by its title in quotes. It
    is useful where the rationale says that it is, cites it, or tells what it says; it is dismissed
    where any clause calls it irrelevant or leaves it aside, or says that it lacks what is asked or
    is about something, and none calls it useful. "The other documents" are those of which nothing
    else is said, and to call some alone useful is to dismiss the others. One that is merely named,
    or only gives background, is neither. What stands in quotes, or is reported ("states that
    ..."), is no verdict.

    Args:
        rationale: what a model wrote.
        titles: of the documents as they were numbered; empty where one has none.
    """
    found = _Reader(len(titles))
    text = _ASKED.sub(r"\1: ", marked(rationale, titles))
    for sentence, heading in _with_headings(text):
        if not is_closing(sentence):
            found.read(sentence, heading)
    return found.reading()


_ASKED = re.compile(
    rf"((?:^|(?<=[.!?] ))(?:and )?(?:{MARK}(?:,? (?:and|or) )?)+)\? ", re.MULTILINE | re.I
)
"""Documents that are asked of, "Documents 2 and 4? Virus and news", before what is said of them."""


class _Reader:
    """The stances of documents so far, sentence by sentence."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.stances: dict[int, Stance] = {}
        self.rest = Stance.NAMED
        """Stance of the documents of which nothing else is said."""
        self.listed: set[int] = set()
        """Documents of a list of the useful ones."""
        self.before: list[int] = []
        """The documents named last."""
        self.last = Stance.NAMED
        """Their stance."""

    def read(self, sentence: str, heading: Stance | None) -> None:
        listed = anaphora.lists_useful(sentence)
        if listed:
            self.listed.update(numbers_in(sentence))
        inline = anaphora.label(sentence) or heading
        stances = self._read_clauses(anaphora.without_label(sentence))
        if inline:
            stances = {n: max(stance, inline) for n, stance in stances.items()}
        for number, stance in stances.items():
            self.stances[number] = max(stance, self.stances.get(number, stance))
        self.before = [n for n in stances if n in numbers_in(sentence)] or self.before

    def _read_clauses(self, sentence: str) -> dict[int, Stance]:
        """The stance of each document that the sentence names, or that its pronouns stand for."""
        stances: dict[int, Stance] = {}
        named: list[list[int]] = []  # by the clauses so far
        parallel = Stance.NAMED
        of_others = False
        for clause in _clauses(sentence):
            kept = without_exceptions(clause)
            for numbers, stance in exceptions(
                clause, bool(anaphora.collective(kept if re.search(r"\w", kept) else sentence))
            ):
                _raise(stances, numbers, stance)
            clause = kept
            numbers = numbers_in(clause)
            if numbers:
                if named and anaphora.begins_with_pronoun(clause):
                    _raise(stances, named[-1], anaphora.of_pronoun(clause.split(BEGIN)[0]))
                is_same = clauses.is_likewise(clause) or (named and clauses.is_gapped(clause))
                stance = self.last if is_same else clauses.of_named(clause)
                if parallel == Stance.LACKING and clauses.is_topic(clause):
                    stance = max(stance, Stance.LACKING)
                parallel = self.last = stance
                _raise(stances, numbers, stance)
                named = [*named[-_RECENT:], numbers]
                if anaphora.singles_out(clause) and stance in (Stance.REPORTED, Stance.USEFUL):
                    self.rest = max(self.rest, Stance.LACKING)
            elif (of := anaphora.collective(clause)) and not self._is_of_them(clause, named):
                self.rest, of_others = max(self.rest, of), True
            elif of_others and not named:
                continue  # "so they are not useful": of the same others
            elif anaphora.follows(clause):
                stance = anaphora.of_pronoun(clause)
                meant = self._meant(clause, stances, named)
                if stance == Stance.REPORTED and anaphora.is_but(clause):
                    # "does not mention the year, but it states ...": it is of use after all
                    for number in meant:
                        if stances.get(number) in (Stance.TOPIC, Stance.LACKING):
                            stances[number] = Stance.REPORTED
                elif stance > Stance.NAMED:
                    _raise(stances, meant, stance)
        return stances

    def _is_of_them(self, clause: str, named: Sequence[Sequence[int]]) -> bool:
        """Whether "none of them" is said of several documents that were named before."""
        last = [n for numbers in named for n in numbers] or self.before
        return anaphora.is_none_of_them(clause) and len(last) > 1

    def _meant(
        self, clause: str, stances: dict[int, Stance], named: Sequence[Sequence[int]]
    ) -> Iterable[int]:
        """The documents that a clause without a name speaks of."""
        if not named:
            return [] if anaphora.is_relative(clause) else self.before
        if anaphora.is_plural(clause) and len(named[-1]) == 1:
            unclear = [n for numbers in named for n in numbers if stances[n] <= Stance.LACKING
                       and stances[n] != Stance.REPORTED]  # fmt: skip
            return unclear if len(unclear) > 1 else [n for numbers in named[-2:] for n in numbers]
        return named[-1]

    def reading(self) -> Reading:
        there = {n: g for n, g in self.stances.items() if 1 <= n <= self.count}
        for number in range(1, self.count + 1):
            if there.get(number, Stance.NAMED) == Stance.NAMED and self.rest > Stance.NAMED:
                there[number] = self.rest
        if self.listed:
            there = {
                n: Stance.NAMED if stance == Stance.REPORTED and n not in self.listed else stance
                for n, stance in there.items()
            }
        return Reading(
            useful=[n for n, stance in there.items() if stance in (Stance.REPORTED, Stance.USEFUL)],
            dismissed=[n for n, stance in there.items() if stance in _DISMISSED],
            missing=[n for n in self.stances if n not in there],
        )


_DISMISSED = (Stance.TOPIC, Stance.LACKING, Stance.IRRELEVANT)


_RECENT = 10
"""Clauses back that "they" may stand for."""


def _raise(stances: dict[int, Stance], numbers: Iterable[int], stance: Stance) -> None:
    for number in numbers:
        stances[number] = max(stance, stances.get(number, stance))


# Sentences and clauses


_BULLET = re.compile(r"(?:[-*•] |\d{1,2}[.)] )")
_HEADLINE = re.compile(r"#{1,6} ")


def _with_headings(text: str) -> Iterator[tuple[str, Stance | None]]:
    """The sentences, each with the stance of the heading that it stands under.

    A heading ends at the next one; one that ends in a colon, with the list below it.
    """
    heading: Stance | None = None
    is_list = has_bullets = False
    for line in text.splitlines():
        if not line:
            continue
        if _HEADLINE.match(line) and _is_heading(line):
            heading, is_list = anaphora.of_heading(line), False
            continue
        bullet = _BULLET.match(line)
        if is_list and not bullet and (has_bullets or not line.startswith(BEGIN)):
            heading, is_list = None, False
        has_bullets = bullet is not None
        if line.endswith(":") and _is_heading(line):
            heading, is_list = anaphora.of_heading(line), True
            continue
        for sentence in sentences(line[bullet.end() :] if bullet else line):
            for piece in _LONGEST_SENTENCE.findall(sentence):
                yield piece, heading


def _is_heading(line: str) -> bool:
    return BEGIN not in line and len(line) <= _LONGEST


_CLAUSE = re.compile(
    r";| [—–-] |, (?=(?:it|they) )"
    r"|(?:,? and|,? but|,) (?=(?:(?:then|instead|only|to|will|rather|I|we|also"
    r"|therefore) ){0,2}(?:rely|relied|relying|use|used|using"
    r"|ignor|skip|keep|kept|drop|dropp|disregard|discard|set|leave|left|reject|dismiss|exclud"
    r"|base|based|go|went|take|took|draw|drew|focus)(?:e|ed|ing|ped|s|es)?\b)"
    r"|(?<=\w): | (?=(?:but(?! not to\b)|however|while|whereas|although|though|unlike|yet|hence"
    r"|since)\b)"
    r"|,? (?=so (?:there|it|they|he|she|that|this|those|these|is|are|neither|both|irrel|unhelp"
    r"|useless|I|not?\b|nope))|, (?=which\b|because\b|as (?:it|they)\b|for (?:it|they)\b)"
    r"|(?: |(?<=\())(?=(?:because|as) (?:it|they)\b)"
    r"|, (?:and )?(?=(?:I|we|neither|both|none) )| and (?=neither\b|none\b)"
    r"|(?:,|,? and|,? while) (?=(?:the |all |all the )?(?:others?|rest|remaining)\b)"
    rf"|(?:, (?:and )?| and )(?=(?:(?:so|nor|as|likewise) (?:is|are|do|does|did|was|were) |(?:the"
    rf"|only|in|as|since|because|from|per|see|neither) |[A-Z]\w+ (?=\()){{0,2}}\(?{BEGIN})",
    re.IGNORECASE,
)


_LONGEST = 600
"""Characters, or marks, that are read as one clause or heading at most: patterns look at all of a
clause from every mark in it."""
_LONGEST_CLAUSE = re.compile(rf"(?:{MARK}|[^{BEGIN}]){{1,{_LONGEST}}}", re.DOTALL)
_LONGEST_SENTENCE = re.compile(rf"(?:{MARK}|[^{BEGIN}]){{1,{4 * _LONGEST}}}", re.DOTALL)
"""As a sentence, at which its clauses look for what they leave out."""


def _clauses(sentence: str) -> Iterator[str]:
    for clause in _all_clauses(sentence):
        yield from _LONGEST_CLAUSE.findall(clause)


def _all_clauses(sentence: str) -> Iterator[str]:
    """A sentence in clauses; bare names ("Document 1, Document 2 and ...") go with the next one.

    Names after which nothing follows ("I will use Document 2 and Document 4") go with the one
    before.
    """
    held: list[str] = []
    said: str | None = None
    for piece in _CLAUSE.split(sentence):
        piece = piece.strip()
        if not piece:
            continue
        held.append(piece)
        if _is_bare(piece):
            continue
        if said is not None and held[:-1] and _NEEDS_NO_SUBJECT.match(piece):
            said = ", ".join([said, *held[:-1]])
            held = [piece]
        joined = ", ".join(held)
        held = []
        if said is not None:
            yield said
        said = joined
    if said is not None:
        yield ", ".join([said, *held])
    elif held:
        yield ", ".join(held)


_NEEDS_NO_SUBJECT = re.compile(
    r"(?:which|because|since|so|but|hence|as|for|although|though|while|whereas|however|I|we|it"
    r"|they)\b",
    re.IGNORECASE,
)
_EMPTY = frozenset({"and", "or", "nor", "both", "neither", "either", "only", "the", "the others"})


def _is_bare(clause: str) -> bool:
    """Whether a clause says no more than names of documents, with what brackets add to them."""
    if BEGIN not in clause:
        return False
    rest = re.sub(rf"{MARK}(?: ?\([^()]{{0,100}}\))?", " ", clause)
    lead, _, _ = clause.partition(BEGIN)
    if rest.startswith(lead) and re.match(r"\w+ly,? $", lead):
        rest = rest[len(lead) :]
    return all(word in _EMPTY for word in re.findall(r"[^\W_]+", rest.lower()))
