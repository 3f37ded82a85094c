"""Examples, losses, training, export to ONNX and figures, on a few small rows."""

import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reader_training import export, mixture, train
from reader_training.evaluate import (
    Measured,
    best,
    expected_error,
    f1,
    find_answers,
    interval,
    judge_grades,
    read_gold,
)
from reader_training.examples import MAX_TOKENS, NONE, SHORT, Encoder, Example, batches, collate
from reader_training.rows import DATA, Row, Split
from reader_training.torch_network import HeadLogits, ReaderNetwork, pretrained
from reader_training.train import compute_loss, span_loss
from selfcorrect_rag.reader import Reader
from selfcorrect_rag.reader.network import Row as Ids
from selfcorrect_rag.reader.network import load_tokenizer
from selfcorrect_rag.reader.reader import Passage, PassageReading, ReaderCalibration

TOKENIZER: Any = load_tokenizer()
PASSAGE = "Rosa Luxemburg was born in Zamość in 1871. Her brother Józef left Zamość in 1873."
WORDS = sorted(word for word in TOKENIZER.get_vocab() if word.isascii() and word.isalpha())[5000:]
"""Each of one token."""


def row(*answers: str, passage: str = PASSAGE, title: str = "Rosa Luxemburg") -> Row:
    return Row("Where was she born?", title, passage, answers, "nq")


def encode(asked: Row, seed: int = 0) -> Example:
    example = Encoder(seed).encode_row(asked)
    assert example
    return example


def targets(example: Example) -> list[str]:
    """The text between each start and its end."""
    pairs = zip(example.starts, example.ends, strict=True)
    return [TOKENIZER.decode(example.ids[start : end + 1]) for start, end in pairs]


@pytest.mark.parametrize("title", ["", "Rosa Luxemburg", "A title " * 30])
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("1871",), ["1871"]),
        (("Zamość",), ["zamosc", "zamosc"]),
        (("Warsaw", "in 1871", "1871"), ["in 1871"]),
        ((" in 1871.",), ["in 1871"]),
        ((), []),
    ],
)
def test_targets_are_the_tokens_of_the_answer(
    title: str, answers: tuple[str, ...], expected: list[str]
) -> None:
    example = encode(row(*answers, title=title))
    assert targets(example) == expected
    assert (example.relevant, example.retrieve) == (float(bool(answers)), NONE)
    assert len(example.ids) <= MAX_TOKENS
    head = [example.ids[k] for k in range(example.readable[0])]
    assert TOKENIZER.decode(head).startswith("where was she born?")


def test_only_the_place_of_a_long_answer_is_learned() -> None:
    inside = " ".join(WORDS[: SHORT + 1])
    long = encode(row(inside, passage=f"Before it. {inside}. After it."))
    assert long.starts == long.ends
    assert [long.ids[k] for k in long.starts] == TOKENIZER.encode(inside).ids[1:-1]


@pytest.mark.parametrize("place", [0, 1, 150, 299])
def test_a_window_of_a_long_passage_holds_the_answer(place: int) -> None:
    words = WORDS[:300]
    words[place] = "Zamość"
    examples = [encode(row("Zamość", passage=" ".join(words)), seed) for seed in range(10)]
    assert all(targets(example) == ["zamosc"] for example in examples)
    assert len({len(example.ids) for example in examples}) > 3


def test_batches_are_padded_and_bounded() -> None:
    encoder = Encoder()
    rows = [row("Zamość"), row("1871", passage="In 1871."), row()]
    made = [encode(each) for each in rows] * 400
    batch = collate(made[:3])
    assert batch["ids"].shape == batch["mask"].shape == batch["readable"].shape
    assert batch["mask"].sum(1).tolist() == [len(each.ids) for each in made[:3]]
    assert batch["starts"].sum(1).tolist() == [2, 1, 0]
    assert batch["relevant"].tolist() == [1.0, 1.0, 0.0]
    assert collate([encoder.encode_question("Hello.", False)])["retrieve"].tolist() == [0.0]
    for each in islice(batches(iter(made), 512, random.Random(0)), 20):
        assert each["ids"].numel() <= 512


