"""Examples, losses, training, export to ONNX and figures, on a few small rows."""

import json
import math
import random
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MPNetConfig, MPNetModel

from reader_training import evaluate, examples, export, mixture, torch_network, train
from reader_training.evaluate import Measured, best, expected_error, find_answers, interval, read
from reader_training.examples import NONE, WINDOW, Encoder, Example, collate, cut, scatter
from reader_training.rows import Row
from reader_training.torch_network import BASES, HeadLogits, ReaderNetwork, pretrained
from reader_training.train import compute_loss, span_loss
from selfcorrect_rag.reader import Reader
from selfcorrect_rag.reader.network import SHIPPED, load_tokenizer
from selfcorrect_rag.reader.network import Row as Ids
from selfcorrect_rag.reader.reader import Passage, PassageReading, ReaderCalibration, Span
from tests.training.toys import interrupted

TOKENIZER: Any = load_tokenizer()
PASSAGE = "Rosa Luxemburg was born in Zamość in 1871. Her brother Józef left Zamość in 1873."
WORDS = sorted(word for word in TOKENIZER.get_vocab() if word.isascii() and word.isalpha())[5000:]
"""Each of one token."""


def row(*answers: str, passage: str = PASSAGE, title: str = "Rosa Luxemburg") -> Row:
    return Row("Where was she born?", title, passage, answers, "nq")


def encode(asked: Row) -> Example:
    return Encoder().encode(asked, bool(asked.answers))


def targets(example: Example) -> list[str]:
    """The text of each span."""
    return [TOKENIZER.decode(example.ids[start : end + 1]) for start, end in example.spans]


@pytest.mark.parametrize("title", ["", "Rosa Luxemburg", "A title " * 30])
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("1871",), ["1871"]),
        (("zamość",), ["zamosc", "zamosc"]),
        (("Warsaw", "in 1871", "1871"), ["in 1871", "1871"]),
        ((" in 1871.",), ["in 1871"]),
        ((), []),
    ],
)
def test_targets_are_the_tokens_of_all_answers_and_mentions(
    title: str, answers: tuple[str, ...], expected: list[str]
) -> None:
    example = encode(row(*answers, title=title))
    assert targets(example) == expected
    assert (example.relevant, example.retrieve) == (float(bool(answers)), NONE)
    assert len(example.ids) <= examples.MAX_TOKENS
    head = [example.ids[k] for k in range(example.readable[0])]
    assert TOKENIZER.decode(head).startswith("where was she born?")


@pytest.mark.parametrize("place", [0, 1, 150, 299])
def test_a_window_of_a_long_passage_holds_the_answer(place: int) -> None:
    words = WORDS[:300]
    words[place] = "Zamość"
    long = row("Zamość", passage=" ".join(words))
    windows = [cut(long, random.Random(seed)).passage for seed in range(10)]
    assert all("Zamość" in window for window in windows)
    assert len({len(window.split()) for window in windows}) > 3
    assert all(len(window.split()) <= WINDOW[1] for window in windows)
    unanswered = cut(long._replace(answers=()), random.Random(0))
    assert len(unanswered.passage.split()) <= WINDOW[1]


def test_sentences_come_in_any_order_unless_the_answer_crosses_them() -> None:
    two = row("Mondays", passage="Tom waters the plants on Mondays. The office is here.")
    orders = {cut(two, random.Random(seed)).passage for seed in range(20)}
    assert orders == {two.passage, "The office is here. Tom waters the plants on Mondays."}
    across = two._replace(answers=("Mondays. The office",))
    assert {cut(across, random.Random(seed)).passage for seed in range(20)} == {two.passage}


def test_the_sentence_that_answers_comes_alone_or_among_those_of_another_page() -> None:
    other = row(passage="One day it rained. He left in 1871. Nobody knew.")
    texts = {scatter(row("1871"), other, random.Random(seed)).passage for seed in range(9)}
    assert all("Rosa Luxemburg was born in Zamość in 1871." in text for text in texts)
    assert {"One day it rained." in text for text in texts} == {True, False}
    assert not any("He left" in text for text in texts), "it states the answer too"
    assert scatter(row("left. Her"), other, random.Random(0)) == row("left. Her")


