"""Makes foreign text safe for notes, threads and logs: one line, bounded, secrets redacted."""

import os
import re

from selfcorrect_rag.errors import FailedOnActor

GO_ON = ", or go on from the thread with invoke(None, config)"
"""What Python can do after a fault, and the command line cannot."""
MAX_LENGTH = 300
"""Characters of a foreign message that are quoted."""
MAX_SCANNED = 10_000
"""Characters of a foreign message that are searched for secrets."""
MASK = "***"
MIN_SECRET_LENGTH = 8
"""Shorter values of environment variables may be any word, and are not redacted."""
JOINERS = "\u200c\u200d"
"""Zero-width joiners: invisible, but part of the spelling of some scripts and of emoji."""
_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
_SECRET_PATTERNS = (
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
"""Group 1 is kept; what follows it in the match is the secret."""


def describe_error(error: BaseException) -> str:
    """The class and the message of an error, on one line and redacted."""
    if isinstance(error, FailedOnActor):
        return str(error)  # already so, from where it was raised
    message = safe_message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def safe_message(message: object, max_length: int = MAX_LENGTH) -> str:
    """A foreign message on one line, redacted, of at most ``max_length`` characters."""
    line = one_line(redact(str(message)[:MAX_SCANNED]))
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def redact(text: str) -> str:
    """Replace secrets in ``text`` by :data:`MASK`: by their pattern, or by the environment.

    Patterns: user and password in a URL, ``Bearer ...`` and the schemes of ``Authorization:``, keys
    with a provider's prefix, and what follows ``api_key=``, ``secret_key=``, ``access_token:``,
    ``?token=``, ``password=``, ``secret=``. Environment variables: those whose name ends in KEY,
    TOKEN, SECRET, PASSWORD or CREDENTIALS.
    """
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and _SECRET_VARIABLE.search(name.upper()):
            text = text.replace(value, MASK)
    for pattern in _SECRET_PATTERNS:
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def one_line(text: object, max_length: int | None = None) -> str:
    """Text on one line: breaks, control characters and direction marks become spaces.

    Text longer than ``max_length`` characters is cut and ends in an ellipsis; at most twenty times
    that is read, so that a long run of spaces costs nothing.
    """
    given = str(text) if max_length is None else str(text)[: 20 * max_length]
    shown = "".join(c if c.isprintable() or c in JOINERS else " " for c in given)
    shown = " ".join(shown.split())
    if max_length is not None and len(shown) > max_length:
        return f"{shown[: max_length - 2].rstrip()} \u2026"
    return shown
