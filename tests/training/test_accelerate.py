"""The configuration files in examples/accelerate, and a training that is sharded by one of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from safetensors.torch import load_file
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5ForConditionalGeneration,
)

from selfcorrect_rag.cli import main
from tests.test_docs import ROOT
from tests.tiny_evaluators import t5_config
from tests.training.test_batches import SIZES
from tests.training.test_critic import causal, toy_rows
from tests.training.test_generator import ROWS as GENERATOR_ROWS
from tests.training.toy_generator import toy

FILES = sorted((ROOT / "examples" / "accelerate").glob("*.yaml"))
MODELS: dict[str, tuple[Any, str]] = {
    "llama": (lambda: toy()[0], "LlamaDecoderLayer"),
    "mistral": (
        lambda: MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2)),
        "MistralDecoderLayer",
    ),
    "qwen2": (
        lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2)),
        "Qwen2DecoderLayer",
    ),
    "gpt-neox": (lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES)), "GPTNeoXLayer"),
    "t5": (lambda: T5ForConditionalGeneration(t5_config()), "T5Block"),
}


def launched(file: Path, *more: str) -> Any:
    """What ``accelerate launch`` makes of a configuration file, as it would start it."""
    given = ["--config_file", str(file), *more, "-m", "selfcorrect_rag.cli", "train", "generator"]
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(given))
    return args


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_accelerate_takes_each_file(file: Path) -> None:
    config = load_config_from_file(str(file))
    assert (config.num_machines, config.num_processes, config.mixed_precision) == (1, 4, "no")
    assert launched(file, "--num_processes", "8").num_processes == 8
    known = {action.dest for action in launch_command_parser()._actions}
    kinds = ("fsdp_config", "deepspeed_config")
    given = [name for kind in kinds for name in getattr(config, kind)]
    wrong = {name for name in given if not {name, f"deepspeed_{name}"} & known}
    assert not wrong, "accelerate reads no such fields"


def test_each_file_is_for_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    of_kind = {file.stem: load_config_from_file(str(file)).distributed_type for file in FILES}
    assert of_kind == {
        "copies": DistributedType.MULTI_GPU,
        "deepspeed_zero3": DistributedType.DEEPSPEED,
        "fsdp": DistributedType.FSDP,
    }
    fsdp, zero = (launched(FILES[i]) for i in (2, 1))
    assert fsdp.use_fsdp
    assert int(fsdp.fsdp_version) == 2
    assert zero.use_deepspeed
    assert int(zero.zero_stage) == 3
    assert str(zero.zero3_save_16bit_model).lower() == "true", "or no weights are gathered"


@pytest.mark.parametrize("kind", MODELS)
def test_each_layer_of_what_is_trained_is_a_shard(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_config_from_file(str(FILES[2])).fsdp_config["fsdp_auto_wrap_policy"]
    monkeypatch.setenv("FSDP_VERSION", "2")
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=policy)
    make, layer = MODELS[kind]
    model = make()
    plugin.set_auto_wrap_policy(model)
    assert plugin.auto_wrap_policy is not None
    wrapped = {
        type(module).__name__
        for module in model.modules()
        if plugin.auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=0)
    }
    assert layer in wrapped


def test_sharded_over_two_processes_is_as_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A generator, interrupted at its third step and gone on with, and a critic; see
    `sharded_on_cpu`."""
    monkeypatch.chdir(tmp_path)
    for name, (model, words) in {"decoder": toy(), "judge": causal()}.items():
        model.save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
    write("rows", [row._asdict() for row in GENERATOR_ROWS])
    write("labels", [{"key": str(i), **row._asdict()} for i, row in enumerate(toy_rows(60))])
    sharded = tmp_path / "generator"
    generator, critic = (
        trained("generator", "rows", "decoder"),
        trained("critic", "labels", "judge"),
    )
    generator += ["--held-out-ratio", "0.2", "--save-steps", "2", "--out"]
    runs = [[*generator, str(sharded)]] * 2 + [[*critic, "--out", "critic"]]
    Path("rank1").mkdir()
    launch = ["accelerate.commands.launch", "--config_file", str(FILES[2]), "--num_processes", "2"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            *launch,
            "-m",
            "tests.training.sharded_on_cpu",
            *map(json.dumps, runs),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for rank in (0, 1):
        assert f"rank {rank}: 130 after [0, 1, 2]" in run.stderr
        assert f"rank {rank}: 0 after [2, 3]" in run.stderr, "it went on from its checkpoint"
    assert run.stdout.count("the generator is in") == run.stdout.count("the critic is in") == 1
    shards = list(sharded.glob("checkpoints/checkpoint-2/pytorch_model_fsdp_0/*.distcp"))
    assert len(shards) == 2, "each process has its part of the weights"
    written = {path.name for path in Path("rank1").rglob("*") if path.is_file()}
    assert written == {"__1_0.distcp", "rng_state_1.pth"}, "its part of a checkpoint, and no more"

    assert main([*generator, "one"]) == 0
    assert main([*critic, "--out", "one_critic"]) == 0
    for folder, alone in (
        ("generator/generator", "one/generator"),
        ("critic/critic", "one_critic/critic"),
    ):
        found, expected = (load_file(Path(f) / "model.safetensors") for f in (folder, alone))
        assert found.keys() == expected.keys()
        assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in found)
    reports = [json.loads(Path(f, "report.json").read_text()) for f in ("generator", "one")]
    losses = [report["held_out"]["loss"] for report in reports]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert Path("critic/report.json").read_bytes() == Path("one_critic/report.json").read_bytes()


def trained(kind: str, rows: str, model: str) -> list[str]:
    files = [
        "--data",
        str(Path(f"{rows}.jsonl").absolute()),
        "--model",
        str(Path(model).absolute()),
    ]
    shape = ["--batch-size", "8", "--per-device-batch-size", "4", "--max-length", "160"]
    return ["train", kind, *files, *shape, "--learning-rate", "0.01", "--num-train-epochs", "0.5"]


def write(name: str, rows: list[dict[str, Any]]) -> None:
    Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
