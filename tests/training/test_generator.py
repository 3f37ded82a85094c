"""Fine-tuning the generator at toy size: it learns, reports and answers."""

import dataclasses
import json
import os
import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from peft import PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
)

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.errors import BadRun, BadTrainingData, ModelNotFound
from selfcorrect_rag.old_journal import only_run
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.causal_lm import TokenPrediction, is_held_out
from selfcorrect_rag.training.fine_tuning import RunOptions
from selfcorrect_rag.training.generator import (
    PRESETS,
    GeneratorSettings,
    add_control_tokens,
    generator_examples,
    held_out_report,
    train_generator,
)
from selfcorrect_rag.training.generator_rows import read_generator_rows
from tests.conftest import byte_level_tokenizer
from tests.tiny_evaluators import t5, t5_tokenizer
from tests.training.test_generator_examples import REAL, real
from tests.training.toy_generator import rows, toy

TOY = GeneratorSettings(
    model="toy",
    num_train_epochs=12,
    learning_rate=1e-2,
    batch_size=8,
    per_device_batch_size=4,
    max_length=160,
    held_out_ratio=0.2,
    seed=1,
)
ROWS = rows(60)


def trained(out: Path, base: tuple[Any, Any], **changes: Any) -> dict[str, Any]:
    return train_generator(ROWS, out, dataclasses.replace(TOY, **changes), base=base)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **close: float) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[key], other[key], **close)
        if close
        else torch.equal(one[key], other[key])
        for key in one
    )


def test_it_learns_reports_and_answers(tmp_path: Path) -> None:
    report = trained(tmp_path, toy())
    assert json.loads((tmp_path / "report.json").read_text()) == report
    held_out = sum(is_held_out(row.question, 0.2) for row in ROWS)
    counts = {"train": 60 - held_out, "held_out": held_out, "shortened": 0, "left_out": 0}
    assert report["rows"] == counts
    assert report["tokens"]["added"] == 15
    assert 0 < report["tokens"]["learned"] < report["tokens"]["read"]
    found = report["held_out"]
    assert found["tokens"]["end"] == held_out
    assert found["loss"]["ISUSE"] < 1
    assert found["loss"]["end"] < 1, "the end is learned"
    assert found["accuracy"]["Retrieve"] > 0.9 > found["base_rate"]["Retrieve"]
    llm = TransformersReflectionLLM.from_pretrained(tmp_path / "generator", device="cpu")
    graph = create_self_rag(llm, lambda query: [Document("p 4"), Document("q 5")])
    result = graph.invoke({"question": "Who 4?"})
    assert result["retrieval"]["retrieve"]
    assert "yes" in result["answer"]
    assert all(candidate["critique"]["ISREL"] is not None for candidate in result["candidates"])
    assert not graph.invoke({"question": "Do 9?"})["retrieval"]["retrieve"]


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_keeps_the_new_tokens(tmp_path: Path, tied: bool) -> None:
    """Official defect: with LoRA, the new tokens are neither trained nor saved."""
    report = trained(tmp_path, toy(tied=tied), lora_rank=8, learning_rate=4e-2, num_train_epochs=6)
    losses = report["held_out"]["loss"]
    assert max(losses[kind] for kind in ("Retrieve", "ISREL", "ISUSE")) < 2.5 < log(15)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "generator")
    assert merged.config.tie_word_embeddings == tied
    base, words = toy(tied=tied)
    add_control_tokens(base, words)
    begun = base.get_input_embeddings().weight.detach().clone()
    beside = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = torch.tensor([list(range(len(words)))])
    with torch.no_grad():
        assert torch.allclose(beside(ids).logits, merged(ids).logits, atol=1e-3)
    new = words.convert_tokens_to_ids(list(CONTROL_TOKENS))
    for end in (merged.get_input_embeddings(), merged.get_output_embeddings()):
        assert len(end.weight[new].unique(dim=0)) > 8, "all fifteen began alike"
    now = merged.get_input_embeddings().weight
    assert torch.equal(now[: new[0]], begun[: new[0]]), "and only these rows were trained"


def test_the_base_of_a_generator_may_be_one(tmp_path: Path) -> None:
    settings = dataclasses.replace(
        PRESETS["nano"],
        model=str(generator_path()),
        num_train_epochs=1,
        held_out_ratio=0.2,
        precision="float32",
    )
    begun = AutoModelForCausalLM.from_pretrained(generator_path(), dtype="float32")
    report = train_generator(ROWS, tmp_path, settings)
    assert report["tokens"]["added"] == 0
    now = weights(tmp_path / "generator")
    assert len(now["model.embed_tokens.weight"]) == len(begun.get_input_embeddings().weight)
    assert ControlledTokenizer(AutoTokenizer.from_pretrained(tmp_path / "generator")).control_ids


