"""Trainings of a critic, an evaluator and INSTRUCTRAG-FT at toy size."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from selfcorrect_rag.errors import BadRun, BadTrainingData
from selfcorrect_rag.models import RetrievalEvaluator, T5Evaluator
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.reflection import TOKENS, Group
from selfcorrect_rag.training.critic import CriticOptions, CriticRow, agreement, train_critic
from selfcorrect_rag.training.evaluator import (
    EvaluatorOptions,
    Graded,
    auc,
    calibrate_evaluator,
    train_evaluator,
)
from selfcorrect_rag.training.fine_tuning import MASKED, newest_checkpoint
from selfcorrect_rag.training.instruct import (
    InstructOptions,
    InstructRow,
    instruct_examples,
    train_instruct,
)
from selfcorrect_rag.training.rows import part_of
from tests.conftest import byte_level_tokenizer, t5, t5_tokenizer
from tests.training.toys import llama, options, plain_tokenizer, same, weights


def critic(folder: Path, rows: Any, **given: Any) -> dict[str, Any]:
    toy = {"num_train_epochs": 4, "learning_rate": 3e-3, "batch_size": 8, "max_length": 160}
    given = {**toy, "per_device_batch_size": 8, "seed": 1, **given}
    return train_critic(options(CriticOptions, folder, rows, **given), base=llama())


def evaluator(folder: Path, rows: Any, base: Any, **given: Any) -> dict[str, Any]:
    toy = {"num_train_epochs": 6, "learning_rate": 3e-3, "batch_size": 8, "max_length": 48}
    given = {**toy, "per_device_batch_size": 8, "model": "toy", "seed": 1, **given}
    return train_evaluator(options(EvaluatorOptions, folder, rows, **given), base=base)


def instruct(folder: Path, rows: Any, base: Any, **given: Any) -> dict[str, Any]:
    toy = {"num_train_epochs": 3, "learning_rate": 1e-2, "batch_size": 8, "max_length": 400}
    given = {**toy, "per_device_batch_size": 4, "held_out_ratio": 0.2, **given}
    return train_instruct(options(InstructOptions, folder, rows, **given), base=base)


def critic_rows(number: int) -> list[CriticRow]:
    """The right token follows from a word."""
    rows = []
    for i in range(number):
        group = list(Group)[i % 4]
        token = TOKENS[group][i // 4 % len(TOKENS[group])]
        word = "pqrst"[TOKENS[group].index(token)] * 4
        part = part_of(f"question {i}")
        text = f"{word} {word} {i % 7}"
        rows.append(
            CriticRow(key=str(i), instruction=f"{group}?", input=text, token=token, part=part)
        )
    return rows


@pytest.mark.slow
def test_a_critic_learns_reports_and_loads(tmp_path: Path) -> None:
    rows = critic_rows(240)
    report = critic(tmp_path, rows)
    out = tmp_path / "out"
    assert json.loads((out / "report.json").read_text()) == report
    assert sum(report["rows"].values()) == 240, "none is shortened or left out"
    scores = [report["test"]["accuracy"][g] - report["test"]["base_rate"][g] for g in Group]
    assert sum(scores) > 0.5, "better than the commonest token"
    with Critic.from_pretrained(out / "critic", device="cpu") as trained:
        asked = [row.critic_input for row in rows if row.part == "test"][:12]
        given = trained.judge(asked)
    assert all(token in TOKENS[one.group] for token, one in zip(given, asked, strict=True))
    critic(tmp_path / "lora", rows, lora_rank=4, num_train_epochs=0.2)
    assert (tmp_path / "lora" / "out" / "adapter" / "adapter_model.safetensors").exists()
    with pytest.raises(BadTrainingData, match="no row of the 1 is in the train part"):
        critic(tmp_path / "x", [row for row in rows if row.part == "test"][:1])


@pytest.mark.parametrize("free", [0, 1 << 30])
def test_a_full_disk_is_told_and_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """torch, safetensors and pathlib raise errors of three kinds, so the free space decides."""
    save = torch.save

    def fail(state: Any, path: Any, *given: Any, **named: Any) -> None:
        if "checkpoint-4" in str(path):
            raise RuntimeError("unexpected pos 14464 vs 13844")
        save(state, path, *given, **named)

    monkeypatch.setattr(torch, "save", fail)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    error = RuntimeError if free else BadRun
    told = "unexpected pos" if free else "no space is left for .*out; make some, and run the same"
    with pytest.raises(error, match=told):
        critic(tmp_path, critic_rows(40), save_steps=2)
    newest = newest_checkpoint(tmp_path / "out" / "checkpoints")
    assert newest is not None
    assert newest.endswith("checkpoint-2")


def test_agreement_by_hand() -> None:
    pairs = [("[Relevant]", "[Relevant]")] * 2 + [("[Irrelevant]", "[Relevant]")]
    found = agreement(pairs)
    assert found["accuracy"]["ISREL"] == found["base_rate"]["ISREL"] == pytest.approx(2 / 3)
    assert found["accuracy"]["ISUSE"] is None


def graded(question: str, positives: list[str], negatives: list[str]) -> Graded:
    return Graded(question=question, positives=positives, negatives=negatives)


PAIRS = [
    graded(f"Question {i}?", [f"the the the {i % 7}"], [f"or or or {i % 5}"]) for i in range(80)
]


def bert() -> tuple[Any, Any]:
    words = byte_level_tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=1, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    return BertForSequenceClassification(config), words


@pytest.mark.slow
def test_an_evaluator_learns_reports_and_loads(tmp_path: Path) -> None:
    report = evaluator(tmp_path, PAIRS, bert())
    assert report["test"]["auc"] > 0.95
    assert report["test"]["actions"]["action_accuracy"] > 0.9
    assert sum(report["questions"].values()) == len(PAIRS)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    trained = T5Evaluator.from_pretrained(tmp_path / "out" / "evaluator")
    right, wrong = trained.score("Question 99?", ["the the the 3", "or or or 3"])
    assert right > trained.thresholds.upper
    assert wrong < trained.thresholds.lower


def test_evaluators_that_cannot_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A T5 is read at its end token: a tokenizer that adds none ended in a raw traceback."""

    def refused(reason: str, rows: Any = PAIRS, base: Any = None) -> None:
        with pytest.raises(BadTrainingData, match=reason):
            evaluator(tmp_path, rows, base or bert())
        assert not (tmp_path / "out").exists()

    refused("the train part .* needs relevant and irrelevant", [graded("q", ["p"], [])])
    words = plain_tokenizer()  # adds a beginning, and no end
    refused("the tokenizer of toy adds no end token .*give a base whose tok", base=(t5(), words))
    words.pad_token = words.eos_token = None
    refused("adds no end token", base=(bert()[0], words))
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("launch only one")