def test_the_losses_are_of_the_targets_alone() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    marks = torch.tensor([[False, True, True], [False, False, False]])
    readable = torch.tensor([[False, True, True], [True, True, True]])
    assert span_loss(logits, marks, readable).item() == pytest.approx(0)
    one = torch.tensor([[False, True, False], [False, False, False]])
    assert span_loss(logits, one, readable).item() == pytest.approx(np.log(1 + np.e), abs=1e-5)
    batch = collate([Encoder().encode_question("Hello.", False)])
    heads = HeadLogits(*(torch.zeros_like(batch["ids"]).float(),) * 2, *(torch.zeros(1),) * 2)
    assert compute_loss(heads, batch).item() == pytest.approx(0.5 * np.log(2))


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    rows = [
        Row(f"Who sang {word}?", word, f"{word} was sung by Jo {name}.", (f"Jo {name}",), "nq")
        for word, name in zip(WORDS[:40:2], WORDS[1:40:2], strict=True)
    ]
    monkeypatch.setattr(train, "real_rows", lambda: Split(rows, rows))
    monkeypatch.setattr(train, "all_rows", lambda: rows)
    monkeypatch.setattr(mixture, "encyclopedia", lambda: [("Moon", "The moon song is old.")])
    monkeypatch.setattr(mixture, "yes_no_rows", lambda: rows[:1])
    return rows


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}")
def test_a_run_learns_and_resumes(
    small_rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "BATCH_TOKENS", 512)
    train.train(tmp_path / "whole", (2, 2), save_steps=3)
    step, taken = train.ReaderTrainer.training_step, []

    def killed(self: Any, *args: Any, **given: Any) -> Any:
        taken.append(self.state.global_step)
        if len(taken) == 4:
            raise KeyboardInterrupt
        return step(self, *args, **given)

    monkeypatch.setattr(train.ReaderTrainer, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        train.train(tmp_path / "cut", (2, 2), save_steps=3)
    train.train(tmp_path / "cut", (2, 2), save_steps=3)
    assert taken == [0, 1, 2, 3, 3]
    whole, cut = (load_file(tmp_path / n / "trained/model.safetensors") for n in ("whole", "cut"))
    assert all(torch.allclose(whole[name], cut[name], atol=1e-3) for name in whole)
    before = pretrained().state_dict()
    moved = {name for name in whole if not torch.equal(whole[name], before[name])}
    assert "bert.embeddings.word_embeddings.weight" not in moved
    assert "bert.encoder.layer.0.attention.self.query.weight" in moved


def test_an_exported_reader_computes_what_the_network_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network: ReaderNetwork = pretrained().eval()
    calibration = ReaderCalibration(relevant=(2.0, 0.5))
    export.write_reader(network, calibration, tmp_path / "reader")
    reader = Reader.load(tmp_path / "reader")
    assert reader.calibration == calibration
    encoding = TOKENIZER.encode("Where was she born?", PASSAGE)
    (outputs,) = reader.network.run([Ids(encoding.ids, encoding.type_ids)])
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    with torch.inference_mode():
        heads = network(ids, types, torch.ones_like(ids))
    for expected, found in zip(heads, outputs, strict=True):
        assert np.abs(expected[0].numpy() - found).max() < 0.1, "eight bits apart"
    for measured in read_gold(reader, [row("Zamość")]):
        span = measured.readings[0].spans[0]
        recovered = export.recover_logits(span)
        assert recovered[1] == pytest.approx(np.log(span.probability))


def test_calibration_fits_labels() -> None:
    features = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]] * 20)
    labels = torch.tensor([0.0, 0.0, 1.0, 0.0] * 10 + [0.0, 1.0, 1.0, 1.0] * 10)
    slope, offset = export.fit(features, labels)
    assert slope > 0.5
    assert abs(offset) < 0.5


def test_figures_of_answers() -> None:
    assert f1("The  Eiffel-Tower!", ["x", "eiffeltower"]) == 1.0
    assert f1("big red tower", ["red tower", "x"]) == pytest.approx(0.8)
    assert interval([1.0, 0.0] * 50).startswith("0.500 [0.4")
    assert expected_error([(0.95, True), (0.95, False), (0.1, False)]) == pytest.approx(1 / 3)
    blank = Measured(
        row("x"), [PassageReading(0.2, (), 0)] * 2, [True, False], [Passage("", "")] * 2
    )
    assert best(find_answers(blank, 0.5)) == ("", 0.0)
    assert [(judged.scores, judged.relevant) for judged in judge_grades([blank])] == [
        ([-0.6, -0.6], True), ([-0.6], False),
    ]  # fmt: skip
