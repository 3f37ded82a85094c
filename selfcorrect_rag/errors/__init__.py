"""Errors that a user can act on: each message is one line and says what to do."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class SelfCorrectError(Exception):
    """Base of every error this package raises on purpose."""


class MissingExtra(SelfCorrectError, ImportError):
    """An optional dependency is not installed."""


class BadInput(SelfCorrectError, ValueError):
    """An input with a key that no graph takes, or with a value of the wrong type."""


class NoQuestion(SelfCorrectError, ValueError):
    """This turn's input has neither a question nor a human message at its end."""


class NoCheckpointer(SelfCorrectError, ValueError):
    """A run that may pause for approval needs a checkpointer, and the graph has none."""


class BadSettings(SelfCorrectError, ValueError):
    """Settings of another graph, an unknown knob, or a value out of bounds."""

    def __init__(self, reason: str, knob: str = "") -> None:
        super().__init__(f"{knob}: {reason}" if knob else reason)
        self.reason, self.knob = reason, knob


class NoDocument(SelfCorrectError, ValueError):
    """An input, a retriever or a web search gave something other than a list of documents."""


class BadArgument(SelfCorrectError, TypeError):
    """An invalid argument of a factory; the message says what is accepted."""


class NotAReflectionModel(SelfCorrectError):
    """A checkpoint's vocabulary lacks reflection tokens."""


class ModelNotFound(SelfCorrectError, OSError):
    """A checkpoint that cannot be loaded from the given folder or hub name."""


class DiskFull(SelfCorrectError, OSError):
    """No space is left on the disk; what was written before stays."""


class Fault(SelfCorrectError):
    """A part of a graph raised, hung, or returned something invalid.

    ``__cause__`` is the original exception, where there is one.
    """

    part = "part"
    """The value of ``stopped`` in the result where this cut an answer short."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason}; {hint}" if hint else reason)
        self.reason = reason


class RetrievalFailed(Fault):
    """A retriever raised."""

    part = "retriever"


class ModelFailed(Fault):
    """A language or embedding model raised, or gave no text."""

    part = "model"


class PromptTooLong(ModelFailed, ValueError):
    """A prompt does not fit the model's context, even with every passage cut away."""


class EngineFailed(ModelFailed):
    """An engine or a server stopped answering, or returned something invalid."""


class NodeFailed(Fault):
    """A custom node, given by ``nodes=``, raised or gave no update."""

    part = "node"


class EvaluatorFailed(Fault):
    """An evaluator raised, or gave no usable score."""

    part = "evaluator"


class WebSearchFailed(Fault):
    """A web search gave no result; the message says why."""

    part = "web_search"


class StoreFailed(Fault):
    """A checkpointer or a vector store could not be read or written."""

    part = "store"


class StepTimedOut(Fault, TimeoutError):
    """A step took longer than the setting ``step_timeout``."""

    part = "timeout"


class NotAnEvaluator(SelfCorrectError):
    """A checkpoint is not a trained classifier with one label."""


class BadTrainingData(SelfCorrectError, ValueError):
    """Rows or settings of a training cannot be used; the message says where."""


class BadRun(SelfCorrectError, ValueError):
    """The folder or file of a run is in use, holds another run, or none where one is wanted."""


class NoCluster(SelfCorrectError, ConnectionError):
    """No Ray answers at an address, or none could be started here; the message says why."""


class FailedOnActor(SelfCorrectError):
    """What a part raised on an actor of Ray; the message is its class and message there."""


class BadTask(SelfCorrectError, ValueError):
    """Questions of an evaluation cannot be read; the message says where and what to do."""


class SynthesisFailed(SelfCorrectError, RuntimeError):
    """A model failed for many questions in a row; the message says why."""


class BadDemonstrations(SelfCorrectError, ValueError):
    """Demonstrations lack what a mode shows, or cannot be chosen as requested."""


class CallsMixed(SelfCorrectError, RuntimeError):
    """Parallel calls of a tool in one task, which LangGraph cannot tell apart when it resumes."""


@contextmanager
def importing_here() -> Iterator[None]:
    """Within, imports find modules in the current folder too, after all others.

    For a ``module:attribute`` that the user names. A console script would not look there; looking
    there always would run a stranger's folder for a library that is not installed.
    """
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def find_named(name: str, *kinds: type) -> Any:
    """What ``name``, a ``module:attribute``, leads to: the attribute if it is one of ``kinds``, or
    cannot be called; else what it returns. Any error that its module raises is the caller's."""
    module, _, attribute = name.partition(":")
    with importing_here():
        found = getattr(importlib.import_module(module), attribute)
    return found() if callable(found) and not isinstance(found, kinds) else found


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, which the ``extra`` of this package installs.

    Raises:
        MissingExtra: it is not installed; the message is the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the module is there, something it imports is not
        raise MissingExtra(
            f'{error.name} is not installed: pip install "selfcorrect-rag[{extra}]"'
        ) from error
