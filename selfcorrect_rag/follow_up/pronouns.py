"""Pronouns in follow-up questions: what "it", "they", "she" and "there" stand for."""

import re
from collections.abc import Collection, Sequence

from selfcorrect_rag.follow_up.asked import Asked
from selfcorrect_rag.follow_up.lexicon import (
    AUXILIARIES,
    BE,
    CLOCK,
    DETERMINERS,
    GOES,
    GROUP_NOUNS,
    GROUPS,
    IMPERSONAL,
    IMPERSONAL_TO,
    JOINS,
    LINKS,
    PERSONS,
    POSSESSIVE,
    SETTING,
    SOMEONE,
    THINGS,
    WH,
)
from selfcorrect_rag.follow_up.mentions import Word, names_in


def named(context: Asked, question: str, words: Sequence[Word]) -> Asked | None:
    """With what the pronouns stand for, where all can be told."""
    places: dict[str, int] = {}
    for i in range(len(words)):
        if kind := kind_of(words, i):
            places.setdefault(kind, i)
    if not places or has_own(words, min(places.values()), places):
        return None
    meant = {kind: _meant(context, kind, words) for kind in places}
    texts = [text for text in meant.values() if text]
    if len(texts) < len(meant) or len(set(texts)) < len(texts):
        return None
    for kind, i in sorted(places.items(), key=lambda item: -item[1]):
        question = _put(question, words, i, kind, meant[kind] or "")
    return context.then(question, person=meant.get("person") or context.person)


def kind_of(words: Sequence[Word], i: int) -> str:
    word, before = words[i].lower, words[i - 1].lower if i else ""
    after = words[i + 1].lower if i + 1 < len(words) and not words[i].breaks else ""
    if word in PERSONS:
        return "person"
    if word in GROUPS:
        return "group"
    if word in THINGS:
        return "thing" if word == "its" or not _is_impersonal(words, i) else ""
    if word == "there":
        is_place = before and before not in BE and after not in BE | {"any", "a", "an"}
        return "place" if is_place else ""
    if word in ("that", "this"):
        if before in ("of", "for", "about", "with") and not after:
            return "thing"
        subject = before in AUXILIARIES - BE
        return "thing" if subject and after and after not in ("mean", "happen") else ""
    return ""


def _is_impersonal(words: Sequence[Word], i: int) -> bool:
    later = [word.lower for word in words[i + 1 :]]
    if later and later[0] in IMPERSONAL:
        return True
    if later and later[0] in ("take", "takes", "took"):
        before = {word.lower for word in words[:i]}
        return "long" in before or "time" in before or before <= AUXILIARIES | {"what"}
    if {word.lower for word in words[:i]} & CLOCK and not later:
        return True
    return bool(later) and later[0] in IMPERSONAL_TO and bool({"to", "that"} & set(later[1:-1]))


def has_own(words: Sequence[Word], i: int, kinds: Collection[str]) -> bool:
    """Whether what stands before word ``i`` may be what it refers to."""
    if any(first < i for first, _ in names_in(words)):
        return True
    if {"group", "person"} & set(kinds) and any(word.lower in SOMEONE for word in words[:i]):
        return True
    said = next((k for k in range(i) if words[k].lower in DETERMINERS), i)
    return any(words[k].breaks or words[k].lower in JOINS for k in range(said, i))


def _meant(context: Asked, kind: str, words: Sequence[Word]) -> str | None:
    """What a pronoun stands for; None where that is in doubt."""
    answer = context.answer
    if kind == "person":
        if context.person:
            return None if _is_several(context.person) else context.person
        return None if context.asks_person else context.actor
    if kind == "group":
        if answer and context.opens_with("what", "which", nouns=GROUP_NOUNS):
            return answer
        if answer and context.asks_person and not _is_plural(context.topic or ""):
            return answer if _is_several(answer) else None
    if kind == "place" and answer and context.asks_place:
        return answer
    if context.topic == context.person:
        is_place = kind == "thing" and context.opens_with("where")
        return answer if answer and is_place else None
    if kind == "thing" and _is_plural(context.topic or ""):
        return None
    return None if _is_answered_by_thing(context, words) else context.topic


def _is_several(name: str) -> bool:
    """Whether a name is that of several, or of a group."""
    is_group = name.startswith("The ") or name.split()[-1].lower() in GROUP_NOUNS
    return " and " in name or "," in name or is_group


def _is_plural(topic: str) -> bool:
    last = topic.split()[-1] if topic else ""
    return last.islower() and last.endswith("s") and not last.endswith("ss")


def _is_answered_by_thing(context: Asked, words: Sequence[Word]) -> bool:
    """Whether "it" may as well be the answer ("What is the capital of France?", "Paris"), or what
    was asked for ("Which port does Grafana use?", "Can I change it?")."""
    if not context.opens_with("what", "which") or context.asks_person:
        return False
    if re.search(
        rf"\b(?:is|are|was|were|'s) {re.escape(context.topic or '')}\W*$", context.question
    ):
        return False  # "What is the refund policy?" is about nothing else
    is_name = any(map(str.isupper, context.answer))
    lower = {word.lower for word in words}
    return is_name or ("its" not in lower and bool(SETTING & lower))


def _put(question: str, words: Sequence[Word], i: int, kind: str, text: str) -> str:
    word = words[i]
    after = words[i + 1].lower if i + 1 < len(words) and not word.breaks else ""
    if word.lower in POSSESSIVE or (word.lower == "her" and _is_noun(after)):
        text += "'s"
    if kind == "place":
        before = words[i - 1].lower
        if before in GOES:
            text = f"to {text}"
        elif before not in LINKS | {"to", "of", "around"}:
            text = f"in {text}"
    if i == 0:
        text = text[0].upper() + text[1:]
    return question[: word.start] + text + question[word.end :]


def _is_noun(word: str) -> bool:
    small = LINKS | AUXILIARIES | WH | JOINS
    return bool(word) and word not in small | {"to", "by", "of", "for", "as", "the", "a"}
