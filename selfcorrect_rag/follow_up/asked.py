"""What a conversation is about: its questions, and what their answers name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from selfcorrect_rag.follow_up.lexicon import HAVING, LEADS, LINKS, PERSON_NOUNS, PLACE_NOUNS
from selfcorrect_rag.follow_up.mentions import Mention, Word, mentions_in, names_in, words_of
from selfcorrect_rag.prompts.refusals import is_refusal

LONGEST_ANSWER = 300
"""Characters of an answer that are read."""
LONGEST_NAME = 6
"""Words of a name that is an answer."""
_MARK = re.compile(r"\s?\[\d{1,3}\??\]")


@dataclass(frozen=True)
class Asked:
    """A question that stands alone, and what later ones may refer to."""

    question: str
    topic: str | None
    """What "it" is."""
    person: str | None = None
    """Who "she" is."""
    actor: str | None = None
    """Who she may be, where no person is known."""
    answer: str = ""
    """The name that answered it, if one did."""
    said: str = ""
    """The first line of the answer, without citation marks; empty for a refusal."""

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.question)

    @property
    def asks_person(self) -> bool:
        is_who = self.opens_with("who", "whom", "whose")
        return is_who or self.opens_with("what", "which", nouns=PERSON_NOUNS)

    @property
    def asks_place(self) -> bool:
        return self.opens_with("where") or self.opens_with("what", "which", nouns=PLACE_NOUNS)

    def opens_with(self, *first: str, nouns: frozenset[str] | None = None) -> bool:
        """Whether it asks with one of ``first``, and for one of ``nouns``."""
        lower = [word.lower for word in self.words]
        while lower and lower[0] in LEADS | LINKS | {"to", "by", "of", "for"}:
            del lower[0]
        is_first = bool(lower) and lower[0] in first
        return is_first and (nouns is None or bool(nouns & set(lower[1:])))

    def then(self, question: str, **changes: Any) -> "Asked":
        """A next question about the same."""
        return replace(self, question=question, answer="", said="", **changes)

    def answered(self, answer: str) -> "Asked":
        """The question, with whom and what its answer names."""
        said = _MARK.sub("", answer[:LONGEST_ANSWER].strip().split("\n")[0]).strip()
        said = "" if is_refusal(said) else said
        name, person = self._name_in(said), self.person
        if self.asks_person:
            described = self._described()
            person = described if described and described == self.topic else name or described
        return replace(self, answer=name, said=said, person=person)

    def _name_in(self, said: str) -> str:
        """An answer where it is a name, or the only name in it that the question does not have."""
        words = [word._replace(opens=False) for word in words_of(said)]
        if words and words[0].lower in LINKS:
            del words[0]  # "In Oslo"
        if not words or words[0].lower in ("yes", "no"):
            return ""
        names = names_in(words)
        covered = sum(last - first + 1 for first, last in names)
        is_list = len(names) == said.count(",") + 1
        if covered == len(words) and is_list and len(words) <= LONGEST_NAME * len(names):
            return said[words[0].start : words[-1].end]
        if not self.asks_person:
            return ""
        words = words_of(said)
        found = [
            said[words[first].start : words[last].end]
            for first, last in names_in(words)
            if first < last or (first and words[first - 1].lower == "by")
        ]
        new = [name for name in found if name not in self.question]
        return new[0] if len(new) == 1 else ""

    def _described(self) -> str | None:
        """Whom "Who is the CEO of Apple?" asks for."""
        words = self.words
        if not 3 <= len(words) < 10 or words[0].lower != "who":
            return None
        is_one = words[2].lower == "the" or (2, len(words) - 1) in names_in(words)
        is_said = words[1].lower in ("is", "was") and is_one
        return self.question[words[2].start : words[-1].end] if is_said else None


def topic_of(words: Sequence[Word]) -> Mention | None:
    """The one thing that a question is about; None where there may be several."""
    found = mentions_in(words)
    if not any(word.lower in HAVING for word in words):  # "Does the plan include a trial?"
        found = [mention for mention in found if mention.definite] or found
    named = [mention for mention in found if mention.name]
    if len(found) == 1:
        return found[0]
    return named[0] if len(named) == 1 and named[0].subject else None
