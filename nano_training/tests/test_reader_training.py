"""Training the reader: its losses, and runs of a few steps on a tiny network."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from nano_training import train_reader
from nano_training.reader import examples, stream
from nano_training.reader.examples import Example, collate
from nano_training.reader.negatives import Negatives
from nano_training.reader.rows import Row, Split
from nano_training.train_reader import (
    ReaderSettings,
    Trainer,
    binary,
    loss_of,
    main,
    rate_at,
    span_loss,
)
from selfcorrect_rag.reader import torch_network as network
from selfcorrect_rag.reader.torch_network import HeadLogits, ReaderNetwork
from selfcorrect_rag.search.bert import Architecture

TOY = ReaderSettings(stages=(3, 4), batch_tokens=256, warmup=2, threads=1, save_every=2)


def log(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def marks(*places: bool | int) -> torch.Tensor:
    return torch.tensor([places], dtype=torch.bool)


def test_the_loss_of_a_span_is_over_readable_tokens() -> None:
    logits = log(0.4, 0.1, 0.2, 0.3)
    every = marks(1, 1, 1, 1)
    assert span_loss(logits, marks(0, 0, 1, 0), every).item() == pytest.approx(-math.log(0.2))
    some = marks(0, 1, 1, 0)
    assert span_loss(logits, marks(0, 0, 1, 0), some).item() == pytest.approx(-math.log(0.2 / 0.3))


def test_several_targets_are_right_together() -> None:
    loss = span_loss(log(0.4, 0.1, 0.2, 0.3), marks(0, 1, 0, 1), marks(1, 1, 1, 1))
    assert loss.item() == pytest.approx(-math.log(0.4))


def test_rows_without_a_span_do_not_count() -> None:
    logits = torch.cat([log(0.5, 0.5), log(0.9, 0.1)]).requires_grad_()
    targets = torch.cat([marks(1, 0), marks(0, 0)])
    loss = span_loss(logits, targets, torch.cat([marks(1, 1), marks(1, 1)]))
    assert loss.item() == pytest.approx(math.log(2))
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[1].tolist() == [0, 0]
    none = span_loss(logits, torch.zeros(2, 2, dtype=torch.bool), marks(1, 1).expand(2, 2))
    assert none.item() == 0
    none.backward()  # it has a gradient, of zeros


def test_binary() -> None:
    logits = torch.tensor([0.0, math.log(3)])
    loss = binary(logits, torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    logits = torch.empty(0, requires_grad=True)
    none = binary(logits, torch.empty(0))
    assert none.item() == 0
    none.backward()


def heads(rows: int, tokens: int) -> HeadLogits:
    sizes = [(rows, tokens)] * 2 + [(rows,)] * 2
    return HeadLogits(*(torch.randn(size, requires_grad=True) for size in sizes))


SPAN = Example([1, 2, 3, 4], [0, 0, 1, 1], [2, 3], [2], [3], relevant=1.0)
SILENT = Example([1, 2, 3], [0, 0, 1], [2], relevant=0.0)
DECIDED = Example([1, 2], [0, 1], [1], relevant=1.0)
ALONE = Example([1], [0], [], retrieve=0.0)


@pytest.mark.parametrize(
    ("example", "learned"),
    [
        (SPAN, {"start", "end", "relevant"}),
        (SILENT, {"relevant"}),
        (DECIDED, {"relevant"}),
        (ALONE, {"retrieve"}),
    ],
)
def test_a_head_learns_from_examples_with_its_target(example: Example, learned: set[str]) -> None:
    torch.manual_seed(0)
    batch = collate([example, SPAN])
    alone = collate([example])
    said = heads(1, len(example.ids))
    loss_of(said, alone).backward()
    moved = {
        name
        for name, logits in said._asdict().items()
        if logits.grad is not None and logits.grad.abs().sum() > 0
    }
    assert moved == learned
    both = heads(2, len(SPAN.ids))
    loss_of(both, batch).backward()
    for name, logits in both._asdict().items():
        if name not in learned and logits.grad is not None:
            assert logits.grad[0].abs().sum() == 0


def test_the_loss_of_a_batch_is_the_weighted_sum() -> None:
    torch.manual_seed(1)
    said = heads(4, 4)
    batch = collate([SPAN, SILENT, DECIDED, ALONE])
    odds = said.relevant[:3].sigmoid()
    expected = (
        -(said.start[0, 2:].log_softmax(0)[0] + said.end[0, 2:].log_softmax(0)[1])
        - 2 * (odds[0].log() + (1 - odds[1]).log() + odds[2].log()) / 3
        - 0.5 * (1 - said.retrieve[3].sigmoid()).log()
    )
    assert loss_of(said, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_rate_warms_up_stays_and_falls() -> None:
    settings = ReaderSettings(stages=(40, 60), warmup=10, decay=0.3)
    rates = [rate_at(settings, step) / settings.learning_rate for step in range(100)]
    assert rates[:10] == pytest.approx([k / 10 for k in range(1, 11)])
    assert set(rates[10:70]) == {1.0}
    assert rates[70:] == pytest.approx([k / 30 for k in range(30, 0, -1)])


def about(number: int) -> Row:
    text = f"Town {number} has a mill. The mill was built in {1900 + number} by Ann."
    return Row(
        f"When was mill {number} built?", f"Town {number}", text, (f"{1900 + number}",), "nq"
    )


ROWS = [about(number) for number in range(15)]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of one narrow layer, and a few rows, some of them in the second stage alone."""
    small = Architecture(hidden_size=16, intermediate_size=16, heads=2, layers=1)
    monkeypatch.setattr(network, "Architecture", lambda: small)
    monkeypatch.setattr(train_reader, "pretrained", ReaderNetwork)
    monkeypatch.setattr(examples, "POOL", 20)
    monkeypatch.setattr(stream, "DRAWN", 20)
    monkeypatch.setattr(train_reader, "real_rows", lambda: Split(ROWS[:13], ROWS[14:]))
    monkeypatch.setattr(train_reader, "training_rows", lambda folder: ROWS[2:])
    monkeypatch.setattr(train_reader, "negatives", lambda rows: Negatives(rows, []))
    decided = Row("Is it old?", "", "It was built in 1200.", (), "strategyqa")
    monkeypatch.setattr(stream, "yes_no_rows", lambda: [decided])
    monkeypatch.setattr(stream, "requests_without_evidence", lambda: iter(["Hello!"]))
    monkeypatch.setattr(stream, "selfrag_questions", lambda: ["Thanks"])


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Trainer, list[float]]:
    """A run that nothing stopped, and its losses."""
    (tmp_path / "whole").mkdir()
    trainer = Trainer(TOY, tmp_path / "whole")
    return trainer, list(trainer.run())


