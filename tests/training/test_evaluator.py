"""Fine-tuning the evaluator at toy size: it learns and reports."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from selfcorrect_rag.errors import BadRun, BadTrainingData, ModelNotFound
from selfcorrect_rag.evaluation.pooled import auc
from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.training.evaluator import (
    EvaluatorSettings,
    GradedRow,
    _best_accuracy,
    _like_lengths_together,
    train_evaluator,
)
from tests.conftest import byte_level_tokenizer

TOY = EvaluatorSettings(
    model="toy",
    num_train_epochs=6,
    learning_rate=3e-3,
    batch_size=8,
    hard_negatives=0,
    max_length=48,
    seed=1,
)
ROWS = [
    GradedRow(f"Question {i}?", (f"the the the {i % 7}",), (f"or or or {i % 5}",))
    for i in range(80)
]


def toy() -> tuple[BertForSequenceClassification, object]:
    """A BERT that begins the same each time."""
    words = byte_level_tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=words.pad_token_id,
    )
    return BertForSequenceClassification(config), words


def test_it_learns_reports_and_loads(tmp_path: Path) -> None:
    report = train_evaluator(ROWS, tmp_path, TOY, base=toy())  # type: ignore[arg-type]
    assert report["test"]["auc"] > 0.95
    assert report["test"]["best_accuracy"] > report["test"]["base_rate"]
    assert report["test"]["actions"]["action_accuracy"] > 0.9
    assert sum(report["questions"].values()) == len(ROWS)
    assert json.loads((tmp_path / "report.json").read_text()) == report
    evaluator = T5Evaluator.from_pretrained(tmp_path / "evaluator")
    right, wrong = evaluator.score("Question 99?", ["the the the 3", "or or or 3"])
    assert right > evaluator.thresholds.upper
    assert wrong < evaluator.thresholds.lower


def test_other_settings_do_not_go_on(tmp_path: Path) -> None:
    base: Any = toy()
    short = dataclasses.replace(TOY, num_train_epochs=0.1)
    train_evaluator(ROWS, tmp_path, short, base=base)
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        train_evaluator(ROWS, tmp_path, dataclasses.replace(short, seed=7), base=base)
    for rows, corpus in ((ROWS[1:], []), (ROWS, ["another passage"])):
        with pytest.raises(BadRun, match=r"other settings \(data\)"):
            train_evaluator(rows, tmp_path, short, corpus=corpus, base=base)


def test_a_model_that_does_not_load_binds_the_folder_to_nothing(tmp_path: Path) -> None:
    missing = dataclasses.replace(TOY, model=str(tmp_path / "missing"))
    with pytest.raises(ModelNotFound, match="missing"):
        train_evaluator(ROWS, tmp_path, missing)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_in_half_precision_is_trained_in_full(tmp_path: Path) -> None:
    model, words = toy()
    model.half().save_pretrained(tmp_path / "half")  # type: ignore[no-untyped-call]
    words.save_pretrained(tmp_path / "half")  # type: ignore[attr-defined]
    settings = dataclasses.replace(TOY, model=str(tmp_path / "half"))
    assert train_evaluator(ROWS, tmp_path / "run", settings)["test"]["auc"] > 0.95
    made = load_file(tmp_path / "run" / "evaluator" / "model.safetensors")
    assert {weight.dtype for weight in made.values()} == {torch.float32}


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadTrainingData, match="by one process"):
        train_evaluator(ROWS, tmp_path, TOY)


def test_data_of_one_kind_is_refused(tmp_path: Path) -> None:
    rows = [GradedRow(row.question, row.positives) for row in ROWS]
    with pytest.raises(BadTrainingData, match="needs relevant and irrelevant"):
        train_evaluator(rows, tmp_path, TOY, base=toy())  # type: ignore[arg-type]


def test_auc_and_best_accuracy_by_hand() -> None:
    assert auc([(0.9, 1), (0.8, -1), (0.7, 1), (0.1, -1)]) == 0.75
    assert auc([(0.5, 1), (0.5, -1)]) == 0.5
    assert _best_accuracy([(0.9, 1), (0.8, -1), (0.7, 1), (0.1, -1)]) == 0.75
    assert _best_accuracy([(0.5, 1), (0.5, -1), (0.5, -1)]) == pytest.approx(2 / 3)


def test_an_adapter_is_trained_and_merged(tmp_path: Path) -> None:
    settings = dataclasses.replace(TOY, lora_rank=8, learning_rate=1e-2)
    report = train_evaluator(ROWS, tmp_path, settings, base=toy())  # type: ignore[arg-type]
    assert report["test"]["auc"] > 0.95
    asked = "Question 99?", ["the the the 3", "or or or 3"]
    merged = T5Evaluator.from_pretrained(tmp_path / "evaluator")
    base, tokenizer = toy()
    adapted = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    alone = T5Evaluator(adapted, tokenizer, max_tokens=48)  # type: ignore[arg-type]
    assert alone.score(*asked) == pytest.approx(merged.score(*asked), abs=1e-5)
    untrained, trained = toy()[0].state_dict(), adapted.state_dict()
    frozen = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(untrained[frozen], trained[frozen])


def test_like_lengths_stand_together_and_nothing_is_lost() -> None:
    examples = [{"input_ids": [0] * (1 + i * 17 % 37), "number": i} for i in range(203)]
    ordered = _like_lengths_together(examples, batch_size=8, seed=3)
    assert sorted(e["number"] for e in ordered) == list(range(203))
    assert ordered == _like_lengths_together(examples, batch_size=8, seed=3)
    assert ordered != _like_lengths_together(examples, batch_size=8, seed=4)

    def padded(rows: list[dict]) -> int:
        batches = [rows[i : i + 8] for i in range(0, len(rows), 8)]
        return sum(len(b) * max(len(e["input_ids"]) for e in b) for b in batches)

    assert padded(ordered) < 0.7 * padded(examples)


def test_a_decoder_with_few_positions_and_no_padding_token(tmp_path: Path) -> None:
    words = byte_level_tokenizer()
    words.pad_token = None
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32, "num_labels": 1}
    ends = {"bos_token_id": 1, "eos_token_id": words.eos_token_id}
    config = GPT2Config(vocab_size=len(words), **sizes, **ends)
    model = GPT2ForSequenceClassification(config)
    rows = [dataclasses.replace(row, question=row.question + " Why?" * 20) for row in ROWS]
    train_evaluator(
        rows, tmp_path, dataclasses.replace(TOY, num_train_epochs=1), base=(model, words)
    )
    evaluator = T5Evaluator.from_pretrained(tmp_path / "evaluator")
    passages = ["the the the 3", "or or or 3 " * 9]
    together = evaluator.score("Question 9?", passages)
    alone = [evaluator.score("Question 9?", [passage])[0] for passage in passages]
    assert together == pytest.approx(alone, abs=1e-4)


def test_the_head_beside_an_adapter_is_in_full_precision(tmp_path: Path) -> None:
    model, words = toy()
    model.save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")  # type: ignore[attr-defined]
    settings = dataclasses.replace(
        TOY, model=str(tmp_path / "base"), num_train_epochs=0.5, lora_rank=4, precision="bfloat16"
    )
    train_evaluator(ROWS, tmp_path, settings)
    for folder in ("adapter/adapter_model", "evaluator/model"):
        kept = load_file(tmp_path / f"{folder}.safetensors")
        assert {weights.dtype for weights in kept.values()} == {torch.float32}