def test_a_t5_is_trained(tmp_path: Path) -> None:
    report = evaluator(tmp_path, PAIRS, (t5(), t5_tokenizer()), num_train_epochs=0.3)
    assert 0 <= report["test"]["auc"] <= 1
    assert T5Evaluator.from_pretrained(tmp_path / "out" / "evaluator").score("q", ["p"])


def test_auc_by_hand() -> None:
    assert auc([(0.9, 1), (0.8, -1), (0.7, 1), (0.1, -1)]) == 0.75
    assert auc([(0.5, 1), (0.5, -1)]) == 0.5


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DOCUMENTS = tuple(
    Document(f"Text {n}.", metadata={"title": f"Title {n}"} if n != 2 else {}) for n in (1, 2, 3)
)
PROMPT = (
    "Document [1] (Title: Title 1): Text 1.\nDocument [2]: Text 2.\n"
    "Document [3] (Title: Title 3): Text 3.\n"
    "Based on your knowledge and the provided information, answer the question: Who {question} it?"
)


def instruct_row(question: str, documents: Any, rationale: str) -> InstructRow:
    return InstructRow(question=question, documents=documents, rationale=rationale)


ROW = instruct_row("Who {question} it?", DOCUMENTS, "Document [3] says: she.")


def chat_tokenizer() -> PreTrainedTokenizerFast:
    words = plain_tokenizer()
    words.add_tokens(["<|user|>", "<|assistant|>", "<|eot|>"], special_tokens=True)
    words.chat_template = TEMPLATE
    return words


def texts(words: Any, row: InstructRow, longest: int = 1000) -> tuple[str, str]:
    """Return the prompt and the learned text of a row, with special tokens."""
    (one,) = instruct_examples([row], words, longest).rows
    pairs = list(zip(one["input_ids"].tolist(), one["labels"].tolist(), strict=True))
    learned = [i for i, label in pairs if label != MASKED]
    return words.decode([i for i, label in pairs if label == MASKED]), words.decode(learned)


