"""Models, evaluators and searches that variants of a run share: an equal call is made once."""

import asyncio
import copy
import pickle
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.base import RunnableBindingBase

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.chat_evaluator import ChatEvaluator
from selfcorrect_rag.models.identity import identity_of_object, joined
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, agrade
from selfcorrect_rag.nodes.node import usage_of
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.search import WebSearch

MOST_BYTES = 2**28
Asking = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""From items to an answer for each."""
_METHODS = (
    (BaseLLM, "_agenerate"),
    (BaseChatModel, "_agenerate"),
    (BaseRetriever, "_aget_relevant_documents"),
    (WebSearch, "asearch"),
)
"""The method by which each kind of part answers async calls."""


class Saved:
    """What a run was given from memory, and would otherwise have asked for."""

    def __init__(self) -> None:
        self.calls = self.tokens = 0
        self.seconds = 0.0
        """What the remembered calls took, less what was waited for them."""


_SAVED: ContextVar[Saved | None] = ContextVar("saved", default=None)


@contextmanager
def saving() -> Iterator[Saved]:
    """Count what calls within are given from memory."""
    token = _SAVED.set(saved := Saved())
    try:
        yield saved
    finally:
        _SAVED.reset(token)


class _Result(NamedTuple):
    read: Callable[[], Any]
    """A copy of the answer, for callers may change theirs."""
    bytes: int | None
    """Size of the answer; None where it cannot be kept."""
    seconds: float
    """Of the call that it is from."""


class Memory:
    """Answers of parts to equal calls: what was asked, or is being asked, is asked once.

    All that wait for a call get its error, which is not kept. A caller that is cancelled leaves the
    call to the others. Async calls alone are remembered. Of a model that samples, all callers get
    the same draw.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """Keep up to ``most_bytes`` of pickled answers; the least recently used go first."""
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[str, _Result] = OrderedDict()
        self._in_flight: dict[str, asyncio.Task[dict[str, _Result]]] = {}

    def of(self, part: Any) -> Any:
        """A copy of the part that asks nothing twice.

        Prompts of a ReflectionLLM and passages of an evaluator are remembered one by one where they
        are independent of their batch, else the batch. Chat models and LLMs, bound ones too,
        retrievers and web searches are remembered call by call. Anything else is given back.
        """
        if isinstance(part, RunnableBindingBase):
            return part.model_copy(update={"bound": self.of(part.bound)})
        made = copy.copy(part)
        if isinstance(part, ChatEvaluator):  # callbacks of its model count its calls
            made.llm = self.of(part.llm)
        elif isinstance(part, RetrievalEvaluator):
            made.__dict__["ascore"] = self._scores(part)
        elif isinstance(part, ReflectionLLM):
            made.__dict__["_asegments"] = self._segments(part)
        else:
            methods = [method for kind, method in _METHODS if isinstance(part, kind)]
            if not methods:
                return part
            made.__dict__[methods[0]] = self._whole(part, getattr(part, methods[0]))
        return made

    def _whole(self, part: object, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        own = identity_of_object(part)

        async def asked(*given: Any, run_manager: Any = None, **options: Any) -> Any:
            manager = {} if run_manager is None else {"run_manager": run_manager}

            async def once(items: Sequence[Any]) -> list[Any]:
                return [await ask(*given, **manager, **options) for _ in items]

            (found,), mine = await self.ask([own, options], [given], once)
            if not mine and isinstance(part, BaseChatModel | BaseLLM):
                _save(*_model_cost(found))
            return found

        return asked

    def _segments(self, llm: ReflectionLLM) -> Callable[..., Any]:
        own, ask = identity_of_object(llm), llm._asegments

        async def asked(prompts: Sequence[Any], **options: Any) -> list[Any]:
            apart = llm.is_independent(options.get("prune_below"))
            segments, mine = await self.ask(
                [own, options], prompts, lambda some: ask(some, **options), apart=apart
            )
            whole = _segments_cost(segments)
            new = _segments_cost([segments[i] for i in mine])
            _save(whole[0] - new[0], whole[1] - new[1])
            return segments

        return asked

    def _scores(self, evaluator: RetrievalEvaluator) -> Callable[..., Any]:
        own = identity_of_object(evaluator)

        async def asked(question: str, passages: Sequence[str]) -> list[float]:
            apart = evaluator.is_independent
            scores, mine = await self.ask(
                [own, question], passages, partial(agrade, evaluator, question), apart=apart
            )
            calls = evaluator.model_calls
            _save(calls(passages) - calls([passages[i] for i in mine]), 0)
            return scores

        return asked

    async def ask(
        self, about: object, items: Sequence[Any], asking: Asking, *, apart: bool = True
    ) -> tuple[list[Any], list[int]]:
        """The answer to each item, and the indices of those that were asked about now.

        Args:
            about: what else the answers depend on, such as the model and its options.
            items: to be answered; equal ones are by their ``repr``.
            asking: asks about some of the items, or all.
            apart: whether an answer depends on no other item.
        """
        started = time.perf_counter()
        keys = [
            joined(about, _plain(item if apart else [*items, i])) for i, item in enumerate(items)
        ]
        places = {key: i for i, key in reversed(list(enumerate(keys)))}
        new = [key for key in places if key not in self._kept and key not in self._in_flight]
        new = list(places) if new and not apart else new
        mine = sorted(places[key] for key in new)
        if mine:
            some = [items[i] for i in mine]
            task = asyncio.create_task(self._make([keys[i] for i in mine], some, asking))
            task.add_done_callback(_heard)
            self._in_flight.update(dict.fromkeys(new, task))
        found = {key: self._recalled(key) for key in places if key not in self._in_flight}
        for task in dict.fromkeys(self._in_flight[key] for key in places if key not in found):
            found.update(await asyncio.shield(task))
        if saved := _SAVED.get():
            longest = max((found[key].seconds for key in keys), default=0.0)
            saved.seconds += max(0.0, longest - (time.perf_counter() - started))
        return [found[key].read() for key in keys], mine

    async def _make(
        self, keys: Sequence[str], items: Sequence[Any], asking: Asking
    ) -> dict[str, _Result]:
        started = time.perf_counter()
        try:
            answers = await asking(items)
            seconds = time.perf_counter() - started
            made = {key: _result(a, seconds) for key, a in zip(keys, answers, strict=True)}
            for key, result in made.items():
                self._keep(key, result)
            return made
        finally:
            for key in keys:
                self._in_flight.pop(key, None)

    def _recalled(self, key: str) -> _Result:
        self._kept.move_to_end(key)
        return self._kept[key]

    def _keep(self, key: str, result: _Result) -> None:
        if result.bytes is None:
            return
        if key in self._kept:
            self._bytes -= self._kept.pop(key).bytes or 0
        self._kept[key], self._bytes = result, self._bytes + result.bytes
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1].bytes or 0


