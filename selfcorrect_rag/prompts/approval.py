"""The question to a person before a web search, and the meaning of their reply.

Only a clear yes searches, and only a clear text is another query: anything unclear is a refusal.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

REFUSED = "the search was not approved"

_CONSENTS = """yes y yeah yep yup ok okay k sure true accept accepted agree agreed allow allowed
approve approved confirm confirmed fine absolutely certainly definitely proceed continue go search
course ja oui si sí da да はい 是"""
CONSENTS = frozenset(_CONSENTS.split())
"""A text that consents has one of these, and beside them only ``FILLERS``."""
FILLERS = frozenset(["please", "thanks", "ahead", "of", "it"])
_REFUSALS = """no nope nah nay non nein nee nej nie niet nicht kein keine não nao nunca jamás jamais
pas ne not never neither nobody geen nooit inte ikke hayır hayir không ei nem dont doesnt wont cant
cannot shouldnt wouldnt mustnt isnt n stop cancel cancelled canceled abort quit exit skip ignore
reject rejected refuse refused decline declined deny denied disagree disapprove disapproved disallow
object forbid false none nothing null nil negative leave wait hold pass later maybe forget
nevermind"""
REFUSALS = frozenset(_REFUSALS.split())
"""Words, beside those in "n't", of which one anywhere makes a text a refusal."""
_TALK = """i i'm i'd i'll me my we us our you your let's sorry oh ah hm hmm um well"""
TALK = frozenset(_TALK.split())
"""Words of conversation: a text with one of them is not a query."""
_EMPTY = """a an the this that that's it it's to for on in at and or but if so is are was be do does
did can could would should will may want like just now good great right sounds what who why how when
where which"""
EMPTY = frozenset(_EMPTY.split())
"""Words without content for a query, like ``FILLERS``."""
_APOSTROPHES = dict.fromkeys(map(ord, "’‘´`ʼ′＇｀"), "'")
LONGEST = 200
"""Characters of a text that may be another query."""
VERDICTS = ("approve", "approved", "action", "type", "decision", "choice")
"""Keys of a reply that say yes or no."""
EDITS = ("edit", "response", "respond", "query")
"""Verdicts that come with other words: Agent Chat UI's, LangChain's middleware's, and a choice."""
CARRIERS = ("query", "args", "edited_action")
"""Keys of a reply that may hold other words."""


def approval_request(query: str, source: str) -> dict[str, Any]:
    """The pause's payload: the question, the query, who would get it, and the choices."""
    return {
        "ask": "search the web?",
        "query": query,
        "source": source,
        "choices": {
            "yes": "search for this query",
            "no": "do not search",
            "query": 'search for another: {"query": "..."}',
        },
    }


def approved(reply: object, query: str) -> str | None:
    """The query that a reply approves; None for a refusal.

    Args:
        reply: the value that the run was resumed with.

            - True, ``{"approve": true}``, and a text made only of words like "yes", "ok", "sure"
              and "go ahead" are consent to ``query``.
            - ``{"query": "..."}`` alone, or with a yes beside it, is another query, unless it says
              nothing but no. So is a text of at most 200 characters with two or more words of
              content, in Latin letters, digits and ASCII punctuation without "?", that has no word
              of consent, of refusal or of conversation ("I", "you").
            - All else is a refusal. So are False, None, an empty text, a text with a word like
              "no", "don't", "cancel" or "later", and a dict with a key that is not known, or with
              ``{"approve": false}`` or ``{"action": "reject"}`` whatever is beside it.
        query: the query that was to be approved.
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
        return approved(reply["decisions"], query) if len(reply) == 1 else None
    verdicts = [reply[key] for key in VERDICTS if key in reply]
    if not reply.keys() <= {*VERDICTS, *CARRIERS}:  # it may say no under any other
        return None
    if not verdicts:
        return _explicit(reply["query"]) if reply.keys() == {"query"} else None
    # The empty field of a form says nothing.
    words = {key: reply[key] for key in CARRIERS if reply.get(key) not in (None, "")}
    for verdict in verdicts:
        is_edit = bool(words) and verdict in EDITS
        if not is_edit and verdict is not True and not _consents(verdict):
            return None
    if len(words) != 1:
        return None if words else query
    ((key, given),) = words.items()
    if isinstance(given, str) and key != "query":
        return approved(given, query)
    for _ in range(2):  # the call of a tool, and perhaps its arguments
        if isinstance(given, Mapping) and given.keys() <= {"action", "name", "args"}:
            given = given.get("args")
    is_query = isinstance(given, Mapping) and given.keys() == {"query"}
    return _explicit(given["query"] if is_query else given)


def _folded(reply: str) -> str:
    """A normalised text: one Unicode form and case, "nooo" as "no"."""
    text = unicodedata.normalize("NFKC", reply.translate(_APOSTROPHES)).lower().replace("_", " ")
    return re.sub(r"([^\W\d])\1{2,}", r"\1", text).replace("thank you", "thanks")


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:'\w+)*", text)


def _refuses(word: str) -> bool:
    return word in REFUSALS or word.endswith("n't")


def _consents(reply: object) -> bool:
    if not isinstance(reply, str):
        return False
    words = set(_words(_folded(reply)))
    # Not folded, which makes marks of ASCII of others.
    only_words = all(letter.isalpha() or letter.isspace() or letter in ".,;:!-" for letter in reply)
    return only_words and bool(words & CONSENTS) and words <= CONSENTS | FILLERS


def _other_query(reply: str) -> str | None:
    """A text as another query, where it can only be that."""
    words = _words(_folded(reply))
    text = reply.translate(_APOSTROPHES)
    if len(reply) > LONGEST or "?" in text or not all(map(_is_latin, text)):
        return None
    if any(_refuses(word) or word in CONSENTS | TALK for word in words):
        return None
    content = [word for word in words if len(word) > 1 and word not in EMPTY | FILLERS]
    return reply.strip() if len(content) > 1 else None


def _is_latin(letter: str) -> bool:
    """Whether a character can be read here: others may be a refusal in words not known."""
    is_letter = unicodedata.name(letter, "").startswith("LATIN")
    return is_letter or letter.isspace() or (letter.isascii() and letter.isprintable())


def _explicit(given: object) -> str | None:
    """An explicit query, unless it only says no."""
    words = _words(_folded(given)) if isinstance(given, str) else []
    rest = [word for word in words if not _refuses(word) and word not in FILLERS | TALK | EMPTY]
    says_no = any(map(_refuses, words)) and set(rest) <= {"search"}
    return None if says_no or not words else str(given).strip()
