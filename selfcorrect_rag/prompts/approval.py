"""The question to a person before a web search, and the meaning of their reply."""

from collections.abc import Mapping
from typing import Any

REFUSED = "the search was not approved"

REPLY_SCHEMA: dict[str, Any] = {
    "title": "Web search",
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "description": "Search for this query"},
        "query": {"type": "string", "description": "Search for another query instead"},
    },
    "additionalProperties": False,
}
"""JSON schema of a reply, from which Studio and other clients make a form."""


def approval_request(query: str, source: str) -> dict[str, Any]:
    """Return the pause's payload: the question, the query, who would get it, and the choices."""
    return {
        "ask": "search the web?",
        "query": query,
        "source": source,
        "choices": {
            "true": "search for this query",
            "false": "do not search",
            "query": 'search for another: {"query": "..."}',
        },
    }


def approved(reply: object, query: str) -> str | None:
    """Return the query that a reply approves; None for a refusal.

    Args:
        reply: the value that the run was resumed with. True and ``{"approve": true}`` consent to
            ``query``; ``{"query": "..."}``, alone or with ``"approve": true``, is another query.
            Everything else is a refusal: a text, a number, an empty query without ``approve``, an
            unknown key.
        query: the query that was to be approved.
    """
    if reply is True:
        return query
    if not isinstance(reply, Mapping) or not reply.keys() <= {"approve", "query"}:
        return None
    edited = reply.get("query") or ""
    if not isinstance(edited, str) or reply.get("approve", True) is not True:
        return None
    if edited.strip():
        return edited.strip()
    return query if "approve" in reply else None
