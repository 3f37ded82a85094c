"""Models and retrievers on Ray's actors: made there, from names, and asked from here."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag.bulk.ray_cluster import ray_cluster, refuse_without_gpus
from selfcorrect_rag.errors import EngineFailed, FailedOnActor, describe_error, safe_message
from selfcorrect_rag.models.critic import Answer, Critic, CriticInput

Part = TypeVar("Part")
Given = TypeVar("Given")
Made = TypeVar("Made")

RETRIES = 3
"""How often a call is made again whose actor was lost, with its process or its machine."""
AHEAD = 2
"""Batches that are on their way to each actor, so that none waits for its next one."""


@contextmanager
def on_actors(
    parts: Mapping[str, Callable[[], Any]],
    *,
    address: str | None = None,
    actors: int = 1,
    gpus_per_actor: float = 0.0,
    calls: int = 8,
) -> Iterator["Actors"]:
    """Actors that each hold all ``parts``; the block begins when the first of them is ready.

    Args:
        parts: what makes each part, by name. It is called on the actor, in a folder that has the
            name of the current one here, so give a function that can be imported there, with names
            as its arguments: ``partial(find_language_model, "openai:gpt-4o-mini")``.
        address: see :func:`~.ray_cluster.ray_cluster`.
        actors: how many.
        gpus_per_actor: GPUs of each, or a share of one; an actor with 0 sees none.
        calls: most calls of an actor at a time, in threads; 1 for a part that is not thread-safe.

    Raises:
        NoCluster: no Ray answers, or its machines have too few GPUs for all actors.
        FailedOnActor: the first actor cannot make a part.
        MissingExtra: Ray is not installed.
    """
    with ray_cluster(address) as ray:
        made = Actors(ray, parts, actors, gpus_per_actor, calls)
        try:
            made.wait()
            yield made
        finally:
            made.close()


class Actors:
    """Actors that hold the same parts; each call goes to the one with the fewest. Thread-safe.

    An actor that is lost is made anew, and its calls are made again, each at most :data:`RETRIES`
    times. One that cannot make its parts when others have is left out, with a warning.
    """

    def __init__(
        self,
        ray: Any,
        parts: Mapping[str, Callable[[], Any]],
        actors: int,
        gpus_per_actor: float,
        calls: int,
    ) -> None:
        """Ask ``ray`` for actors; see :func:`on_actors`, which waits for them and ends them."""
        refuse_without_gpus(ray, gpus_per_actor, actors)
        worker = ray.remote(_Worker).options(
            num_gpus=gpus_per_actor,
            max_restarts=-1,
            max_task_retries=RETRIES,
            max_concurrency=calls,
        )
        self._ray, self._lock = ray, threading.Lock()
        self._actors = [worker.remote(dict(parts), os.getcwd()) for _ in range(actors)]
        self._opening = {actor.open.remote(): i for i, actor in enumerate(self._actors)}
        self._calls: dict[int, int] = {}
        """By number of an actor that is open: how many it has."""

    def __len__(self) -> int:
        return len(self._actors)

    def wait(self) -> None:
        """Return when an actor is open.

        Raises:
            FailedOnActor: one cannot make its parts.
        """
        while not self._calls:
            opened, _ = self._ray.wait(list(self._opening))
            if reason := self._admit(opened[0]):
                raise FailedOnActor(reason)

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors:
            with suppress(Exception):  # the cluster itself may be gone
                self._ray.kill(actor)

    def ask(self, part: str, function: Callable[[Part, Given], Made], given: Given) -> Made:
        """What ``function``, one that an actor can import, makes of its part and ``given``.

        Raises:
            FailedOnActor: it raised.
            EngineFailed: actors were lost too often on it.
        """
        with self._one() as actor:
            made: Made = _outcome(self._ray.get(actor.call.remote(part, function, given)))
        return made

    async def aask(self, part: str, function: Callable[[Part, Given], Made], given: Given) -> Made:
        """The async twin of :meth:`ask`."""
        with self._one() as actor:
            future = actor.call.remote(part, function, given).future()
            made: Made = _outcome(await asyncio.wrap_future(future))
        return made

    @contextmanager
    def _one(self) -> Iterator[Any]:
        with self._lock:
            if self._opening:
                self._look()
            number = min(self._calls, key=self._calls.__getitem__)
            self._calls[number] += 1
        try:
            yield self._actors[number]
        except self._ray.exceptions.RayActorError as error:
            raise EngineFailed(
                f"actors were lost {RETRIES + 1} times in one call ({_last_line(error)})"
            ) from error
        finally:
            with self._lock:
                self._calls[number] -= 1

    def _look(self) -> None:
        opened, _ = self._ray.wait(list(self._opening), num_returns=len(self._opening), timeout=0)
        for ref in opened:
            if reason := self._admit(ref):
                _LOG.warning("an actor is left out: %s", reason)

    def _admit(self, opened: Any) -> str:
        """Take in an actor that has opened its parts, or say why it has not."""
        number = self._opening.pop(opened)
        try:
            if reason := self._ray.get(opened):
                return str(reason)
        except self._ray.exceptions.RayActorError as error:
            return f"an actor was lost while it opened its parts ({_last_line(error)})"
        self._calls[number] = 0
        return ""


_LOG = logging.getLogger(__name__)


class _Worker:
    """What runs on an actor."""

    def __init__(self, parts: Mapping[str, Callable[[], Any]], folder: str) -> None:
        if os.path.isdir(folder):  # of this name here too: for relative paths, and for imports
            os.chdir(folder)
        self._parts, self._made, self._lock = parts, dict[str, Any](), threading.Lock()

    def open(self) -> str:
        """Make all parts; why one cannot be made, else empty."""
        for name in self._parts:
            try:
                self._part(name)
            except Exception as error:
                return f"the {name} cannot be opened on an actor: {describe_error(error)}"
        return ""

    def call(
        self, name: str, function: Callable[[Any, Any], Any], given: Any
    ) -> tuple[Any, str | None]:
        try:
            return function(self._part(name), given), None
        except Exception as error:  # many cannot be pickled
            return None, describe_error(error)

    def _part(self, name: str) -> Any:
        with self._lock:  # an actor that is made anew opens its parts at its first call
            if name not in self._made:
                self._made[name] = self._parts[name]()
            return self._made[name]


def _outcome(made: tuple[Any, str | None]) -> Any:
    value, error = made
    if error is not None:
        raise FailedOnActor(error)
    return value


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return safe_message(lines[-1]) if lines else type(error).__name__


class ActorRunnable(Runnable[Any, Any]):
    """A model or a retriever that actors hold, as any Runnable."""

    def __init__(self, actors: Actors, part: str) -> None:
        self._actors, self._part = actors, part

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._actors.ask(self._part, _invoked, input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return await self._actors.aask(self._part, _invoked, input)


def _invoked(runnable: Runnable[Any, Any], given: Any) -> Any:
    return runnable.invoke(given)


class ActorCritic(Critic):
    """A fine-tuned critic that actors hold; its tokenizer is there too.

    Its batches are those of the critic itself, so its answers are too.
    """

    def __init__(self, actors: Actors, part: str) -> None:
        self._actors, self._part = actors, part

    def answers(self, inputs: Sequence[CriticInput]) -> Iterator[dict[int, Answer]]:
        """The answers of one batch after another, as they come.

        Raises:
            FailedOnActor, EngineFailed: see :meth:`Actors.ask`.
        """
        with ContextThreadPoolExecutor(max_workers=AHEAD * len(self._actors)) as pool:
            batches = {
                pool.submit(
                    self._actors.ask, self._part, _answered, [inputs[i] for i in batch]
                ): batch
                for batch in self.batches(inputs)
            }
            try:
                for answered in as_completed(batches):
                    yield dict(zip(batches[answered], answered.result(), strict=True))
            finally:
                for waiting in batches:
                    waiting.cancel()

    def batches(self, inputs: Sequence[CriticInput]) -> list[list[int]]:
        return self._actors.ask(self._part, _batched, list(inputs)) if inputs else []


def _batched(critic: Critic, inputs: Sequence[CriticInput]) -> list[list[int]]:
    return critic.batches(inputs)


def _answered(critic: Critic, inputs: Sequence[CriticInput]) -> list[Answer]:
    answers = {i: answer for batch in critic.answers(inputs) for i, answer in batch.items()}
    return [answers[i] for i in range(len(inputs))]
