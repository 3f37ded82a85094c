"""The errors that users meet, and how messages of other libraries become safe to show."""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any


class SelfCorrectError(Exception):
    """Base of all errors that this package raises on purpose; messages say how to fix them."""


class MissingExtra(SelfCorrectError, ImportError):
    """An optional dependency is not installed."""


class NoQuestion(SelfCorrectError, ValueError):
    """The input has neither a question in text nor a human message at its end."""


class BadSettings(SelfCorrectError, ValueError):
    """Settings of another graph, an unknown setting, or a value out of bounds."""

    def __init__(self, reason: str, knob: str = "") -> None:
        super().__init__(f"{knob}: {reason}" if knob else reason)
        self.reason, self.knob = reason, knob


class NoDocument(SelfCorrectError, ValueError):
    """An input, a retriever or a web search gave something other than a list of documents."""


class BadArgument(SelfCorrectError, TypeError):
    """An argument of a factory is of the wrong kind."""


class NotAReflectionModel(SelfCorrectError):
    """The vocabulary of a checkpoint lacks reflection tokens."""


class ModelNotFound(SelfCorrectError, OSError):
    """A checkpoint cannot be loaded from the given folder or hub name."""


class NotAnEvaluator(SelfCorrectError):
    """A checkpoint is not a trained classifier with one label."""


class BadTrainingData(SelfCorrectError, ValueError):
    """Rows or settings of a training cannot be used."""


class BadRun(SelfCorrectError, ValueError):
    """The folder or file of a run is in use, missing, or another run's; or its Ray is not there."""


class BadRows(SelfCorrectError, ValueError):
    """A file of rows cannot be read, or one of its rows is invalid."""


class BadDemonstrations(SelfCorrectError, ValueError):
    """Demonstrations lack what the prompt shows, or cannot be chosen as requested."""


class Fault(SelfCorrectError):
    """A part of a graph raised (``__cause__``), timed out, or returned something invalid."""

    part = "part"
    """The value of ``stopped`` in a result that this cut short."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason.rstrip('.')}; {hint}" if hint else reason)
        self.reason = reason


class RetrievalFailed(Fault):
    """A retriever or reranker raised."""

    part = "retriever"


class ModelFailed(Fault):
    """A language or embedding model raised, or gave no text."""

    part = "model"


class PromptTooLong(ModelFailed, ValueError):
    """A prompt does not fit the model's context, even with every passage cut away."""


class EngineFailed(ModelFailed):
    """An engine or a server stopped answering, or returned something invalid."""


class EvaluatorFailed(Fault):
    """An evaluator raised, or gave no usable score."""

    part = "evaluator"


class WebSearchFailed(Fault):
    """A web search gave no result."""

    part = "web_search"


# Messages of other libraries

