"""Errors that a user can act on: each message is one line and names the remedy."""

import importlib
from types import ModuleType


class SelfCorrectError(Exception):
    """Base of every error this package raises on purpose."""


class MissingExtra(SelfCorrectError, ImportError):
    """An optional dependency is not installed."""


class BadInput(SelfCorrectError, ValueError):
    """An input with a key that no graph takes, or with a value of the wrong type."""


class NoQuestion(SelfCorrectError, ValueError):
    """The input of this turn holds neither a question nor a human message at its end."""


class NoCheckpointer(SelfCorrectError, ValueError):
    """A run that is to pause for a person has nowhere to be kept meanwhile."""


class BadSettings(SelfCorrectError, ValueError):
    """Settings of another graph, a knob that a graph does not have, or a value out of bounds."""

    def __init__(self, reason: str, knob: str = "") -> None:
        super().__init__(f"{knob}: {reason}" if knob else reason)
        self.reason, self.knob = reason, knob


class NoDocument(SelfCorrectError, ValueError):
    """What is no list of documents, in an input or from a retriever or a web search."""


class NotARetriever(SelfCorrectError, TypeError):
    """What neither is a LangChain retriever nor a function from a query to documents."""


class NotAReflectionModel(SelfCorrectError):
    """A checkpoint whose vocabulary lacks reflection tokens."""


class ModelNotFound(SelfCorrectError, OSError):
    """A checkpoint that cannot be loaded from where it was said to be."""


class DiskFull(SelfCorrectError, OSError):
    """No space is left for what is to be written; what was written before stays."""


class Fault(SelfCorrectError):
    """A part of a graph that raised, hung, or gave what it should not.

    ``__cause__`` is what it raised, where it did.
    """

    part = "part"
    """As ``stopped`` names it where an answer was cut short by it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason


class RetrievalFailed(Fault):
    """A retriever that raised."""

    part = "retriever"


class ModelFailed(Fault):
    """A language model, or one of embeddings, that raised or gave no text."""

    part = "model"


class PromptTooLong(ModelFailed, ValueError):
    """A prompt does not fit the model's context, even with every passage cut away."""


class EngineFailed(ModelFailed):
    """An engine or a server that stopped answering, or that gave what it should not."""


class EvaluatorFailed(Fault):
    """An evaluator that raised, or that gave no usable score."""

    part = "evaluator"


class WebSearchFailed(Fault):
    """A web search that gave no result; the message says why."""

    part = "web_search"


class StoreFailed(Fault):
    """A checkpointer, which keeps the threads, that could not be read or written."""

    part = "store"


class StepTimedOut(Fault, TimeoutError):
    """A step that took longer than the setting ``step_timeout``."""

    part = "timeout"


class NotAnEvaluator(SelfCorrectError):
    """A checkpoint that is no trained classifier with one label."""


class BadTrainingData(SelfCorrectError, ValueError):
    """Rows, or a folder of an earlier run, that cannot be trained on; the message says where."""


class SynthesisFailed(SelfCorrectError, RuntimeError):
    """A model that fails for one question after another; the message says why."""


class BadDemonstrations(SelfCorrectError, ValueError):
    """Demonstrations that lack what a mode shows, or that cannot be chosen as asked."""


class CallsMixed(SelfCorrectError, RuntimeError):
    """Parallel calls of a tool in one task, which LangGraph cannot tell apart when it resumes."""


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, which the ``extra`` of this package brings.

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
