"""What a part of a graph raises, as an error of ours: named where the part is called."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelRateLimitError,
)
from langgraph.errors import GraphBubbleUp

from selfcorrect_rag.errors import Fault, SelfCorrectError
from selfcorrect_rag.errors.messages import masked, one_line

ASYNC_ALONE = "Cannot invoke a coroutine function"
"""How LangChain begins its TypeError at a sync call of what is async, be it wrapped."""
LONGEST, LONGEST_READ = 300, 10_000
"""Characters of another's message in ours, and those that are looked through for secrets. A fault
of ours may be twice as long, since it quotes one and says more."""
GO_ON = "ask again once it works, or go on from the thread with invoke(None, config)"


@contextmanager
def named(kind: type[Fault], who: str) -> Iterator[None]:
    """Raise what a part raises within as ``kind``, with the original as its cause.

    What is ours already stays what it is, unless it is the fault of another part, which this one is
    made of. A fault that a part raises by itself is put on one line, bounded and without secrets.
    Interrupts of LangGraph and cancellation are no faults.

    Args:
        kind: of error.
        who: as the message calls the part, such as "the retriever".
    """
    try:
        yield
    except GraphBubbleUp:
        raise
    except Exception as error:
        if isinstance(error, kind):
            error.reason = said(error.reason, 2 * LONGEST)
            error.args = (said(error, 2 * LONGEST),)
            raise
        if isinstance(error, SelfCorrectError) and not isinstance(error, Fault):
            raise
        raise kind(f"{who} raised {told(error)}", remedy(error)) from error


def told(error: BaseException) -> str:
    """The class and the message of an error, on one line and without secrets."""
    message = said(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def said(message: object, longest: int = LONGEST) -> str:
    """Another's message on one line, without secrets, and of at most so many characters."""
    line = one_line(masked(str(message)[:LONGEST_READ]))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def remedy(error: BaseException) -> str:
    """What to do about it."""
    if isinstance(error, TypeError) and ASYNC_ALONE in str(error):
        return "it is async: run the graph with ainvoke or astream"
    if isinstance(error, ContextOverflowError) or "context length" in str(error):
        return "give it fewer passages, or a model with a longer context"
    if isinstance(error, ModelAuthenticationError):
        return "check its key"
    if isinstance(error, ModelRateLimitError):
        return f"wait, or give it retries (model.with_retry()); {GO_ON}"
    return GO_ON
