"""The reader's weights on disk: eight bits a number, calibration, and what is wrong with a file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.reader import weights
from selfcorrect_rag.reader.torch_network import ReaderNetwork, pretrained
from selfcorrect_rag.reader.reader import Reader
from selfcorrect_rag.reader.reader_llm import ReaderLLM
from selfcorrect_rag.reader.weights import (
    CONFIG,
    WEIGHTS,
    WORDS,
    ReaderCalibration,
    load_weights,
    save_weights,
)
from tests.reader.scripted_network import read_one

CALIBRATION = ReaderCalibration((0.5, -1.0), (1.5, 0.25, -0.125), (1.25, 0.5, -0.25), (0.75, -0.5))


@pytest.fixture(scope="module")
def network() -> ReaderNetwork:
    torch.manual_seed(0)
    return pretrained().eval()


@pytest.fixture(scope="module")
def folder(network: ReaderNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reader") / "weights"
    save_weights(network, CALIBRATION, made)
    return made


def test_numbers_come_back_within_half_a_step_of_their_row(
    network: ReaderNetwork, folder: Path
) -> None:
    loaded, calibration = load_weights(folder)
    assert calibration == CALIBRATION
    given, back = network.state_dict(), loaded.state_dict()
    assert given.keys() == back.keys()
    assert torch.equal(given[f"bert.{WORDS}"], back[f"bert.{WORDS}"])
    changed = 0
    for name, values in given.items():
        if values.ndim == 2 and name != f"bert.{WORDS}":
            step = values.abs().amax(1, keepdim=True) / 127
            assert bool(((values - back[name]).abs() <= 0.501 * step).all()), name
            changed += not torch.equal(values, back[name])
        elif values.ndim == 1:
            assert torch.allclose(values, back[name], rtol=1e-3, atol=1e-4), name
    assert changed > 30, "matrices are rounded"
    assert not loaded.training
    assert not any(values.requires_grad for values in loaded.parameters())


def test_a_row_of_zeros_stays_zero(network: ReaderNetwork, tmp_path: Path) -> None:
    plain = ReaderNetwork()
    plain.load_state_dict(network.state_dict())
    torch.nn.init.zeros_(plain.span.weight)
    save_weights(plain, ReaderCalibration(), tmp_path)
    assert not load_weights(tmp_path)[0].span.weight.any()


def test_the_file_is_small_and_leaves_out_what_minilm_has(folder: Path) -> None:
    matrices = sum(
        values.numel() for name, values in ReaderNetwork().state_dict().items() if WORDS not in name
    )
    assert (folder / WEIGHTS).stat().st_size < 1.05 * matrices < 12_000_000


def test_it_reads_as_before(network: ReaderNetwork, folder: Path) -> None:
    text = "The staging server runs on port 8443. " * 3
    question = "Which port does the staging server run on?"
    before = read_one(Reader(network, CALIBRATION), text, question)
    after = read_one(Reader.load(folder), text, question)
    assert after.relevant == pytest.approx(before.relevant, abs=0.02)
    assert after.tokens == before.tokens


def test_other_weights_have_another_identity(network: ReaderNetwork, folder: Path) -> None:
    one, other = Reader.load(folder), Reader.load(folder)
    assert one.identity == other.identity
    assert one.identity != Reader(network, CALIBRATION).identity
    assert ReaderLLM(one).identity == ReaderLLM(other).identity
    assert ReaderLLM(one, answer_above=0.9).identity != ReaderLLM(one).identity


def truncated(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1000])


def other_tensors(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"span.weight": torch.zeros(3, 3)}, folder / WEIGHTS)


BROKEN: dict[str, Any] = {
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "no calibration": lambda folder: (folder / CONFIG).unlink(),
    "weights cut off": truncated,
    "an empty file": lambda folder: (folder / WEIGHTS).write_bytes(b""),
    "a page instead of weights": lambda folder: (folder / WEIGHTS).write_text("<html>" * 99),
    "other tensors": other_tensors,
    "calibration cut off": lambda folder: (folder / CONFIG).write_text('{"calibration": {'),
    "calibration without a key": lambda folder: (folder / CONFIG).write_text("{}"),
    "calibration of another kind": lambda folder: (folder / CONFIG).write_text("[1]"),
    "calibration with more": lambda folder: (folder / CONFIG).write_text(
        json.dumps({"calibration": {"speed": [1.0]}})
    ),
    "calibration without numbers": lambda folder: (folder / CONFIG).write_text(
        json.dumps({"calibration": {"relevant": 1.0}})
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_said_with_its_folder(how: str, folder: Path, tmp_path: Path) -> None:
    for name in (WEIGHTS, CONFIG):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    BROKEN[how](tmp_path)
    with pytest.raises(ModelNotFound) as raised:
        load_weights(tmp_path)
    said = str(raised.value)
    assert str(tmp_path) in said
    assert "holds no reader" in said
    assert "\n" not in said
    assert len(said) < 1_000


def test_minilm_that_is_not_there_is_no_fault_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise ModelNotFound("no weights of MiniLM here")

    monkeypatch.setattr(weights, "minilm_weights", missing)
    with pytest.raises(ModelNotFound, match=r"^no weights of MiniLM here"):
        load_weights(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for load in (load_weights, Reader.load, ReaderLLM.load):
        with pytest.raises(ModelNotFound, match="nowhere holds no reader"):
            load(tmp_path / "nowhere")