RESUME_HINT = "ask again once it works, or go on from the thread with invoke(None, config)"
MAX_LENGTH, MAX_SCANNED, MIN_SECRET_LENGTH = 300, 10_000, 8
"""Characters of a foreign message that are quoted; that are searched for secrets; of a masked value
of the environment: shorter ones may be ordinary words."""
_SECRET_VARIABLE = re.compile(
    "(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|COOKIE|WEBHOOK(?:_URL)?)$"
)
_IS, _VALUE = r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?", r"[^\s\"'&,;)}\]]{4,}"
_SECRET_PATTERNS = [
    # A password may contain @ or /, but "host:8080/" is not a user with a password.
    r"(://)[^\s/@:\"'<>]{0,200}:(?!\d{1,5}[/?#])[^\s\"'<>]{1,500}(?=@)",
    r"(://)[^/\s@]{1,500}(?=@)",
    rf"(?i)(\bauthorization{_IS}(?:basic|bearer|token|(?:api-?)?key)\s{{1,5}}){_VALUE}",
    r"\b((?i:bearer)\s{1,5})[\w.~+/=-]{8,}",
    rf"(?i)(\bcookie{_IS})[\w.-]{{1,100}}=[^\r\n\"']{{3,}}",
    r"\b((?:sk|pk|rk|tvly|hf|gsk|gh[opsur]|github_pat|glpat|lsv2|xai|pplx|xox[abeoprs])[-_]|AIza)"
    r"[\w-]{12,}",
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\b(eyJ)[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",  # a JSON web token
    r"(?i)((?<![\w-])--(?:[\w-]{1,40}-)?(?:password|passwd|token|secret|key)[ =][\"']?)"
    r"[^\s\"']{4,}",
    r"(?i)((?:(?:api|access|secret|private)[_-]?key"
    r"|(?:access|api|auth|bot|id|refresh|security|session)[_-]?token|[_-](?:auth|webhook)"
    r"|password|passwd|pwd|secret|\btoken(?==)|[?&](?:key|sig|signature)|[\"']token(?=[\"']))"
    rf"{_IS}){_VALUE}",
]
"""Group 1 is kept; what follows it in the match is the secret."""


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error, on one line and with secrets masked."""
    message = safe_message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def safe_message(message: object, max_length: int = MAX_LENGTH) -> str:
    """Return a foreign message on one line, with secrets masked, at most ``max_length`` long."""
    return one_line(redact(str(message)[:MAX_SCANNED]), max_length)


def redact(text: str) -> str:
    """Replace secrets by ``***``: values of environment variables with such a name, and what looks
    like one or stands behind such a name."""
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and _SECRET_VARIABLE.search(name.upper()):
            text = text.replace(value, "***")
    for pattern in _SECRET_PATTERNS:
        text = re.sub(pattern, r"\1***", text)
    return text


def one_line(text: object, max_length: int | None = None) -> str:
    """Return text on one line: breaks, control characters and direction marks become spaces.

    Text longer than ``max_length`` is cut and ends in an ellipsis; at most twenty times that is
    read, so that a long run of spaces costs nothing.
    """
    given = str(text) if max_length is None else str(text)[: 20 * max_length]
    joiners = "\u200c\u200d"  # invisible, but part of the spelling of some scripts and of emoji
    if not given.isprintable():
        given = "".join(c if c.isprintable() or c in joiners else " " for c in given)
    shown = " ".join(given.split())
    if max_length is not None and len(shown) > max_length:
        return f"{shown[: max_length - 2].rstrip()} \u2026"
    return shown


class wrap_errors(AbstractContextManager[object, None]):  # noqa: N801
    """Raise errors of ``part`` ("the retriever") as ``kind``, with the original as the cause.

    Errors of this package keep their class, unless they are a fault of another part inside this
    one. Every message becomes one safe line. LangGraph's interrupts pass unchanged.
    """

    def __init__(self, kind: type[Fault], part: str) -> None:
        self.kind, self.part = kind, part

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        from langgraph.errors import GraphBubbleUp

        if not isinstance(error, Exception) or isinstance(error, GraphBubbleUp):
            return
        is_ours = isinstance(error, SelfCorrectError) and not isinstance(error, Fault)
        if not is_ours and not isinstance(error, self.kind):
            is_async = "Cannot invoke a coroutine function" in str(error)
            hint = "it is async: run the graph with ainvoke or astream" if is_async else RESUME_HINT
            raise self.kind(f"{self.part} raised {describe_error(error)}", hint) from error
        if isinstance(error, Fault):  # twice the length: it may quote another message
            error.reason = safe_message(error.reason, 2 * MAX_LENGTH)
        error.args = (safe_message(error, 2 * MAX_LENGTH),)


@contextmanager
def importing_here() -> Iterator[None]:
    """Let imports find modules of the current folder, after all others, for names that a user gave.

    Looking there at any other time would run a stranger's file in place of a missing library.
    """
    here = os.getcwd()
    added = [] if here in sys.path else [here]
    sys.path += added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def find_named(name: str, *kinds: type) -> Any:
    """Return the attribute ``module:attribute``, called if it is callable and not of ``kinds``."""
    with importing_here():
        found = pkgutil.resolve_name(name)
    return found() if callable(found) and not isinstance(found, kinds) else found


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``; `MissingExtra` if it is missing, with the command to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the module is there, something it imports is not
        raise MissingExtra(
            f'{error.name} is not installed: pip install "selfcorrect-rag[{extra}]"'
        ) from error
