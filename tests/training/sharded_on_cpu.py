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


def count_steps(taken: list[int]) -> None:
    """Add to ``taken`` at each step, and interrupt the first training."""
    step = Trainer.training_step

    def counted(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        taken.append(self.state.global_step)
        if len(taken) == STOPS_AT:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    Trainer.training_step = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    see_gpus()
    steps: list[int] = []
    count_steps(steps)
    if dist.get_rank():
        os.chdir("rank1")
    for command in map(json.loads, sys.argv[1:]):
        before, status = len(steps), main(command)
        print(f"rank {dist.get_rank()}: {status} after {steps[before:]}", file=sys.stderr)
    dist.destroy_process_group()
