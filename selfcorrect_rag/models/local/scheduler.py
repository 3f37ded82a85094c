"""Calls that wait for a model, and the thread that decodes them in common batches."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.engines.background import CLOSED
from selfcorrect_rag.models.engines.engine import Completion, Request


class ScheduledCall:
    """Prompts of token ids under one request, and the future of their completions."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        request: Request,
        *,
        end_ids: Collection[int],
        has_stopped: Callable[[Sequence[int]], bool] = lambda ids: False,
        on_token: Callable[[int], None] | None = None,
    ) -> None:
        """Nothing is decoded yet.

        Args:
            prompts: to continue.
            request: how.
            end_ids: ids that end a text.
            has_stopped: whether generated ids hold a stop string.
            on_token: called, on the scheduler's thread, with each id that ends no text.
        """
        self.request, self.on_token = request, on_token
        self.end_ids, self.has_stopped = frozenset(end_ids) | {*request.stop_ids}, has_stopped
        self.logprob_ids = frozenset(request.logprob_ids)
        self.temperature = float(request.sampling.get("temperature") or 0.0)
        self.seed: int | None = request.sampling.get("seed")
        self.rows = [Row(self, prompt) for prompt in prompts]
        self.completions: Future[list[Completion]] = Future()
        """One for each prompt; cancel it where nobody waits any more."""
        self.unpruned = request.keep is not None
        """Whether its rows are still to be pruned, which takes the first token of each."""

    @property
    def samples(self) -> bool:
        """Whether it draws its tokens, so that others in its batch would change them."""
        return self.temperature > 0 or self.seed is not None

    def advance(self) -> None:
        """Prune once all rows have begun, and give the completions once none goes on."""
        completions = [row.completion for row in self.rows]
        if self.unpruned and all(completion.ids for completion in completions):
            assert self.request.keep is not None
            kept = set(self.request.keep(completions))
            for i, completion in enumerate(completions):
                if i not in kept and completion.finish_reason == "length":
                    completion.finish_reason = "pruned"
            self.unpruned = False
        if not self.unpruned and not any(row.going for row in self.rows):
            self._settle(lambda: self.completions.set_result(completions))

    def fail(self, error: BaseException) -> None:
        """Raise ``error`` where the caller waits; its rows go no further."""
        self._settle(lambda: self.completions.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile, or failed as it was closed
            settle()


class Row:
    """One prompt of a call, with its generated tokens."""

    def __init__(self, call: ScheduledCall, prompt: Sequence[int]) -> None:
        self.call, self.prompt = call, list(prompt)
        self.generated: list[int] = []
        self.logprobs: list[dict[int, float]] = []
        self.completion = Completion(self.generated, self.logprobs, "length")

    @property
    def ids(self) -> list[int]:
        """The prompt and what was generated."""
        return self.prompt + self.generated

    @property
    def going(self) -> bool:
        """Whether it is unfinished."""
        return (
            self.completion.finish_reason == "length"
            and len(self.generated) < self.call.request.max_tokens
            and not self.call.completions.done()
        )

    @property
    def ready(self) -> bool:
        """Whether it can have another token now, and does not wait for its call to be pruned."""
        return self.going and not (self.call.unpruned and self.generated)

    def add(self, token_id: int, logprobs: dict[int, float]) -> None:
        """Take the next token."""
        self.generated.append(token_id)
        self.logprobs.append(logprobs)
        if token_id in self.call.end_ids:
            self.completion.finish_reason = "stop"
            return
        if self.call.on_token is not None:
            self.call.on_token(token_id)
        if self.call.has_stopped(self.generated):
            self.completion.finish_reason = "stop"


Decode = Callable[[Sequence[Row]], None]
"""Gives rows their tokens together, until none is ready any more."""


class Scheduler:
    """Decodes the calls of any thread on one thread of its own.

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
        _SCHEDULERS.add(self)

    def begin(self) -> None:
        """Start anew, in a forked child too: it has neither the thread nor the others' calls."""
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[ScheduledCall | None] = SimpleQueue()
        self._calls: weakref.WeakSet[ScheduledCall] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        # The thread must not hold this object, or neither would ever end.
        weakref.finalize(self, self._waiting.put, None).atexit = False

    def submit(self, call: ScheduledCall) -> None:
        """Have a call decoded.

        Raises:
            EngineFailed: it has been closed.
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


_SCHEDULERS: weakref.WeakSet[Scheduler] = weakref.WeakSet()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Worker threads, also of freed schedulers: each ends after its current batch."""


@atexit.register
def _close_all() -> None:
    """A thread that the interpreter stops in the middle of a forward pass can abort the process."""
    for scheduler in list(_SCHEDULERS):
        scheduler.close()
    for thread in list(_THREADS):
        thread.join()


def _begin_all() -> None:
    for scheduler in list(_SCHEDULERS):
        scheduler.begin()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_all)


def _has_closed() -> EngineFailed:
    return EngineFailed(CLOSED)


def _work(
    make: Callable[[], Decode], batch_tokens: int, waiting: "SimpleQueue[ScheduledCall | None]"
) -> None:
    """Decode incoming calls until a None."""
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


def _take(waiting: "SimpleQueue[ScheduledCall | None]", rows: list[Row]) -> bool:
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
