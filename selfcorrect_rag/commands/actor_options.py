"""The options by which ``train`` has its models on Ray's actors rather than in this process."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.training_options import count
from selfcorrect_rag.serving.config import BadOption

if TYPE_CHECKING:
    from selfcorrect_rag.bulk.actors import Actors

CALLS = 8
"""Of an actor at a time, by default."""
_FOR_RAY = ("address", "actors", "gpus_per_actor")


def add_actor_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--on`` and what says which actors of Ray there are."""
    parser.add_argument(
        "--on",
        choices=["local", "ray"],
        default="local",
        help="where models run: in this process, or on actors of Ray; default: %(default)s",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="the head of Ray's cluster, or auto; default: RAY_ADDRESS, else this machine alone",
    )
    parser.add_argument(
        "--actors",
        type=count,
        metavar="PROCESSES",
        help="processes that hold the models; default: 1",
    )
    parser.add_argument(
        "--gpus-per-actor",
        type=_gpus,
        metavar="X",
        help="GPUs of each, or a share of one; default: 0, which is a CPU",
    )


def add_calls_of_actor(parser: argparse.ArgumentParser) -> None:
    """Add ``--batch-size`` of a command that only calls language models."""
    parser.add_argument(
        "--batch-size",
        type=count,
        metavar="CALLS",
        help=f"most calls of an actor at a time; default: {CALLS}",
    )


def check_actor_options(args: argparse.Namespace, *more: str) -> None:
    """Do nothing if the options go together.

    Args:
        args: the command line.
        more: names of other options that only actors have.

    Raises:
        BadOption: one is for actors, and there are none.
    """
    for name in (*_FOR_RAY, *more):
        if args.on == "local" and getattr(args, name) is not None:
            raise BadOption(f"--{name.replace('_', '-')} is for --on ray")


@contextmanager
def opened_actors(
    args: argparse.Namespace, parts: Mapping[str, Callable[[], Any]], calls: int
) -> Iterator["Actors"]:
    """Actors with these parts and as many calls at a time; see ``bulk.actors.on_actors``."""
    from selfcorrect_rag.bulk.actors import on_actors

    with on_actors(
        parts,
        address=args.address,
        actors=args.actors or 1,
        gpus_per_actor=args.gpus_per_actor or 0.0,
        calls=calls,
    ) as actors:
        yield actors


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


def _gpus(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of GPUs")
    return number