def test_batches_are_padded_and_bounded() -> None:
    rows = [row("Zamość"), row("1871", passage="In 1871."), row()]
    made = [encode(each) for each in rows] * 400
    made[2] = encode(row())
    batch = collate(made[:3])
    assert batch["ids"].shape == batch["mask"].shape == batch["readable"].shape
    assert batch["mask"].sum(1).tolist() == [len(each.ids) for each in made[:3]]
    assert (batch["spans"] >= 0).all(-1).sum(1).tolist() == [2, 1, 0]
    assert batch["relevant"].tolist() == [1.0, 1.0, 0.0]
    alone = Encoder().encode(row()._replace(question="Hello."), None, False)
    assert collate([alone])["retrieve"].tolist() == [0.0]
    pairs = ([each, made[2]] for each in made)
    for each in islice(examples.batches(pairs, 512, random.Random(0)), 20):
        assert each["ids"].numel() <= 512
        assert each["teacher_ids"].tolist() == [made[2].ids] * len(each["ids"])


def heads(start: list[float], end: list[float], relevant: float = 0.0) -> HeadLogits:
    judged = torch.tensor([relevant])
    return HeadLogits(torch.tensor([start]), torch.tensor([end]), judged, judged)


def test_the_losses_are_of_the_targets_alone() -> None:
    example = Example([1, 2, 3], [0, 1, 1], [1, 2], [(1, 1), (2, 2)], relevant=1.0)
    # Each mention has half of the starts and, by its end, half of that.
    flat = heads([9.0, 0.0, 0.0], [9.0, 0.0, 0.0])
    assert span_loss(flat, collate([example])).item() == pytest.approx(np.log(2))
    # Start and end of different mentions are not a mention.
    crossed = heads([0.0, 9.0, 0.0], [0.0, 0.0, 9.0])
    assert span_loss(crossed, collate([example])).item() == pytest.approx(9 - np.log(2), abs=0.01)
    alone = collate([Encoder().encode(row()._replace(question="Hello."), None, False)])
    none = HeadLogits(*(torch.zeros_like(alone["ids"]).float(),) * 2, *(torch.zeros(1),) * 2)
    assert compute_loss(none, alone).item() == pytest.approx(0.5 * np.log(2))


def test_a_teachers_spans_count_as_far_as_it_thinks_that_the_passage_answers() -> None:
    """Its tokenizer puts one token more in front, and it has cut the last piece of the passage."""
    own = collate([Example([1, 2, 3, 4], [0, 1, 1, 1], [1, 2, 3], [], relevant=0.0)])
    other = collate([Example([1, 1, 2, 3], [0, 0, 1, 1], [2, 3], [], relevant=0.0)])
    batch = own | {f"teacher_{name}": values for name, values in other.items()}
    written = heads([9.0, 1.0, 2.0, 3.0], [0.0, 3.0, 3.0, 3.0])
    spans = np.log(np.exp([1.0, 2.0, 3.0]).sum()) - 2.0 + np.log(3)
    for sure, relevant in ((-50.0, 0.0), (0.0, 0.5), (50.0, 1.0)):
        taught = heads([90.0, 90.0, -50.0, 50.0], [0.0, 0.0, 0.0, 0.0], sure)
        expected = train.SOFT * (2 * np.log(2) + relevant * spans)
        assert train.teacher_loss(written, taught, batch).item() == pytest.approx(expected)
    alone = collate([Encoder().encode(row()._replace(question="Hello."), None, False)])
    batch = alone | {f"teacher_{name}": values for name, values in alone.items()}
    none = HeadLogits(*(torch.zeros_like(alone["ids"]).float(),) * 2, *(torch.zeros(1),) * 2)
    assert train.teacher_loss(none, none, batch).item() == 0


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    rows = [
        Row(f"Who sang {word}?", word, f"{word} was sung by Jo {name}.", (f"Jo {name}",), "nq")
        for word, name in zip(WORDS[:40:2], WORDS[1:40:2], strict=True)
    ]
    monkeypatch.setattr(train, "all_rows", lambda: rows)
    monkeypatch.setattr(mixture, "encyclopedia", lambda: [("Moon", "The moon song is old.")])
    monkeypatch.setattr(mixture, "requests_without_evidence", lambda: ["Hello."])
    return rows


