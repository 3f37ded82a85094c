"""The files in examples/accelerate, and a training that is sharded by one of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

from tests.snippets import ROOT
from tests.training.sharded_on_cpu import train
from tests.training.toys import same, weights

FILES = {file.stem: file for file in (ROOT / "examples" / "accelerate").glob("*.yaml")}


def launched(name: str) -> Any:
    """Run a file by ``accelerate launch``."""
    given = ["--config_file", str(FILES[name]), "--num_processes", "8", "-m", "x"]
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(given))
    return args


def test_accelerate_takes_each_file() -> None:
    known = {action.dest for action in launch_command_parser()._actions}
    for name, file in FILES.items():
        config: Any = load_config_from_file(str(file))
        assert config.mixed_precision == "no"
        given = [*config.fsdp_config, *config.deepspeed_config]
        assert all({key, f"deepspeed_{key}"} & known for key in given), "fields that nobody reads"
        assert launched(name).num_processes == 8
    assert launched("fsdp").use_fsdp
    assert int(launched("fsdp").fsdp_version) == 2
    assert int(launched("deepspeed_zero3").zero_stage) == 3
    assert str(launched("deepspeed_zero3").zero3_save_16bit_model).lower() == "true"
    assert launched("copies").multi_gpu


@pytest.mark.slow
def test_sharded_over_two_processes_is_as_in_one(tmp_path: Path) -> None:
    """A generator, interrupted at its third step and resumed; see ``sharded_on_cpu``."""
    (tmp_path / "rank1").mkdir()
    config = ["--config_file", str(FILES["fsdp"]), "--num_processes", "2"]
    script = ["-m", "tests.training.sharded_on_cpu", str(tmp_path / "sharded")]
    run = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", *config, *script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for rank in (0, 1):
        assert f"rank {rank} took [0, 1, 2, 2, 3" in run.stderr, "it resumed from its checkpoint"
    shards = tmp_path.glob("sharded/out/checkpoints/checkpoint-2/pytorch_model_fsdp_0/*.distcp")
    assert len(list(shards)) == 2, "each process has its part of the weights"
    train(tmp_path / "one")
    found, expected = (weights(tmp_path / run / "out" / "generator") for run in ("sharded", "one"))
    assert same(found, expected, atol=1e-5)
