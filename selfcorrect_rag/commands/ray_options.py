"""The options of every command that can work on Ray: where, and with which actors."""

import argparse
import math

from selfcorrect_rag.serving.config import BadOption

_FOR_RAY = ("address", "actors", "gpus_per_actor")


def add_ray_options(parser: argparse.ArgumentParser, actors: str) -> None:
    """Add ``--on``, and what says which actors there are; ``actors`` is what they do."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--on",
        choices=["local", "ray"],
        default="local",
        help="In this process, or on Ray. Default: %(default)s.",
    )
    group.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="ray: the head of a cluster, or auto. Default: RAY_ADDRESS of the environment, else a "
        "Ray of this machine, which ends with the command.",
    )
    group.add_argument(
        "--actors", type=int, metavar="PROCESSES", help=f"ray: {actors}. Default: 1."
    )
    group.add_argument(
        "--gpus-per-actor",
        type=float,
        metavar="NUMBER",
        help="ray: GPUs of each, or a share of one. Default: 0.",
    )


def check_ray_options(args: argparse.Namespace, *more: str) -> None:
    """Fill in the defaults of the options that say which actors there are, if they go together.

    Args:
        args: the command line.
        more: names of other options that only Ray has a use for.

    Raises:
        BadOption: one is for Ray and the command is not, or a number is out of bounds.
    """
    for name in (*_FOR_RAY, *more):
        if args.on == "local" and getattr(args, name) is not None:
            raise BadOption(f"--{name.replace('_', '-')} is for --on ray")
    if args.actors is not None and args.actors < 1:
        raise BadOption(f"--actors {args.actors}: give 1 or more")
    if args.gpus_per_actor is not None and not 0 <= args.gpus_per_actor < math.inf:
        raise BadOption(f"--gpus-per-actor {args.gpus_per_actor}: give 0 or more")
    args.actors, args.gpus_per_actor = args.actors or 1, args.gpus_per_actor or 0.0
