"""Training the nano generator, at toy size: what is learned, and runs that go on after a kill."""

from pathlib import Path

import pytest
import torch

from selfcorrect_rag.nano.batches import Weights, token_weights
from selfcorrect_rag.nano.train import Settings, Trainer, rate_at

TOY = Settings(
    steps=6,
    sharpen=4,
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


def test_what_counts_in_a_row_with_two_passages_token_by_token() -> None:
    """Worked by hand: prompt and passages 0, each passage on its own; a wrong segment's text 0."""
    row = [
        ("question", 0),
        ("[Retrieval]", 3),
        ("<paragraph>", 1),
        ("first", 0),
        ("passage", 0),
        ("</paragraph>", 0),
        ("[Relevant]", 3),
        ("right", 1),
        ("[Fully supported]", 3),
        ("[Retrieval]", 3),
        ("<paragraph>", 1),
        ("second", 0),
        ("</paragraph>", 0),
        ("[Relevant]", 3),
        ("wrong", 0),
        ("[No support / Contradictory]", 3),
        ("[Utility:2]", 3),
        ("</s>", 1),
    ]
    assert token_weights([token for token, _ in row], Weights(reflection=3)) == [w for _, w in row]


def test_early_on_passages_count_a_little() -> None:
    weights = token_weights(
        ["[Retrieval]", "<paragraph>", "text", "</paragraph>"], Weights(2.0, 0.15)
    )
    assert weights == [2.0, 1.0, 0.15, 0.0]


def test_the_rate_warms_up_falls_and_starts_again() -> None:
    settings = Settings()
    rates = [rate_at(settings, step) for step in range(settings.steps + settings.sharpen)]
    assert rates[0] < rates[60] == max(rates) == settings.rate
    assert rates[settings.steps - 1] < 0.05 * settings.rate
    assert rates[settings.steps] == pytest.approx(settings.restart * settings.rate)
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