def _result(answer: Any, seconds: float) -> _Result:
    try:
        pickled = pickle.dumps(answer)
    except Exception:  # of any class; those that wait for it share it
        return _Result(lambda: answer, None, seconds)
    return _Result(partial(pickle.loads, pickled), len(pickled), seconds)


def _heard(task: asyncio.Task[Any]) -> None:
    """Take its error, which nobody may be waiting for."""
    if not task.cancelled():
        task.exception()


def _plain(value: Any) -> Any:
    """What an answer depends on: prompts by their parts, messages without their ids."""
    if isinstance(value, Prompt):
        return value.parts
    if isinstance(value, BaseMessage):
        return value.model_dump(exclude={"id"})
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _save(calls: int, tokens: int) -> None:
    if saved := _SAVED.get():
        saved.calls, saved.tokens = saved.calls + calls, saved.tokens + tokens


def _segments_cost(segments: Sequence[Any]) -> tuple[int, int]:
    """Calls and tokens of one batch."""
    calls = max(bool(segments), sum(segment["requests"] for segment in segments))
    return calls, sum(segment["prompt_tokens"] + segment["tokens"] for segment in segments)


def _model_cost(result: Any) -> tuple[int, int]:
    """Calls and tokens of a chat model's result, or an LLM's."""
    nested = [g if isinstance(g, list) else [g] for g in result.generations]
    calls, *tokens = usage_of(LLMResult(generations=nested, llm_output=result.llm_output))
    return calls, sum(number or 0 for number in tokens)
