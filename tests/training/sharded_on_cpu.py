"""Runs trainings in turn, sharded over CPUs: `accelerate launch` starts this as on several GPUs.

Accelerate shards on GPUs alone. It is told that these are some; the sharding is PyTorch's own, over
gloo. Each argument is a command of `selfcorrect-rag` in JSON. The second process works in a folder
of its own, `rank1`, where it is seen what it writes to relative paths.
"""

import json
import os
import sys
from typing import Any

import torch.distributed as dist
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import Trainer

from selfcorrect_rag.cli import main

STOPS_AT = 3
"""The step of the first training at which it is interrupted."""


def see_gpus() -> None:
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    dist.init_process_group("gloo")
    backend = "gloo", DistributedType.MULTI_GPU
    PartialState._prepare_backend = lambda self, *_, **__: backend  # type: ignore[method-assign]


def interrupt() -> None:
    step, taken = Trainer.training_step, []

    def stopped(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        taken.append(1)
        if len(taken) == STOPS_AT:
            Trainer.training_step = step  # type: ignore[method-assign]
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    Trainer.training_step = stopped  # type: ignore[method-assign]


if __name__ == "__main__":
    see_gpus()
    interrupt()
    if dist.get_rank():
        os.chdir("rank1")
    for command in map(json.loads, sys.argv[1:]):
        status = main(command)
        print(f"status {status} of rank {dist.get_rank()}", file=sys.stderr)
    dist.destroy_process_group()
