"""Makes English follow-up questions stand alone, by rule: "When was she born?".

A question is rewritten only where the conversation leaves little doubt what it refers to; any other
stays as it is. All texts are bounded, and read in linear time.
"""

import re
from collections.abc import Sequence

from selfcorrect_rag.follow_up.asked import Asked, topic_of
from selfcorrect_rag.follow_up.fragments import completed, replaced
from selfcorrect_rag.follow_up.lexicon import (
    AUXILIARIES,
    DEFINITE,
    LIVES,
    PERSON_NOUNS,
    SMALL_TALK,
    WH,
)
from selfcorrect_rag.follow_up.mentions import Mention, Word, is_code, words_of
from selfcorrect_rag.follow_up.pronouns import has_own, kind_of, named
from selfcorrect_rag.reader.answers import is_readable

LONGEST = 300
"""Characters of a question; a longer one is neither rewritten nor referred to."""
MOST_TURNS = 30
"""Latest turns that are read."""


def standalone_question(earlier: Sequence[tuple[str, str]], question: str) -> str:
    """The question with what it refers to in the place of "it", "she", "And Germany?", "Why?".

    Args:
        earlier: the conversation before it, oldest first: ``"user"`` or ``"assistant"``, and what
            they said.
        question: the last question.

    Returns:
        A question that stands alone; ``question`` itself where it does already, where it is not
        English, and where it is in doubt what it refers to.
    """
    context: Asked | None = None
    for asked, answer in _turns(earlier)[-MOST_TURNS:]:
        if not _is_small_talk(asked):
            turn = _rewritten(context, asked)
            context = None if turn is None else turn.answered(answer)
    last = _rewritten(context, question)
    return question if last is None else last.question


def _turns(earlier: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each question of the user with its first answer."""
    turns: list[tuple[str, str]] = []
    for who, text in earlier:
        if who == "user":
            turns.append((text, ""))
        elif turns and not turns[-1][1]:
            turns[-1] = (turns[-1][0], text)
    return turns


def _is_small_talk(text: str) -> bool:
    words = re.findall(r"[\w']+", text[:LONGEST].lower())
    return len(words) < 6 and set(words) <= SMALL_TALK


def _rewritten(context: Asked | None, question: str) -> Asked | None:
    """The question as it stands alone; None where it is not read."""
    if len(question) > LONGEST or not is_readable(question):
        return None
    words = words_of(question)
    if context is not None and _asks(words):
        for rule in (replaced, completed, named):
            if (turn := rule(context, question, words)) is not None:
                return turn
    return _fresh(question, words)


def _asks(words: Sequence[Word]) -> bool:
    """Whether it asks, in English."""
    lower = [word.lower for word in words]
    asks = AUXILIARIES | WH | {"tell", "explain", "describe", "show", "give", "list"}
    return lower[0] == "and" or bool(asks & set(lower))


def _fresh(question: str, words: Sequence[Word]) -> Asked:
    """A question that stands alone, as it was asked."""
    first = next((i for i in range(len(words)) if kind_of(words, i)), None)
    if first is not None and not has_own(words, first, ()):
        return Asked(question, None)  # refers to what is not known
    found = topic_of(words)
    if found is None:
        return Asked(question, None)
    topic = _text(question, words, found)
    lives = found.subject and any(word.lower in LIVES for word in words)
    owns = question[words[found.last].end :].startswith(("'s", "’s"))
    is_name = found.name == (found.first, found.last)
    may_act = words[found.last].lower in PERSON_NOUNS or (is_name and not is_code(topic))
    actor = topic if may_act and (found.subject or owns) else None
    return Asked(question, topic, topic if lives else None, actor)


def _text(question: str, words: Sequence[Word], mention: Mention) -> str:
    first = words[mention.first]
    text = question[first.start : words[mention.last].end]
    if not mention.definite:
        return "the " + question[words[mention.first + 1].start : words[mention.last].end]
    return text[0].lower() + text[1:] if first.opens and first.lower in DEFINITE else text
