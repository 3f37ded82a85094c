"""Wraps what a part of a graph raises into an error of this package, where the part is called."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelRateLimitError,
)
from langgraph.errors import GraphBubbleUp

from selfcorrect_rag.errors import Fault, SelfCorrectError
from selfcorrect_rag.errors.messages import GO_ON, MAX_LENGTH, describe_error, safe_message

ASYNC_ONLY = "Cannot invoke a coroutine function"
"""Start of LangChain's TypeError when an async-only function is called synchronously."""
RESUME_HINT = f"ask again once it works{GO_ON}"


@contextmanager
def wrap_errors(kind: type[Fault], part: str, kept: type[Fault] | None = None) -> Iterator[None]:
    """Raise errors of a part as ``kind``, with the original as the cause.

    Errors of this package keep their class, unless they are a fault of another part inside this
    one; whoever raised them, their message is put on one line, bounded and redacted. LangGraph's
    interrupts and cancellation are not faults.

    Args:
        kind: class of the error to raise.
        part: the part in the message's words, such as "the retriever".
        kept: the faults that keep their class; None: those of ``kind``.
    """
    try:
        yield
    except GraphBubbleUp:
        raise
    except Exception as error:
        is_ours = isinstance(error, SelfCorrectError) and not isinstance(error, Fault)
        if not is_ours and not isinstance(error, kept or kind):
            raise kind(f"{part} raised {describe_error(error)}", hint(error)) from error
        # Twice the length: an error of ours quotes another's message and adds to it.
        if isinstance(error, Fault):
            error.reason = safe_message(error.reason, 2 * MAX_LENGTH)
        error.args = (safe_message(error, 2 * MAX_LENGTH),)
        raise


def hint(error: BaseException) -> str:
    """Advice to the user about an error."""
    if isinstance(error, TypeError) and ASYNC_ONLY in str(error):
        return "it is async: run the graph with ainvoke or astream"
    if isinstance(error, ContextOverflowError) or "context length" in str(error):
        return "give it fewer passages, or a model with a longer context"
    if isinstance(error, ModelAuthenticationError):
        return "check its key"
    if isinstance(error, ModelRateLimitError):
        return f"wait, or give it retries (model.with_retry()); {RESUME_HINT}"
    return RESUME_HINT
