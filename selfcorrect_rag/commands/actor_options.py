"""The models of ``train`` here, or on Ray's actors."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.training_options import count

if TYPE_CHECKING:
    from selfcorrect_rag.bulk.actors import Actors

CALLS = 8
"""Of an actor at a time, by default."""


def add_calls_of_actor(parser: argparse.ArgumentParser) -> None:
    """Add ``--batch-size`` of a command that only calls language models."""
    parser.add_argument(
        "--batch-size",
        type=count,
        metavar="CALLS",
        help=f"most calls of an actor at a time; default: {CALLS}",
    )


def opened_actors(
    args: argparse.Namespace, parts: Mapping[str, Callable[[], Any]], calls: int
) -> AbstractContextManager["Actors"]:
    """Actors with these parts and as many calls at a time; see ``bulk.actors.on_actors``."""
    from selfcorrect_rag.bulk.actors import on_actors

    return on_actors(
        parts,
        address=args.address,
        actors=args.actors,
        gpus_per_actor=args.gpus_per_actor,
        calls=calls,
    )


@contextmanager
def opened_model(
    args: argparse.Namespace, make: Callable[[], Runnable[Any, Any]]
) -> Iterator[Runnable[Any, Any]]:
    """The language model that ``make`` makes, here or on actors."""
    if args.on == "local":
        yield make()
        return
    from selfcorrect_rag.bulk.actors import ActorRunnable

    with opened_actors(args, {"model": make}, args.batch_size or CALLS) as actors:
        yield ActorRunnable(actors, "model")