def test_in_bfloat16_the_result_says_so(tmp_path: Path) -> None:
    trained(tmp_path, toy(), precision="bfloat16", num_train_epochs=0.5)
    config = json.loads((tmp_path / "generator" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert config["use_cache"] is True
    assert all(w.dtype == torch.bfloat16 for w in weights(tmp_path / "generator").values())


def test_packing_and_memory_do_not_change_the_result(tmp_path: Path) -> None:
    for name, packing, checkpointing in (
        ("a", True, False),
        ("b", False, False),
        ("c", True, True),
    ):
        settings = dataclasses.replace(TOY, packing=packing, num_train_epochs=1)
        running = RunOptions(gradient_checkpointing=checkpointing)
        train_generator(ROWS, tmp_path / name, settings, running, base=toy())
    a, b, c = (weights(tmp_path / name / "generator") for name in "abc")
    assert same(a, b, atol=1e-3)
    assert same(a, c, atol=1e-3)


# A kill, and several processes


def command(folder: Path, out: str, *options: str) -> list[str]:
    """Train on what `files` wrote, by the command line."""
    files = ["--data", str(folder / "rows.jsonl"), "--model", str(folder / "base")]
    shape = [
        "--batch-size",
        "8",
        "--per-device-batch-size",
        "4",
        "--max-length",
        "160",
        "--learning-rate",
        "0.01",
    ]
    told = ["train", "generator", *files, "--out", str(folder / out), *shape, *options]
    return ["-m", "selfcorrect_rag.cli", *told]


def files(folder: Path) -> dict[str, str]:
    model, words = toy()
    model.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    lines = [json.dumps(row._asdict()) for row in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}


def test_a_killed_adapter_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, often = (
        dataclasses.replace(TOY, lora_rank=4, num_train_epochs=2),
        RunOptions(save_steps=4),
    )
    train_generator(ROWS, tmp_path / "whole", settings, often, base=toy())
    step, taken = Trainer.training_step, []

    def killed(self: Trainer, *args: object, **kwargs: object) -> torch.Tensor:
        taken.append(1)
        if len(taken) == 19:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "training_step", killed)
        with pytest.raises(KeyboardInterrupt):
            train_generator(ROWS, tmp_path / "cut", settings, often, base=toy())
    train_generator(ROWS, tmp_path / "cut", settings, often, base=toy())
    assert same(weights(tmp_path / "cut" / "generator"), weights(tmp_path / "whole" / "generator"))


def test_two_processes_take_the_same_steps_as_one(tmp_path: Path) -> None:
    environment = files(tmp_path)
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    machines = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    options = ("--num-train-epochs", "0.5", "--held-out-ratio", "0.2")
    run = subprocess.run(
        [sys.executable, *launch, *machines, *command(tmp_path, "two", *options)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("the generator is in") == 1
    settings = dataclasses.replace(TOY, model=str(tmp_path / "base"), num_train_epochs=0.5, seed=0)
    report = train_generator(
        read_generator_rows(tmp_path / "rows.jsonl"), tmp_path / "one", settings
    )
    of_two = json.loads((tmp_path / "two" / "report.json").read_text())
    assert of_two["rows"] == report["rows"]
    assert of_two["held_out"]["tokens"] == report["held_out"]["tokens"]
    one, two = (weights(tmp_path / name / "generator") for name in ("one", "two"))
    assert same(one, two, atol=1e-3)
    assert not same(one, weights(tmp_path / "base"))


def test_rows_fit_a_model_of_few_positions(tmp_path: Path) -> None:
    words = byte_level_tokenizer()
    ends = {"bos_token_id": 1, "eos_token_id": words.eos_token_id}
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 48, **ends}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **sizes))
    report = trained(tmp_path, (model, words), num_train_epochs=0.5)
    assert report["rows"]["shortened"] + report["rows"]["left_out"]


# What cannot be, and what is said


def test_what_cannot_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, reason in (
        ({"num_train_epochs": 0}, "num_train_epochs 0: it must be above 0"),
        ({"learning_rate": -1e-3}, "learning_rate -0.001: it must be above 0"),
        ({"warmup_ratio": 3}, "warmup_ratio 3: it must be a share of the steps"),
        ({"max_length": 0}, "max_length 0: it must be above 0"),
        ({"lora_rank": -4}, "lora_rank -4: it must be 0 or a rank"),
        ({"seed": -1}, "seed -1: it must be from 0"),
        ({"per_device_batch_size": 3}, "batch_size 8 is no multiple of 3"),
        ({"max_length": 20}, "no row of the 60 is left"),
    ):
        with pytest.raises(BadTrainingData, match=reason):
            trained(tmp_path, toy(), **changes)
    with pytest.raises(BadTrainingData, match="has an encoder"):
        trained(tmp_path, (t5(), t5_tokenizer()))
    with pytest.raises(BadTrainingData, match="names no model"):
        train_generator(ROWS, tmp_path, PRESETS["nano"])
    with pytest.raises(ModelNotFound, match="missing"):
        train_generator(ROWS, tmp_path, dataclasses.replace(TOY, model=str(tmp_path / "missing")))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(BadTrainingData, match="launch without FSDP"):
        trained(tmp_path, toy(), lora_rank=4)
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(BadTrainingData, match="is a file"):
        trained(tmp_path / "file", toy())
    plain = [row._replace(output="She did.") for row in ROWS]
    with pytest.raises(BadTrainingData, match="no output has a reflection token"):
        train_generator(plain, tmp_path, TOY, base=toy())