def assert_same(one: Trainer, other: Trainer) -> None:
    pairs = zip(one.network.parameters(), other.network.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(("killed", "kept"), [(1, 0), (2, 2), (3, 3), (5, 4), (7, 7)])
def test_a_run_that_was_cut_ends_in_the_same_weights(
    whole: tuple[Trainer, list[float]], tmp_path: Path, killed: int, kept: int
) -> None:
    trainer, losses = whole
    assert len(losses) == 7
    cut = Trainer(TOY, tmp_path)
    for _ in cut.run():
        if cut.step == killed:
            break
    resumed = Trainer(TOY, tmp_path)
    assert resumed.step == kept
    assert list(resumed.run()) == losses[kept:]
    assert_same(trainer, resumed)
    again = Trainer(TOY, tmp_path)
    assert again.step == 7
    assert_same(trainer, again)


def test_a_run_that_is_done_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(Trainer(TOY, tmp_path).run())
    monkeypatch.setattr(train_reader, "negatives", lambda rows: pytest.fail("read again"))
    assert list(Trainer(TOY, tmp_path).run()) == []


def test_all_weights_but_those_of_words_learn(whole: tuple[Trainer, list[float]]) -> None:
    torch.manual_seed(TOY.seed)
    fresh, trained = ReaderNetwork().state_dict(), whole[0].network.state_dict()
    same = {name for name, values in fresh.items() if torch.equal(values, trained[name])}
    assert same == {"bert.embeddings.word_embeddings.weight"}


def test_attention_is_not_fused_in_training_alone(tmp_path: Path) -> None:
    """And it reads the same, so that what is trained is what ships."""
    trainer, seen = Trainer(TOY, tmp_path), list[bool]()
    trainer.network.bert.register_forward_hook(
        lambda *_: seen.append(torch.backends.cuda.flash_sdp_enabled())
    )
    next(trainer.run())
    batch, network = collate([SPAN, SILENT, ALONE]), trainer.network.eval()
    with torch.inference_mode():
        fused = network(batch.ids, batch.types, batch.mask)
        with sdpa_kernel(SDPBackend.MATH):
            plain = network(batch.ids, batch.types, batch.mask)
    assert seen == [False, True, False]
    for one, other in zip(fused, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_heads_of_the_network() -> None:
    batch = collate([SPAN, SILENT, ALONE])
    found = ReaderNetwork()(batch.ids, batch.types, batch.mask)
    assert {name: tuple(logits.shape) for name, logits in found._asdict().items()} == {
        "start": (3, 4),
        "end": (3, 4),
        "relevant": (3,),
        "retrieve": (3,),
    }


def test_stages_have_their_own_rows_and_negatives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def streamed(rows: list[Row], found: Negatives, *rest: float) -> object:
        given.append((len(rows), rest[-1]))
        return iter([SPAN] * 3000)

    monkeypatch.setattr(train_reader, "examples", streamed)
    list(Trainer(replace(TOY, stages=(1, 1)), tmp_path).run())
    assert given == [(13, 0.5), (13, 1.3)]


@pytest.mark.parametrize(
    ("name", "value"), [("learning_rate", 0.1), ("seed", 2), ("batch_tokens", 300), ("decay", 0.5)]
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, name: str, value: float) -> None:
    next(Trainer(replace(TOY, save_every=1), tmp_path).run())
    with pytest.raises(SystemExit, match=f"of another {name}"):
        Trainer(replace(TOY, save_every=1, **{name: value}), tmp_path)


def test_a_checkpoint_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half of it")
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(OSError, match="no space"):
            list(Trainer(TOY, tmp_path).run())
    assert Trainer(TOY, tmp_path).step == 0


def test_the_loss_falls(tmp_path: Path) -> None:
    settings = replace(TOY, stages=(30, 0), learning_rate=0.02, save_every=100)
    losses = list(Trainer(settings, tmp_path).run())
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--out", str(tmp_path / "new" / "folder"), "--stages", "1", "19", "--threads", "1"]
    monkeypatch.setattr("sys.argv", ["train_reader", *given])
    main()
    assert "step 20/20  loss " in capsys.readouterr().out
    saved = torch.load(tmp_path / "new" / "folder" / "checkpoint.pt", weights_only=True)
    assert saved["step"] == 20
    assert set(saved["network"]) == set(ReaderNetwork().state_dict())
