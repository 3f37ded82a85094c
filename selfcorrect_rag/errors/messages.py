"""Text of others on one line and without secrets, before it reaches a note, a thread or a log."""

import os
import re

MASK = "***"
_NAMED = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
"""How a variable ends that holds a secret."""
SHORTEST = 8
"""Characters of a variable's value that is taken for one: a shorter may be any word."""
JOINERS = "\u200c\u200d"
"""Cannot be seen, and belong to the spelling of some scripts and of emoji."""
_SHAPES = (
    # A password may hold an @ or a slash, but "host:8080/" is no user with a password.
    re.compile(r"(://)[^\s/@:\"'<>]{0,200}:(?!\d{1,5}[/?#])[^\s\"'<>]{1,500}(?=@)"),
    re.compile(r"(://)[^/\s@]{1,500}(?=@)"),
    re.compile(
        r"(?i)(\bauthorization[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?:basic|bearer|token|(?:api-?)?key)"
        r"\s{1,5})[^\s\"',;)}\]]{4,}"
    ),
    re.compile(r"\b((?i:bearer)\s{1,5})[\w.~+/=-]{8,}"),
    re.compile(
        r"\b((?:sk|pk|rk|tvly|hf|gsk|gh[opsur]|github_pat|glpat|lsv2|xai|pplx|xox[abeoprs])[-_]"
        r"|AIza)[\w-]{12,}"
    ),
    re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(
        r"(?i)((?:(?:api|access|secret|private)[_-]?key"
        r"|(?:access|api|auth|bot|id|refresh|security|session)[_-]?token"
        r"|password|passwd|pwd|secret|[?&](?:token|key|sig|signature)|[\"']token(?=[\"']))"
        r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'&,;)}\]]{4,}"
    ),
)
"""A secret after what tells that it is one."""


def masked(text: str) -> str:
    """``text`` without what is a secret by its shape, or is the value of such a variable.

    Shapes are: user and password in an address, ``Bearer ...`` and the schemes of
    ``Authorization:``, keys with a provider's prefix, and what follows ``api_key=``,
    ``secret_key=``, ``access_token:``, ``?token=``, ``password=``, ``secret=``. Variables of the
    environment are those whose name ends in KEY, TOKEN, SECRET, PASSWORD or CREDENTIALS.
    """
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and _NAMED.search(name.upper()):
            text = text.replace(value, MASK)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{MASK}", text)
    return text


def one_line(text: object, longest: int | None = None) -> str:
    """Text on one line: breaks, control characters and marks of direction become spaces.

    What is longer than ``longest`` characters is cut, and ends in an ellipsis. Spaces beyond twenty
    times that are not read.
    """
    given = str(text) if longest is None else str(text)[: 20 * longest]
    shown = "".join(c if c.isprintable() or c in JOINERS else " " for c in given)
    shown = " ".join(shown.split())
    if longest is not None and len(shown) > longest:
        return f"{shown[: longest - 2].rstrip()} \u2026"
    return shown
