"""Trains generators in turn, sharded over CPUs: ``accelerate launch`` starts this.

Accelerate shards on GPUs alone. It is told that these are some; the sharding is PyTorch's own, over
gloo. The first training is interrupted at its third step. The second process works in a folder of
its own, where it is seen what it writes to relative paths.
"""

import os
import sys
from pathlib import Path

import torch.distributed as dist
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from transformers import Trainer

from tests.training.test_generator import trained
from tests.training.toys import interrupted


def train(folder: Path) -> None:
    trained(folder, num_train_epochs=0.5, save_steps=2)


if __name__ == "__main__":
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    dist.init_process_group("gloo")
    backend = "gloo", DistributedType.MULTI_GPU
    PartialState._prepare_backend = lambda self, *_, **__: backend  # type: ignore[method-assign]
    killed, taken = interrupted(Trainer.training_step, 3)
    Trainer.training_step = killed  # type: ignore[method-assign]
    if dist.get_rank():
        os.chdir("rank1")
    for _ in range(2):
        try:
            train(Path(sys.argv[1]))
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    print(f"rank {dist.get_rank()} took {taken}", file=sys.stderr)
    dist.destroy_process_group()
