"""What a person is asked before a web search, and what their reply means.

Only a clear yes searches, and only a clear text is another query: what cannot be understood is no
consent.
"""

import re
from collections.abc import Mapping
from typing import Any

REFUSED = "the search was not approved"

_CONSENTS = """yes y yeah yep yup ok okay k sure true accept accepted agree agreed allow allowed
approve approved confirm confirmed fine absolutely certainly definitely proceed continue go search
course ja oui si sí da да はい 是"""
CONSENTS = frozenset(_CONSENTS.split())
"""A text that consents has one of these, and beside them only ``FILLERS``."""
_FILLERS = "please thanks thank you ahead do it of that is good great right"
FILLERS = frozenset(_FILLERS.split())
_NEGATIONS = """no nope nah nay non nein nee nej nie niet nicht kein keine não nao nunca jamás
jamais pas ne нет not never neither nobody geen nooit inte ikke dont doesnt wont cant cannot
shouldnt wouldnt mustnt isnt"""
NEGATIONS = frozenset(_NEGATIONS.split())
"""Words, beside those in "n't", of which one anywhere makes a text a refusal."""
PREFIXES = ("不", "别", "別", "勿", "否", "いいえ", "いや", "やめ", "아니")
"""The same for languages that put no space between words: how a refusal begins."""
_STOPS = """n stop cancel cancelled canceled abort quit exit skip ignore reject rejected refuse
refused decline declined deny denied disapprove disapproved disallow forbid false none nothing null
nil leave wait hold"""
STOPS = frozenset(_STOPS.split())
"""Words that make a refusal of a text that begins with one, perhaps after ``POLITE``."""
_POLITE = "please sorry thanks thank you oh ah hm hmm um well just i we let's"
POLITE = frozenset(_POLITE.split())
LONGEST = 200
"""Characters of a text that may be another query."""
VERDICTS = ("approve", "approved", "action", "type", "decision")
"""Keys of a reply that say yes or no."""
EDITS = ("edit", "response", "respond")
"""Verdicts that come with other words, from Agent Chat UI and LangChain's own middleware."""


def asked_for(query: str, source: str) -> dict[str, Any]:
    """What the pause shows: what is asked, the query, who would get it, and the choices."""
    return {
        "ask": "search the web?",
        "query": query,
        "source": source,
        "choices": {
            "yes": "search for this query",
            "no": "do not search",
            "query": 'search for another: {"query": "..."}, or its words alone',
        },
    }


def approved(reply: object, query: str) -> str | None:
    """The query that a reply approves of; None where it approves of none.

    Args:
        reply: what the run was resumed with.

            - True, ``{"approve": true}``, and a text made only of words like "yes", "ok", "sure"
              and "go ahead" are consent to ``query``.
            - ``{"query": "..."}`` is another query. So is any other text with two letters or
              digits, of at most 200 characters.
            - A text with a word like "no", "not", "never" or "don't" anywhere in it, or that
              begins with one like "cancel" or "stop", is a refusal. So are False, None, an empty
              text, and ``{"approve": false}`` or ``{"action": "reject"}`` whatever is beside it.
            - All else is a refusal too, such as "yes, but ...", "ok?" or 1.
        query: what was to be searched for.
    """
    if isinstance(reply, list | tuple) and len(reply) == 1:  # Agent Chat UI gives a list
        return approved(reply[0], query)
    if isinstance(reply, Mapping):
        return _of_fields(reply, query)
    if isinstance(reply, str):
        return query if _consents(reply) else _other_query(reply)
    return query if reply is True else None


def _of_fields(reply: Mapping[str, Any], query: str) -> str | None:
    if "decisions" in reply:
        return approved(reply["decisions"], query)
    verdicts = [reply[key] for key in VERDICTS if key in reply]
    other: Any = reply
    for key in ("edited_action", "args", "args"):  # an edited call of a tool
        if isinstance(other, Mapping) and "query" not in other:
            other = other.get(key, other)
    given = other.get("query") if isinstance(other, Mapping) else None
    edited = bool(given) if verdicts else given is not None  # a form's empty field is no query
    worded = isinstance(other, str)
    for verdict in verdicts:
        is_edit = (edited or worded) and verdict in EDITS
        if not is_edit and verdict is not True and not _consents(verdict):
            return None
    if worded:
        return approved(other, query)
    if edited:
        return _explicit(given)
    return query if verdicts else None


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:'\w+)*", text.lower().replace("’", "'"))


def _consents(reply: object) -> bool:
    if not isinstance(reply, str) or "?" in reply:
        return False
    words = set(_words(reply))
    return bool(words & CONSENTS) and words <= CONSENTS | FILLERS


def _other_query(reply: str) -> str | None:
    """A text as another query, where it can only be that."""
    words = _words(reply)
    if any(w in NEGATIONS or w.endswith("n't") or w.startswith(PREFIXES) for w in words):
        return None
    first = next((word for word in words if word not in POLITE), None)
    if first is None or first in STOPS or first in CONSENTS or words[0] in CONSENTS:
        return None
    text = reply.strip()
    return text if len(text) <= LONGEST and sum(map(len, words)) > 1 else None


def _explicit(given: object) -> str | None:
    """A query that was given as one, unless it says nothing but no."""
    words = set(_words(given)) if isinstance(given, str) else set()
    says_no = words <= NEGATIONS | STOPS | POLITE
    return None if says_no else str(given).strip()