def test_a_run_goes_on_with_its_own_settings_and_rows_alone(tmp_path: Path) -> None:
    with pytest.raises(BadTrainingData, match="no row of the 60 is left"):
        trained(tmp_path, toy(), max_length=20)
    short = dataclasses.replace(TOY, num_train_epochs=0.2)
    train_generator(ROWS, tmp_path, short, base=toy())  # a mended command is not refused
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        train_generator(ROWS, tmp_path, dataclasses.replace(short, seed=7), base=toy())
    with pytest.raises(BadRun, match=r"other settings \(data\)"):
        train_generator(ROWS[1:], tmp_path, short, base=toy())
    busy = tmp_path / "busy"
    with only_run(busy), pytest.raises(BadRun, match="another run works in"):
        train_generator(ROWS, busy, short, base=toy())
    assert not (busy / "settings.json").exists(), "the other run's stay"
    train_generator(ROWS, tmp_path, short, base=toy())


def test_the_batch_is_over_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(BadTrainingData, match="no multiple of 4 in each of 3 processes"):
        trained(tmp_path, toy())


def test_presets_are_the_papers() -> None:
    seven, thirteen, eight = (PRESETS[name] for name in ("7b", "13b", "8b"))
    for preset in (seven, thirteen):
        assert (preset.num_train_epochs, preset.batch_size, preset.learning_rate) == (3, 128, 2e-5)
        assert (preset.warmup_ratio, preset.lr_scheduler_type) == (0.03, "linear")
    assert (seven.max_length, thirteen.max_length) == (2048, 1524)
    assert (eight.num_train_epochs, eight.batch_size, eight.learning_rate, eight.max_length) == (
        1,
        128,
        1e-5,
        4096,
    )
    assert (eight.warmup_ratio, eight.lr_scheduler_type) == (0.03, "cosine")


def test_the_report_by_hand() -> None:
    tokenizer = ControlledTokenizer(byte_level_tokenizer())
    ids = tokenizer.control_ids
    yes, no = ids["[Relevant]"], ids["[Irrelevant]"]
    read = [
        TokenPrediction(5, 2.0, -1),
        TokenPrediction(6, 4.0, -1),
        TokenPrediction(tokenizer.eos_id or 0, 1.0, -1),
    ]
    read += [
        TokenPrediction(yes, 0.5, yes),
        TokenPrediction(yes, 1.5, no),
        TokenPrediction(no, 1.0, no),
    ]
    read += [TokenPrediction(ids["<paragraph>"], 0.25, -1)]
    found = held_out_report(read, tokenizer)
    assert found["tokens"] == {
        "text": 2, "Retrieve": 0, "ISREL": 3, "ISSUP": 0, "ISUSE": 0, "paragraph": 1, "end": 1
    }  # fmt: skip
    assert found["loss"]["text"] == 3.0
    assert found["loss"]["ISREL"] == 1.0
    assert found["loss"]["ISSUP"] is None
    assert found["accuracy"]["ISREL"] == found["base_rate"]["ISREL"] == pytest.approx(2 / 3)
    assert found["confusion"]["ISREL"]["[Relevant]"] == {"[Relevant]": 1, "[Irrelevant]": 1}


def test_trackers_get_settings_and_losses_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils

    told: list[str] = []

    class Recorder(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            told.append(args.to_json_string() + json.dumps(kwargs["model"].config.to_dict()))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            told.append(json.dumps(logs))

    monkeypatch.setenv("MY_API_KEY", "sesame-4711")
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "recorder", Recorder)
    settings = dataclasses.replace(TOY, num_train_epochs=0.5)
    train_generator(ROWS, tmp_path, settings, RunOptions(report_to=("recorder",)), base=toy())
    assert "learning_rate" in told[0]
    assert any("loss" in line for line in told[1:])
    assert not any("sesame" in line for line in told)
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"sesame" in content for content in written)
    assert RunOptions().report_to == ()


@real
def test_loss_falls_on_the_real_rows(tmp_path: Path) -> None:
    """Fewer than 10,001 rows, of which the official script shows the last."""
    read = read_generator_rows(REAL)
    words = ControlledTokenizer(AutoTokenizer.from_pretrained(generator_path()))
    found = generator_examples(read, words, 2048)
    assert (len(found.examples), found.shortened, found.left_out) == (50, 0, 0)
    short = sorted(read, key=lambda row: len(row.instruction + row.output))[:16]
    settings = dataclasses.replace(
        PRESETS["nano"],
        model=str(generator_path()),
        num_train_epochs=4,
        batch_size=8,
        per_device_batch_size=8,
        max_length=200,
        held_out_ratio=0.0,
        packing=False,
    )
    train_generator(short, tmp_path, settings, RunOptions(save_steps=2))
    (state,) = (tmp_path / "checkpoints").glob("checkpoint-8/trainer_state.json")
    logged = json.loads(state.read_text())["log_history"]
    losses = [log["loss"] for log in logged if "loss" in log]
    assert losses[-1] < 0.9 * losses[0]
