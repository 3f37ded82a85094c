"""Training nano models, at toy size: the rate, runs that go on after a kill, and the commands."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from nano_training import train_by_rule
from nano_training.train_by_rule import PHASES, GeneratorBatches
from nano_training.trainer import Trainer, TrainingSettings, export, rate_at
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.prompts import decision_prompt

TOY = TrainingSettings(
    steps=10,
    batch_tokens=512,
    vocabulary=420,
    tokenizer_rows=60,
    hidden_size=128,
    layers=2,
    heads=4,
    intermediate_size=32,
    warmup=2,
    save_every=5,
    threads=1,
)


def test_the_rate_warms_up_stays_and_falls() -> None:
    settings = TrainingSettings()
    rates = [rate_at(settings, step) for step in range(settings.steps)]
    flat = round(settings.steps * settings.decay_start)
    assert rates[0] < rates[60] == max(rates) == settings.learning_rate == rates[flat - 1]
    assert rates[flat:] == sorted(rates[flat:], reverse=True)
    assert rates[-1] < 0.05 * settings.learning_rate


def test_a_run_that_was_stopped_ends_in_the_same_weights(tmp_path: Path) -> None:
    whole = Trainer(TOY, tmp_path / "whole", data=GeneratorBatches)
    losses = [loss for _, _, loss in whole.run()]
    cut = Trainer(TOY, tmp_path / "cut", data=GeneratorBatches)
    for step, _, _ in cut.run():
        if step == 7:  # killed two steps after the checkpoint of step 5
            break
    resumed = Trainer(TOY, tmp_path / "cut", data=GeneratorBatches)
    assert resumed.step == 5
    assert [loss for _, _, loss in resumed.run()] == losses[5:]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    trainer = Trainer(TOY, tmp_path, data=GeneratorBatches)
    list(trainer.run(until=1))
    trainer.save()
    with pytest.raises(SystemExit, match="of another learning_rate"):
        Trainer(replace(TOY, learning_rate=0.1), tmp_path, data=GeneratorBatches)
    with pytest.raises(SystemExit, match="of another data"):
        Trainer(TOY, tmp_path, data=partial(GeneratorBatches, phases=PHASES[::-1]))


def test_a_checkpoint_from_another_start_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        made = Trainer(replace(TOY, seed=ord(name)), tmp_path / name, data=GeneratorBatches)
        export(made.model, made.tokenizer, tmp_path / name)
    trainer = Trainer(TOY, tmp_path, data=GeneratorBatches, start=tmp_path / "a")
    trainer.save()
    Trainer(TOY, tmp_path, data=GeneratorBatches, start=tmp_path / "a")
    with pytest.raises(SystemExit, match="of another start"):
        Trainer(TOY, tmp_path, data=GeneratorBatches, start=tmp_path / "b")


def test_an_export_keeps_so_many_bits_of_the_mantissa(tmp_path: Path) -> None:
    trainer = Trainer(TOY, tmp_path, data=GeneratorBatches)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    export(trainer.model, trainer.tokenizer, tmp_path / "out", mantissa=4)
    for name, after in load_file(tmp_path / "out" / "model.safetensors").items():
        if after.ndim == 2:
            fraction = torch.frexp(after.float())[0] * 2**5
            assert torch.equal(fraction, fraction.round())
            assert not torch.equal(fraction, (fraction / 2).round() * 2)
            torch.testing.assert_close(after.float(), before[name], rtol=2**-5, atol=1e-7)
        else:
            assert torch.equal(after, before[name].half())


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Path) -> None:
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", [module.__name__, "--out", str(folder), *given])
    module.main()


def test_real_text_is_learned_in_a_second_stage_and_half_of_it_kept(
    tmp_path: Path, real_text_by_hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_by_rule, "FIRST", replace(TOY, steps=2))
    monkeypatch.setattr(train_by_rule, "REAL", replace(TOY, steps=2, easy_share=0.0))
    run(train_by_rule, monkeypatch, tmp_path / "both", data=real_text_by_hand)
    first = tmp_path / "both" / "made-up"
    run(train_by_rule, monkeypatch, tmp_path / "on", data=real_text_by_hand, start=first)
    one, other = (tmp_path / name / "generator" / "model.safetensors" for name in ("both", "on"))
    assert one.read_bytes() == other.read_bytes()
    weights = torch.load(tmp_path / "on" / "stage-2" / "checkpoint.pt", weights_only=True)["model"]
    before, kept = load_file(first / "model.safetensors"), load_file(one)
    for name, mean in kept.items():
        expected = (before[name].float() + weights[name].half().float()) / 2
        torch.testing.assert_close(mean, expected.half(), atol=2e-4, rtol=2e-3)
        assert mean.ndim < 2 or not torch.equal(mean, before[name])
    with pytest.raises(SystemExit):
        run(train_by_rule, monkeypatch, tmp_path / "none", start=first)


def test_without_real_text_there_is_one_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_by_rule, "FIRST", replace(TOY, steps=2))
    run(train_by_rule, monkeypatch, tmp_path)
    assert [path.name for path in tmp_path.glob("stage-*")] == ["stage-1"]
    llm = TransformersReflectionLLM.from_pretrained(tmp_path / "generator")
    assert llm.generate_segments([decision_prompt("Who?")], max_tokens=2)[0]["tokens"] >= 1
