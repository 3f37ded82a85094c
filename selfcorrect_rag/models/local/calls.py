"""Calls that wait for a model, and the thread that decodes them together."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.engines.decoded import Decoded, Rules, prune


class Call:
    """What one caller asks for: prompts of token ids under the same rules."""

    def __init__(self, prompts: Sequence[list[int]], rules: Rules) -> None:
        self.rules = rules
        self.rows = [Row(self, prompt) for prompt in prompts]
        self.outputs: Future[list[Decoded]] = Future()
        """One for each prompt; cancel it where nobody waits any more."""
        self.unpruned = rules.prune_below is not None
        """Whether its rows are still to be pruned, which takes the first token of each."""

    @property
    def samples(self) -> bool:
        """Whether it draws its tokens, so that others in its batch would change them."""
        return self.rules.temperature > 0 or self.rules.seed is not None

    def advance(self) -> None:
        """Prune once all rows have begun, and give the outputs once none goes on."""
        outputs = [row.output for row in self.rows]
        if self.unpruned and all(output.tokens for output in outputs):
            assert self.rules.prune_below is not None
            going = [i for i, output in enumerate(outputs) if output.finish_reason == "length"]
            prune(going, outputs, self.rules.prune_below)
            self.unpruned = False
        if not self.unpruned and not any(row.going for row in self.rows):
            self._settle(lambda: self.outputs.set_result(outputs))

    def fail(self, error: BaseException) -> None:
        """Raise ``error`` where the caller waits; its rows go no further."""
        self._settle(lambda: self.outputs.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile, or failed as the LLM was closed
            settle()


class Row:
    """One prompt of a call, and what has become of it."""

    def __init__(self, call: Call, prompt: list[int]) -> None:
        self.call, self.prompt, self.output = call, prompt, Decoded()

    @property
    def ids(self) -> list[int]:
        """The prompt and what was generated."""
        return self.prompt + self.output.ids

    @property
    def going(self) -> bool:
        """Whether it wants another token."""
        return (
            self.output.finish_reason == "length"
            and self.output.tokens < self.call.rules.max_tokens
            and not self.call.outputs.done()
        )

    @property
    def ready(self) -> bool:
        """Whether it can have another token now, and does not wait for its call to be pruned."""
        return self.going and not (self.call.unpruned and self.output.tokens)


Decode = Callable[[Sequence[Row]], None]
"""Gives rows their tokens together, until none is ready any more."""


class Worker:
    """Decodes the calls of any thread and any event loop on one thread of its own.

    Calls that wait are decoded together, first come first, in batches of at most ``batch_tokens``
    padded tokens; what samples is decoded alone. Where a batch fails, each of its calls is tried
    alone, so that one call's failure is its own. The thread ends with this object, with
    :meth:`close` or with the interpreter; a forked child has another.
    """

    def __init__(self, make: Callable[[], Decode], batch_tokens: int) -> None:
        """Start with the first call.

        Args:
            make: what decodes; made and used on the worker's thread.
            batch_tokens: most padded prompt tokens of a batch; a longer prompt goes alone.
        """
        self._make, self._batch_tokens, self._closed = make, batch_tokens, False
        self.begin()
        _WORKERS.add(self)

    def begin(self) -> None:
        """Start anew, in a forked child too: it has neither the thread nor the others' calls."""
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[Call | None] = SimpleQueue()
        self._calls: weakref.WeakSet[Call] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        # The thread must not hold this object, or neither would ever end.
        weakref.finalize(self, self._waiting.put, None).atexit = False

    def submit(self, call: Call) -> None:
        """Have a call decoded.

        Raises:
            EngineFailed: this worker has been closed.
        """
        with self._lock:
            if self._closed:
                raise _has_closed()
            if self._thread is None:
                work = (self._make, self._batch_tokens, self._waiting)
                self._thread = threading.Thread(
                    target=_work, args=work, name="reflection-llm", daemon=True
                )
                _THREADS.add(self._thread)
                self._thread.start()
            self._calls.add(call)
            self._waiting.put(call)

    def close(self) -> None:
        """Fail what waits and what is running, and end the thread. May be repeated."""
        with self._lock:
            self._closed = True
            calls, thread = list(self._calls), self._thread
            self._waiting.put(None)
        for call in calls:
            call.fail(_has_closed())
        if thread is not None and thread is not threading.current_thread():
            thread.join()


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Of workers that are gone too: each ends after the batch that it is at."""


@atexit.register
def _close_all() -> None:
    """A thread that the interpreter stops in the middle of a forward pass can abort the process."""
    for worker in list(_WORKERS):
        worker.close()
    for thread in list(_THREADS):
        thread.join()


def _begin_all() -> None:
    for worker in list(_WORKERS):
        worker.begin()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_all)


def _has_closed() -> EngineFailed:
    return EngineFailed("this LLM has been closed: make a new one")


def _work(
    make: Callable[[], Decode], batch_tokens: int, waiting: "SimpleQueue[Call | None]"
) -> None:
    """Decode what comes until there comes a None."""
    decode: Decode | None = None
    rows: list[Row] = []
    while _take(waiting, rows):
        batch = _batch(rows, batch_tokens)
        try:
            decode = decode or make()
        except BaseException as error:
            for row in batch:
                row.call.fail(error)
        else:
            _attempt(decode, batch)
        rows = [row for row in rows if row.going]
        del batch  # which would keep the last calls for as long as none comes


def _take(waiting: "SimpleQueue[Call | None]", rows: list[Row]) -> bool:
    """Add the rows of what has come, or of what comes next; false where there is to be no more."""
    while not rows or not waiting.empty():
        call = waiting.get()
        if call is None:
            return False
        # Of like length together, should they not fit into one batch.
        rows += sorted(call.rows, key=lambda row: len(row.prompt))
    return True


def _batch(rows: Sequence[Row], batch_tokens: int) -> list[Row]:
    """Rows to decode together."""
    batch: list[Row] = []
    longest = 0
    for row in rows:
        if not row.ready:
            continue
        if batch and (row.call.samples or batch[0].call.samples) and row.call is not batch[0].call:
            continue
        longest = max(longest, len(row.ids))
        if batch and (len(batch) + 1) * longest > batch_tokens:
            break
        batch.append(row)
    return batch


def _attempt(decode: Decode, batch: Sequence[Row]) -> None:
    if not batch:
        return
    try:
        decode(batch)
        return
    except BaseException as error:  # whatever it is, callers are waiting for it
        calls = list(dict.fromkeys(row.call for row in batch))
        if len(calls) == 1:
            calls[0].fail(error)
            return
    for call in calls:  # no longer with the traceback, which holds all that the batch had in memory
        _attempt(decode, [row for row in batch if row.call is call and row.ready])
