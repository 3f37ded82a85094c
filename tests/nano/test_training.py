"""Training the nano generator, at toy size: its rate, and runs that go on after a kill."""

from pathlib import Path

import pytest
import torch

from selfcorrect_rag.nano.train import Settings, Trainer, rate_at

TOY = Settings(
    steps=10,
    tokens=512,
    vocabulary=420,
    tokenizer_rows=60,
    width=128,
    layers=2,
    heads=4,
    inner=32,
    warmup=2,
    save_every=5,
    threads=1,
)


def test_the_rate_warms_up_stays_and_falls() -> None:
    settings = Settings()
    rates = [rate_at(settings, step) for step in range(settings.steps)]
    flat = round(settings.steps * settings.flat)
    assert rates[0] < rates[60] == max(rates) == settings.rate == rates[flat - 1]
    assert rates[flat:] == sorted(rates[flat:], reverse=True)
    assert rates[-1] < 0.05 * settings.rate


def test_a_run_that_was_stopped_ends_in_the_same_weights(tmp_path: Path) -> None:
    whole = Trainer(TOY, tmp_path / "whole")
    losses = [loss for _, _, loss in whole.run()]
    cut = Trainer(TOY, tmp_path / "cut")
    for step, _, _ in cut.run():
        if step == 7:  # killed two steps after the checkpoint of step 5
            break
    resumed = Trainer(TOY, tmp_path / "cut")
    assert resumed.step == 5
    assert [loss for _, _, loss in resumed.run()] == losses[5:]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    trainer = Trainer(TOY, tmp_path)
    list(trainer.run(until=1))
    trainer.save()
    with pytest.raises(SystemExit, match="other settings"):
        Trainer(Settings(**{**TOY.__dict__, "rate": 0.1}), tmp_path)
