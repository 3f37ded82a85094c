"""Muon, and the precision in which the nano models are trained.

A CPU that has bfloat16 is several times as fast in it as in float32, and one that imitates it some
25 times slower.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Literal

import torch

from selfcorrect_rag.reader.network import fastest_dtype

MOMENTUM, WEIGHT_DECAY = 0.95, 0.05


@lru_cache(maxsize=1)
def precision() -> Literal["bfloat16", "float32"]:
    """The dtype of training on this CPU; a checkpoint of another cannot be resumed."""
    return "bfloat16" if fastest_dtype() == torch.bfloat16 else "float32"


def mixed() -> AbstractContextManager[Any]:
    """Autocast where ``precision`` is bfloat16."""
    return torch.autocast("cpu", torch.bfloat16, enabled=precision() == "bfloat16")


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): momentum, made orthogonal, with Nesterov's step; for matrices.

    As ``torch.optim.Muon`` with ``adjust_lr_fn="match_rms_adamw"``, which iterates in bfloat16 on
    every machine: three quarters of a step where that is imitated. Here it is in ``precision``.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(matrix)
                mean = state["mean"]
                mean.lerp_(matrix.grad, 1 - MOMENTUM)
                update = orthogonal(matrix.grad.lerp(mean, MOMENTUM))
                matrix.mul_(1 - group["lr"] * WEIGHT_DECAY)
                # As long as AdamW's update on average: Liu et al. 2025, section 2.2.
                matrix.add_(update, alpha=-0.2 * max(matrix.shape) ** 0.5 * group["lr"])


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Near to the closest matrix with orthogonal rows or columns, by five steps of Newton and
    Schulz's iteration with Muon's coefficients: singular values come to between 0.7 and 1.2."""
    tall = matrix.shape[0] > matrix.shape[1]
    found = (matrix.T if tall else matrix).to(getattr(torch, precision()))
    found = found / found.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = found @ found.T
        gram = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        found = torch.addmm(found, gram, found, beta=3.4445)
    return (found.T if tall else found).to(matrix.dtype)