@pytest.fixture
def small_mpnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny MPNet with random weights; its tokenizer separates texts by two tokens."""
    folder = tmp_path / "mpnet"
    folder.mkdir()
    tokenizer = json.loads((SHIPPED / "tokenizer.json").read_text(encoding="utf-8"))
    pair = tokenizer["post_processor"]["pair"]
    pair.insert(3, pair[2])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    sizes = {"hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 2}
    config = MPNetConfig(vocab_size=30522, intermediate_size=48, **sizes)
    save_file(MPNetModel(config).state_dict(), folder / "model.safetensors")
    monkeypatch.setattr(torch_network, "MPNET", config)
    monkeypatch.setitem(BASES, "base", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("size", ["small", "base"])
def test_a_run_learns_and_resumes(
    size: Any, small_rows: list[Row], small_mpnet: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    given: Any = {"tokens": 512}
    if size == "small":  # which the other one teaches
        train.train(tmp_path / "teacher", "base", 1, **given)
        given["teacher"] = tmp_path / "teacher"
    monkeypatch.setattr(train, "teacher_loss", taught := Mock(wraps=train.teacher_loss))
    monkeypatch.setattr(train, "Batches", batches := Mock(wraps=train.Batches))
    train.train(tmp_path / "whole", size, 4, save_strategy="steps", save_steps=3, **given)
    killed, taken = interrupted(train.ReaderTrainer.training_step, 4)
    monkeypatch.setattr(train.ReaderTrainer, "training_step", killed)
    monkeypatch.setattr(train, "SAVE_SECONDS", -1)
    monkeypatch.setattr(train, "STEPS", {"base": 4})
    monkeypatch.setattr(train, "TAUGHT_STEPS", 4)
    with pytest.raises(KeyboardInterrupt):
        train.train(tmp_path / "cut", size, **given)
    train.train(tmp_path / "cut", size, **given)
    assert taken == [0, 1, 2, 3, 3]
    assert taught.call_count == (8 if size == "small" else 0)
    sizes = ["small", "base"] if size == "small" else ["base"]
    assert batches.call_args.args[1:] == (sizes, 512, 3)
    whole, cut = (load_file(tmp_path / n / "trained/model.safetensors") for n in ("whole", "cut"))
    assert all(torch.allclose(whole[name], cut[name], atol=1e-3) for name in whole)
    before = pretrained(size, SHIPPED if size == "small" else None).state_dict()
    moved = {name for name in whole if not torch.equal(whole[name], before[name])}
    last = "5.attention.self.query" if size == "small" else "4.attention.attn.q"
    assert "bert.embeddings.word_embeddings.weight" not in moved
    assert f"bert.encoder.layer.{last}.weight" in moved


def test_processes_share_batches(small_rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "draw_rows", drawn := Mock(wraps=train.draw_rows))

    def first(number: int, done: int) -> list[list[int]]:
        monkeypatch.setattr(train, "get_worker_info", lambda: Mock(id=number, num_workers=2))
        made = train.Batches(small_rows, ["small"], 512, done)
        return [each["ids"].tolist() for each in islice(made, 4)]

    streams = first(0, 0), first(1, 0)
    assert [call.args[1] for call in drawn.call_args_list] == [train.SEED, train.SEED + 1]
    # Of the first three batches the first process gave two.
    assert (first(0, 3)[:2], first(1, 3)[:3]) == (streams[0][2:], streams[1][1:])


def test_processes_that_load_data_are_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Mock(side_effect=SystemExit)
    monkeypatch.setattr(train.multiprocessing, "set_start_method", start)
    monkeypatch.setattr("sys.argv", ["train", "--out=x", f"--threads={torch.get_num_threads()}"])
    with pytest.raises(SystemExit):
        train.main()
    start.assert_called_once_with("spawn")  # a fork can hang


@pytest.mark.parametrize("size", ["small", "base"])
def test_an_exported_reader_computes_what_the_network_does(
    size: Any, small_mpnet: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network: ReaderNetwork = pretrained(size).eval()
    calibration = ReaderCalibration(relevant=(2.0, 0.5))
    export.write_reader(network, calibration, tmp_path / "reader")
    reader = Reader.load(tmp_path / "reader")
    assert reader.calibration == calibration
    example = Encoder(BASES[size]).encode(row(), False)
    asked = reader._windows(row().question, Passage(row().title, PASSAGE))
    assert [window.row.ids for window in asked] == [example.ids]
    rows = [Ids(example.ids[at:], example.types[at:]) for at in (0, 1)]
    outputs, other = reader.network.run(rows)
    once = export.RememberingNetwork(reader.network.path)
    again = [*once.run([*rows, rows[0]]), *once.run(rows[1:])]
    for kept, expected in zip(again, (outputs, other, outputs, other), strict=True):
        assert all(map(np.array_equal, kept, expected))
    assert len(once.known) == 2
    batch = collate([example])
    with torch.inference_mode():
        found = network(batch["ids"], batch["types"], batch["mask"])
    for expected, output in zip(found, outputs, strict=True):
        assert np.abs(expected[0].numpy() - output).max() < 0.1, "eight bits apart"
    m = read(reader, row().question, [Passage("", PASSAGE)], [True], lambda text: True)
    span = m.readings[0].spans[0]
    assert export.recover_logits(span)[1] == pytest.approx(np.log(span.probability))


def test_calibration_fits_labels() -> None:
    features = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]] * 20)
    labels = torch.tensor([0.0, 0.0, 1.0, 0.0] * 10 + [0.0, 1.0, 1.0, 1.0] * 10)
    slope, offset = export.fit(features, labels)
    assert slope > 0.5
    assert abs(offset) < 0.5


def judged(relevant: float, p: float, state: bool, title: str = "") -> Measured:
    span = Span("Jane", 0, p, p * relevant, (0, 4), p * relevant)
    passage, reading = Passage(title, "Jane"), PassageReading(relevant, (span,), 9)
    return Measured("Who wrote the novel Emma?", [passage], [state], [reading], bool)


def test_calibration_learns_what_titles_say() -> None:
    titles = [("Persuasion", "Emma")[i % 4 > 1] if i % 5 else "" for i in range(80)]
    both = [judged(0.4 + i % 2 / 5, 0.5, i % 4 > 1, title) for i, title in enumerate(titles)]
    found = export.fit_calibration(both)
    assert found.title[0] > 0 > found.title[1]


def test_calibration_takes_no_chance_for_a_right_answer() -> None:
    some = [judged(1 / (1 + math.exp(2.9 - i % 7)), 0.5 + i % 5 / 10, i % 7 > 2) for i in range(70)]
    found = export.fit_calibration(some)
    assert found.answer[0] > 1, "where no answer is stated, its words stand by chance"
    named = [m._replace(passages=[Passage("Persuasion", "Emma")]) for m in some]
    assert export.fit_calibration([*named, *[judged(0.02, 0.9, True)] * 9]) == found
    held = export.fit_calibration([m._replace(accepts=lambda text: text == "Emma") for m in named])
    assert held.sentence == found.sentence != held.answer


def test_figures_of_answers() -> None:
    assert interval([1.0, 0.0] * 50).startswith("0.500 [0.4")
    assert expected_error([(0.95, True), (0.95, False), (0.1, False)]) == pytest.approx(1 / 3)
    readings, passages = [PassageReading(0.2, (), 0)] * 2, [Passage("", "")] * 2
    blank = Measured("Which?", passages, [True, False], readings, bool)
    assert best(find_answers(blank, 0.5)) == ("", 0.0)
    assert [(judged.scores, judged.relevant) for judged in evaluate.judge_grades([blank])] == [
        ([-0.6, -0.6], True), ([-0.6], False),
    ]  # fmt: skip
