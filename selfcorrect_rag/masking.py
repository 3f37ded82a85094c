"""Secrets out of the messages of others, before they reach a note, a thread, a page or a log."""

import os
import re

MASK = "***"
_NAMED = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
"""How a variable ends that holds a secret."""
SHORTEST = 8
"""Characters of a variable's value that is taken for one: a shorter may be any word."""
_SHAPES = (
    re.compile(r"(://)[^/\s@]{1,500}(?=@)"),
    re.compile(r"\b((?i:bearer|basic)\s{1,5})[\w.~+/=-]{4,}"),
    re.compile(r"\b((?:sk|pk|rk|tvly|hf|gsk|ghp|lsv2|xai|pplx)[-_]|AIza)[\w-]{12,}"),
    re.compile(
        r"(?i)((?:api[_-]?key|access[_-]?(?:key|token)|auth[_-]?token|password|passwd|secret)"
        r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'&,;)}\]]{4,}"
    ),
)
"""A secret after what tells that it is one."""


def masked(text: str) -> str:
    """``text`` without what is a secret by its shape, or is the value of such a variable.

    Shapes are: user and password in an address, ``Bearer ...``, keys with a provider's prefix, and
    what follows ``api_key=``, ``access_token:``, ``password=``, ``secret=``. Variables of the
    environment are those whose name ends in KEY, TOKEN, SECRET, PASSWORD or CREDENTIALS.
    """
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAMED.search(name.upper()):
            text = text.replace(value, MASK)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{MASK}", text)
    return text