def test_a_prompt_is_that_of_inference() -> None:
    """Official defects: the literal {question} before the question, a second <s> at inference."""
    assert texts(chat_tokenizer(), ROW) == (
        f"<s><|user|>\n{PROMPT}<|eot|><|assistant|>\n",
        "Document [3] says: she.</s>",
    )
    assert texts(plain_tokenizer(), ROW)[0] == f"<s>{PROMPT}\n"
    parts = inference_prompt("ft", ROW.question, DOCUMENTS).parts
    assert "".join(part.text for part in parts) == PROMPT


@pytest.mark.parametrize("hostile", ["</s>", "<|eot|>", "<s>", "<|assistant|>"])
@pytest.mark.parametrize("make", [chat_tokenizer, plain_tokenizer])
def test_no_text_becomes_a_special_token(make: Any, hostile: str) -> None:
    words = make()
    document = Document(f"It {hostile} is.", metadata={"title": hostile})
    row = instruct_row(f"Who {hostile}?", (document,), f"It {hostile} is.")
    (one,) = instruct_examples([row], words, 1000).rows
    special = [t for t in words.convert_ids_to_tokens(one["input_ids"].tolist()) if len(t) > 2]
    template = ["<|user|>", "<|eot|>", "<|assistant|>"] if make is chat_tokenizer else []
    assert special == ["<s>", *template, "</s>"]


def test_a_row_that_is_too_long_loses_its_weakest_documents() -> None:
    words = plain_tokenizer()
    whole = len(instruct_examples([ROW], words, 1000).rows[0]["input_ids"])
    first, second, third = PROMPT.splitlines(keepends=True)[:3]
    assert texts(plain_tokenizer(), ROW, whole)[0] == f"<s>{PROMPT}\n"
    assert texts(plain_tokenizer(), ROW, whole - 1)[0] == f"<s>{PROMPT.removeprefix(first)}\n"
    last = whole - len(first) - len(second)
    assert texts(plain_tokenizer(), ROW, last)[0].startswith(f"<s>{third}"), "with its number"
    assert instruct_examples([ROW], words, last).shortened == 1
    assert instruct_examples([ROW], words, last - 1).left_out == 1
    bare = instruct_row("Who?", (), "She.")
    assert len(instruct_examples([bare], words, 1000).rows) == 1


@pytest.mark.slow
def test_instruct_learns_and_reports(tmp_path: Path) -> None:
    rows = [
        instruct_row(f"Who is {i}?", DOCUMENTS[:1], f"Document [1]: {'ab'[i % 2]}")
        for i in range(40)
    ]
    report = instruct(tmp_path, rows, llama())
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    assert report["rows"]["train"] + report["rows"]["held_out"] == 40
    assert report["held_out"]["loss"] < 2.5
    instruct(tmp_path / "lora", rows, llama(), lora_rank=4, num_train_epochs=0.5)
    lora = tmp_path / "lora" / "out"
    adapter = json.loads((lora / "adapter" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 8)
    assert not same(weights(lora / "model"), weights(tmp_path / "out" / "model"))
    with pytest.raises(BadTrainingData, match="has an encoder"):
        instruct(tmp_path / "t5", rows, (t5(), t5_tokenizer()))
    model, words = llama()
    words.eos_token = None
    with pytest.raises(BadTrainingData, match="end token"):
        instruct(tmp_path / "none", rows, (model, words))


class LastNumber(RetrievalEvaluator):
    """Grades a passage by the number that it ends with."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [float(passage.split()[-1]) for passage in passages]


GOOD, BAD = [0.5 + n / 40 for n in range(12)], [-0.5 - n / 40 for n in range(12)]
JUDGED = [
    Graded(question=f"Who is {good}?", positives=(f"good {good}",), negatives=(f"bad {bad}",))
    for good, bad in zip(GOOD, BAD, strict=True)
]


def test_thresholds_part_what_can_be_parted() -> None:
    found = calibrate_evaluator(LastNumber(), JUDGED)
    assert found["counts"] == {"correct": 12, "incorrect": 12, "ambiguous": 0}
    assert -0.5 < found["thresholds"]["lower"] <= found["thresholds"]["upper"] < 0.5
    assert found["action_accuracy"] == 1.0
    assert len(found["held_out"]) == 2
    assert calibrate_evaluator(LastNumber(), JUDGED[::-1]) == found  # whatever the file's order
    assert json.loads(json.dumps(found)) == found
    assert calibrate_evaluator(LastNumber(), JUDGED[:1])["held_out"] == []
