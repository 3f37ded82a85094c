"""The arithmetic of the nano trainings: bfloat16 only where the CPU has it, and Muon in it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from nano_training.optimizer import Muon, mixed, orthogonal, precision
from nano_training.t5_pretraining import Pretraining
from nano_training.tests.test_evaluator import TOY as TOY_T5
from nano_training.tests.test_trainer import TOY
from nano_training.train_by_rule import GeneratorBatches
from nano_training.trainer import Trainer
from selfcorrect_rag.nano import generator_path

Can = Callable[[str], None]


@pytest.fixture
def can(monkeypatch: pytest.MonkeyPatch) -> Iterator[Can]:
    """Let the CPU have one thing, beside AVX2."""

    def have(name: str) -> None:
        precision.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, name: True})

    yield have
    precision.cache_clear()


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "bf16"])
def test_bfloat16_where_the_cpu_has_it(can: Can, name: str) -> None:
    can(name)
    assert precision() == "bfloat16"
    with mixed():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_float32_where_it_would_be_imitated(can: Can) -> None:
    can("avx512_f")
    assert precision() == "float32"
    with mixed():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert orthogonal(torch.randn(8, 4)).dtype == torch.float32


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (32, 32)])
def test_singular_values_come_near_one(can: Can, shape: tuple[int, int]) -> None:
    can("avx512_f")
    torch.manual_seed(1)
    matrix = torch.randn(shape)
    made = orthogonal(matrix)
    values = torch.linalg.svdvals(made)
    assert values[:-2].min() > 0.6, values
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(made.flatten(), (left @ right).flatten(), 0) > 0.9


@pytest.mark.parametrize(("name", "tolerance"), [("avx512_bf16", 1e-6), ("avx512_f", 2e-3)])
def test_muon_is_torchs(can: Can, name: str, tolerance: float) -> None:
    can(name)
    torch.manual_seed(1)
    starts = [torch.randn(shape) for shape in ((24, 8), (8, 24), (16, 16))]
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    made = [
        Muon(ours, lr=0.02),
        torch.optim.Muon(
            theirs, lr=0.02, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
    ]
    for _ in range(4):
        gradients = [torch.randn_like(start) for start in starts]
        for optimiser, matrices in zip(made, (ours, theirs), strict=True):
            for matrix, gradient in zip(matrices, gradients, strict=True):
                matrix.grad = gradient
            optimiser.step()
    for one, other, start in zip(ours, theirs, starts, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)
        assert not torch.allclose(one, start, atol=0.01)


@pytest.mark.parametrize(
    "made",
    [
        lambda folder: Trainer(TOY, folder, data=GeneratorBatches),
        lambda folder: Pretraining(TOY_T5, folder, generator_path()),
    ],
)
def test_a_run_goes_on_only_in_its_own_arithmetic(
    can: Can, tmp_path: Path, made: Callable[[Path], Trainer | Pretraining]
) -> None:
    can("avx512_f")
    first = partial(made, tmp_path)
    list(first().run())
    first()
    can("avx512_bf16")
    with pytest.raises(SystemExit, match="of another precision"):
        first()
