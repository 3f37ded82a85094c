"""Follow-up questions that are part of a question: "And Germany?", "Why?"."""

import re
from collections.abc import Sequence

from selfcorrect_rag.follow_up.asked import Asked, topic_of
from selfcorrect_rag.follow_up.lexicon import (
    AUXILIARIES,
    BE,
    LEADS,
    LINKS,
    NEUTRAL,
    ORDINALS,
    VALUES,
)
from selfcorrect_rag.follow_up.mentions import Word, is_code, mentions_in, names_in, words_of
from selfcorrect_rag.follow_up.pronouns import kind_of

_DATES: tuple[re.Pattern[str], ...] = (
    re.compile(r"(?:1\d|20)\d\d"),
    re.compile(r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?", re.IGNORECASE),
    re.compile(
        r"(?:january|february|march|april|may|june|july|august|september|october|november|december)",
        re.IGNORECASE,
    ),
)


def replaced(context: Asked, question: str, words: Sequence[Word]) -> Asked | None:
    """The question before with another name in the place of its own: "What about Persuasion?"."""
    lower = [word.lower for word in words]
    start = 0
    while start < len(words) and lower[start] in LEADS:
        start += 1
    leads = "and" in lower[:start]
    if lower[start : start + 2] in (["what", "about"], ["how", "about"]):
        leads, start = True, start + 2
    if not leads or start == len(words):
        return None
    preposition = lower[start] if lower[start] in LINKS | NEUTRAL | {"to", "during"} else ""
    start += bool(preposition)
    new = [word._replace(opens=False) for word in words[start:]]
    if not new or any(word.breaks for word in new[:-1]) or question[new[-1].end :].strip(" ?.!"):
        return None
    text = question[new[0].start : new[-1].end]
    if len(new) == 1 and (dated := _redated(context.question, text, preposition)):
        return context.then(dated)
    determined = new[0].lower == "the"
    if names_in(new) == [(int(determined), len(new) - 1)]:
        return _renamed(context, text, "" if preposition in NEUTRAL else preposition)
    found = mentions_in(new)
    if len(found) != 1 or (found[0].first, found[0].last) != (0, len(new) - 1):
        return None
    return _retold(context, question, new, text, preposition)


def _redated(question: str, text: str, preposition: str) -> str | None:
    for date in _DATES:
        if not date.fullmatch(text):
            continue
        words = [word for word in words_of(question) if date.fullmatch(word.text)]
        if len(words) == 1:
            return question[: words[0].start] + text + question[words[0].end :]
        if not words and preposition in ("in", "on", "during"):
            return f"{question.rstrip(' ?')} {preposition} {text}?"
    return None


def _renamed(context: Asked, text: str, preposition: str) -> Asked | None:
    asked = context.words
    found = [mention for mention in mentions_in(asked) if mention.name]
    places = [mention.name for mention in found if mention.name]
    if preposition:
        places = [(a, b) for a, b in places if _before(asked, a) == preposition]
    if len(places) != 1:
        return None
    first, last = places[0]
    old = context.question[asked[first].start : asked[last].end]
    if is_code(old) != is_code(text.removeprefix("the ")) or _is_like(text, context.answer, old):
        return None
    if (
        first
        and asked[first - 1].lower == "the"
        and (first - 1, last) in {(mention.first, mention.last) for mention in found}
    ):
        first -= 1  # "the Louvre" is replaced as a whole
    renamed = context.question[: asked[first].start] + text + context.question[asked[last].end :]
    return Asked(renamed, text, actor=text if context.actor else None)


def _before(words: Sequence[Word], i: int) -> str:
    """The word before word ``i`` and its determiner."""
    i -= 1
    if i >= 0 and words[i].lower == "the":
        i -= 1
    return words[i].lower if i >= 0 else ""


def _is_like(text: str, answer: str, old: str) -> bool:
    """Whether a name looks like the answer rather than like what was asked about."""
    count = 0 if text.lower().startswith("the ") else len(text.split())
    return count > 1 and count == len(answer.split()) != len(old.split())


def _retold(
    context: Asked,
    question: str,
    new: Sequence[Word],
    text: str,
    preposition: str,
) -> Asked | None:
    asked = context.words
    topic = topic_of(asked)
    if topic is None or context.topic is None or new[-1].lower in ORDINALS:
        return None
    is_value = new[-1].lower in VALUES
    is_same_head = asked[topic.last].lower == new[-1].lower
    if is_same_head or (topic.name is None and is_value == (asked[topic.last].lower in VALUES)):
        start, end = asked[topic.first].start, asked[topic.last].end
        return Asked(context.question[:start] + text + context.question[end:], text)
    is_beside = _before(asked, topic.first) == "of"  # "the capital of France"
    if preposition or names_in(new) or not (is_value or is_beside):
        return None
    return context.then(f"{question.rstrip(' ?.!')} of {context.topic}?")


_ADVERBIAL = re.compile(
    r"(?:why|when|where|how|since when|until when|how often|(?:for )?how long|by whom|with whom)"
    r"(?: exactly)?"
)
_MEASURE = re.compile(
    r"how (?:long|big|tall|old|far|high|deep|large|heavy|fast|wide|expensive|much)"
)
_OPENING = re.compile(
    r"(?:since|until) when|how (?:often|long)|(?:by|with) whom|when|where|why|how"
)
_SHORT_ANSWER = 5


def completed(context: Asked, question: str, words: Sequence[Word]) -> Asked | None:
    """A question word alone, with the question before: "Why?"."""
    if any(kind_of(context.words, i) for i in range(len(context.words))):
        return None  # the question before does not stand alone either
    start = 0
    while start < len(words) and words[start].lower in LEADS:
        start += 1
    bare = " ".join(word.lower for word in words[start:])
    lead = question.rstrip(" ?!.")
    done: str | None = None
    if _MEASURE.fullmatch(bare):
        done = _measured(context, lead)
    if done is None and _ADVERBIAL.fullmatch(bare):
        done = _asked_again(context, lead, bare)
    if done is None:
        return None
    return context.then(f"{done.rstrip(' ?')}?")


def _measured(context: Asked, lead: str) -> str | None:
    lower = [word.lower for word in context.words]
    if lower[0] in AUXILIARIES and lower[1:2] != ["there"] and lower[0] not in BE:
        return None
    if lower[0] not in AUXILIARIES and lead.lower().endswith(("long", "far")):
        return None
    meant = context.person if context.asks_person else context.topic
    return None if meant is None else f"{lead} is {meant}"


def _asked_again(context: Asked, lead: str, bare: str) -> str | None:
    asked, question = context.words, context.question
    asked = asked[next((i for i, word in enumerate(asked) if word.lower not in LEADS), 0) :]
    lower = [word.lower for word in asked]
    if len(lower) < 3:
        return None
    if lower[0] in AUXILIARIES:
        is_new = "long" in bare and {"a", "an", "there"} & set(lower)
        return (
            None
            if lower[1] == "there" or is_new
            else f"{lead} {lower[0]}{question[asked[0].end :]}"
        )
    opening = _OPENING.match(" ".join(lower))
    count = len(opening[0].split()) if opening else 0
    if opening and lower[count] in AUXILIARIES:
        is_same = bare.startswith(opening[0]) and "exactly" not in bare
        if is_same or "long" in bare:
            return None
        return f"{lead} {question[asked[count].start :]}"
    if lower[0] == "who":
        return _who(context, asked, lead)
    return _object(context, asked, lead)


def _who(context: Asked, asked: Sequence[Word], lead: str) -> str | None:
    """After "Who wrote Emma?": "When was it that Jane Austen wrote Emma?"."""
    verb, rest = asked[1], context.question[asked[1].start :]
    if not context.answer:
        return None
    if verb.lower in ("is", "was"):
        return f"{lead} {verb.lower} {context.answer}{context.question[verb.end :]}"
    if verb.lower in AUXILIARIES:
        return None
    be = "is" if verb.lower.endswith("s") else "was"
    return f"{lead} {be} it that {context.answer} {rest}"


def _object(context: Asked, asked: Sequence[Word], lead: str) -> str | None:
    """After "Which port does Grafana use?": "Why does Grafana use port 3000?"."""
    aux = next((i for i, word in enumerate(asked[:4]) if word.lower in AUXILIARIES - BE), None)
    said = context.said.rstrip(" .")
    if asked[0].lower not in ("what", "which") or aux is None:
        return None
    if not said or len(said.split()) > _SHORT_ANSWER:
        return None
    noun = context.question[asked[1].start : asked[aux].start] if aux > 1 else ""
    return f"{lead} {context.question[asked[aux].start :].rstrip(' ?')} {noun}{said}"
