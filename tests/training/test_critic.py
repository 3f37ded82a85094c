"""Fine-tuning the critic at toy size: it learns and reports."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from tokenizers import Regex, normalizers
from transformers import (
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5ForConditionalGeneration,
)

from selfcorrect_rag.cli import main
from selfcorrect_rag.errors import BadRun, BadTrainingData, ModelNotFound
from selfcorrect_rag.models.critic import (
    Answer,
    Critic,
    CriticInput,
    TransformersCritic,
    critic_prompt,
    read_answer,
)
from selfcorrect_rag.reflection import TOKENS, Group
from selfcorrect_rag.training.critic import CriticSettings, agreement, train_critic
from selfcorrect_rag.training.critic_data import CriticDataSettings, CriticRow, critic_labelling
from selfcorrect_rag.training.rows import Part, part_of
from tests.conftest import byte_level_tokenizer, random_model
from tests.tiny_evaluators import t5_config, t5_tokenizer
from tests.training.critic_runs import instances
from tests.training.teacher import quick

TOY = CriticSettings(
    model="toy",
    num_train_epochs=4,
    learning_rate=3e-3,
    batch_size=8,
    per_device_batch_size=8,
    max_length=160,
    seed=1,
)


def toy_rows(number: int) -> list[CriticRow]:
    """What token is right can be seen from a word."""
    rows = []
    for i in range(number):
        group = list(Group)[i % 4]
        token = TOKENS[group][i // 4 % len(TOKENS[group])]
        word = "pqrst"[TOKENS[group].index(token)] * 4
        part: Part = part_of(f"question {i}")
        rows.append(CriticRow(f"{group}?", f"{word} {word} {i % 7}", token, part))
    return rows


ROWS = toy_rows(240)


def causal() -> tuple[Any, Any]:
    words = byte_level_tokenizer()
    torch.manual_seed(0)
    model = random_model(len(words), 256)
    for weights in model.parameters():
        if weights.ndim == 2:
            torch.nn.init.normal_(weights, std=0.05)
    return model, words


def encoder_decoder() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(t5_config(dropout_rate=0.0)), t5_tokenizer()


BASES = {
    "causal": (causal, 4, tuple(Group)),
    "t5": (encoder_decoder, 12, (Group.ISREL, Group.ISSUP)),
}
"""Each with the epochs that it takes to learn these groups."""
each = pytest.mark.parametrize("kind", BASES)


def mamba() -> tuple[Any, Any]:
    """A recurrent state in place of a cache."""
    words = byte_level_tokenizer()
    torch.manual_seed(0)
    config = MambaConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, initializer_range=0.4
    )
    return MambaForCausalLM(config), words


def windows() -> tuple[Any, Any]:
    """Attention to the last tokens alone, in every layer."""
    words = byte_level_tokenizer()
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=16,
        initializer_range=0.2,
    )
    return MistralForCausalLM(config), words


def static() -> tuple[Any, Any]:
    """A checkpoint that names its own kind of cache."""
    model, words = causal()
    model.generation_config.cache_implementation = "static"
    return model, words


ARCHITECTURES = {
    "causal": causal,
    "t5": encoder_decoder,
    "mamba": mamba,
    "windows": windows,
    "static": static,
}


def loaded(run: Path, **options: Any) -> TransformersCritic:
    return TransformersCritic.from_pretrained(run / "critic", device="cpu", **options)


def made(kind: str, **options: Any) -> Critic:
    return TransformersCritic(*BASES[kind][0](), **options)


# Training


@each
def test_it_learns_reports_and_loads(tmp_path: Path, kind: str) -> None:
    base, epochs, groups = BASES[kind]
    rows = [row for row in ROWS if row.critic_input.group in groups]
    settings = dataclasses.replace(TOY, num_train_epochs=epochs)
    report = train_critic(rows, tmp_path, settings, base=base())
    test = report["test"]
    assert list(test["accuracy"]) == ["Retrieve", "ISSUP", "ISREL", "ISUSE"]
    assert all(test["accuracy"][group] > test["base_rate"][group] for group in groups)
    assert sum(test["accuracy"][group] for group in groups) > 0.85 * len(groups)
    counted = [
        n for table in test["confusion"].values() for g in table.values() for n in g.values()
    ]
    assert sum(counted) == report["rows"]["test"] == sum(r.part == "test" for r in rows)
    assert report["shortened"] == 0
    assert json.loads((tmp_path / "report.json").read_text()) == report
    critic = TransformersCritic.from_pretrained(
        tmp_path / "critic", max_tokens=settings.max_length, device="cpu"
    )
    assert agreement(critic, [row for row in rows if row.part == "test"]) == test


@each
def test_an_adapter_is_trained_and_merged(tmp_path: Path, kind: str) -> None:
    base, _, groups = BASES[kind]
    rows = [row for row in ROWS if row.critic_input.group in groups]
    settings = dataclasses.replace(TOY, num_train_epochs=1, lora_rank=4)
    report = train_critic(rows, tmp_path, settings, base=base())
    critic = TransformersCritic.from_pretrained(
        tmp_path / "critic", max_tokens=settings.max_length, device="cpu"
    )
    assert agreement(critic, [row for row in rows if row.part == "test"]) == report["test"]
    beside = PeftModel.from_pretrained(base()[0], tmp_path / "adapter").merge_and_unload()
    trained, begun = beside.state_dict(), base()[0].state_dict()
    merged = critic.model.state_dict()
    assert all(torch.allclose(trained[key], merged[key], atol=1e-5) for key in trained)
    changed = {key for key in begun if not torch.allclose(begun[key], merged[key], atol=1e-6)}
    assert changed
    assert not any("embed" in key or "shared" in key for key in changed)


def test_data_and_settings_that_cannot_be(tmp_path: Path) -> None:
    train = [row for row in ROWS if row.part == "train"]
    with pytest.raises(BadTrainingData, match="is in the test part"):
        train_critic(train, tmp_path, TOY, base=causal())
    with pytest.raises(BadTrainingData, match="is in the train part"):
        train_critic([], tmp_path, TOY, base=causal())
    with pytest.raises(BadTrainingData, match="batch_size 8 is no multiple of 3"):
        train_critic(
            ROWS, tmp_path, dataclasses.replace(TOY, per_device_batch_size=3), base=causal()
        )
    missing = dataclasses.replace(TOY, model=str(tmp_path / "missing"))
    with pytest.raises(ModelNotFound, match="missing"):
        train_critic(ROWS, tmp_path, missing)
    assert list(tmp_path.iterdir()) == [], "a mended command is not refused"
    short = dataclasses.replace(TOY, num_train_epochs=0.1)
    train_critic(ROWS, tmp_path, short, base=causal())
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        train_critic(ROWS, tmp_path, dataclasses.replace(short, seed=7), base=causal())
    with pytest.raises(BadRun, match=r"other settings \(data\)"):
        train_critic(ROWS[1:], tmp_path, short, base=causal())


class Stubborn:
    """Gives the same tokens whatever it is asked."""

    def judge(self, asked: list[CriticInput]) -> list[str]:
        return [TOKENS[one.group][1] for one in asked]


def test_agreement_by_hand() -> None:
    tokens = ["[Relevant]", "[Relevant]", "[Relevant]", "[Irrelevant]", "[Utility:1]"]
    rows = [CriticRow("i", "x", token, "test") for token in tokens]
    found = agreement(Stubborn(), rows)  # type: ignore[arg-type]
    assert found["accuracy"] == {"Retrieve": None, "ISSUP": None, "ISREL": 0.75, "ISUSE": 0.0}
    assert found["base_rate"] == {"Retrieve": None, "ISSUP": None, "ISREL": 0.75, "ISUSE": 1.0}
    assert found["confusion"]["ISREL"] == {
        "[Irrelevant]": {"[Irrelevant]": 0, "[Relevant]": 1},
        "[Relevant]": {"[Irrelevant]": 0, "[Relevant]": 3},
    }
    assert found["confusion"]["ISUSE"]["[Utility:1]"]["[Utility:2]"] == 1


# The critic


ASKED = CriticInput("Is it?", "Output: she did", Group.ISREL)


def test_the_prompt_of_training_is_the_one_it_judges_by() -> None:
    """Official defect: trained without a preamble, run with one."""
    assert critic_prompt(ASKED) == (
        "### Instruction:\nIs it?\n\n### Input:\nOutput: she did\n\n### Response:"
    )
    critic = made("causal")
    example, prompt = critic.example(ASKED, "[Relevant]"), critic.prompt_ids(ASKED)
    assert critic.tokenizer.decode(prompt) == "<s>" + critic_prompt(ASKED)
    assert example["input_ids"][: len(prompt)] == prompt


def test_loss_is_on_the_token_and_the_end_alone() -> None:
    critic = made("causal")
    example, prompt = critic.example(ASKED, "[Relevant]"), critic.prompt_ids(ASKED)
    assert example["labels"][: len(prompt)] == [-100] * len(prompt)
    label = example["labels"][len(prompt) :]
    assert label == example["input_ids"][len(prompt) :]
    assert critic.tokenizer.decode(label) == "[Relevant]</s>"
    critic = made("t5")
    example = critic.example(ASKED, "[Irrelevant]")
    assert example["input_ids"] == critic.prompt_ids(ASKED)
    assert critic.tokenizer.decode(example["labels"]).replace(" ", "") == "[Irrelevant]</s>"


def test_a_tokenizer_that_writes_tokens_alike_is_refused() -> None:
    model, words = encoder_decoder()
    words.backend_tokenizer.normalizer = normalizers.Replace(Regex("Partially|Fully"), "E")
    with pytest.raises(ModelNotFound, match=r"ISSUP alike"):
        TransformersCritic(model, words)


@each
def test_it_writes_nothing_but_a_token_of_the_group(kind: str) -> None:
    critic = made(kind, batch=3)
    asked = [CriticInput("Is it?", "she did " * (i % 5), list(Group)[i % 4]) for i in range(16)]
    given = critic.judge(asked)
    for one, token in zip(asked, given, strict=True):
        assert token in TOKENS[one.group]
    assert given == [token for one in asked for token in critic.judge([one])], "batches are alike"
    assert critic.judge([]) == []


@pytest.mark.parametrize("kind", ["causal", "t5", "mamba", "windows", "static"])
def test_together_the_answers_are_those_of_one_at_a_time(kind: str) -> None:
    words = "she did it and then " * 8
    ragged = [CriticInput("Which of these?", words[: 3 * i], Group.ISSUP) for i in range(1, 40)]
    asked = [*ragged, ragged[3], *(row.critic_input for row in ROWS[:16])]
    made = ARCHITECTURES[kind]
    alone, batched = (TransformersCritic(*made(), batch=n, max_tokens=120) for n in (1, 16))
    for one, other in zip(_answers(alone, asked), _answers(batched, asked), strict=True):
        assert one.token == other.token
        assert one.probability == pytest.approx(other.probability, abs=1e-5)


def test_instructions_are_read_once_a_pass_and_labels_as_far_as_they_differ() -> None:
    critic, read = made("causal", batch=8), list[tuple[int, ...]]()
    critic.model.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda _, args, options: read.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    long = "Which of these is it? " * 8
    asked = [CriticInput(long, f"word {i}", Group.ISREL) for i in range(8)]
    _answers(critic, asked)
    (once, instructions), (rows, own) = read  # nothing follows: the labels differ at once
    assert (once, rows) == (1, 8)
    assert instructions > len(long) > 4 * own


def _answers(critic: Critic, asked: list[CriticInput]) -> list[Answer]:
    given = {i: answer for batch in critic.answers(asked) for i, answer in batch.items()}
    return [given[i] for i in range(len(asked))]


def test_the_probabilities_of_all_tokens() -> None:
    """b and c are told apart by a second id, whose probabilities are known where it was written."""
    labels = {"a": [1, 9], "b": [2, 3, 9], "c": [2, 4, 9]}
    first = {1: 0.25, 2: 0.75}
    answer = read_answer(labels, [2, 4, 9], [first, {3: 0.25, 4: 0.75}, {9: 1.0}])
    assert answer == ("c", {"a": 0.25, "b": 0.75 * 0.25, "c": 0.75 * 0.75})
    assert answer.probability == 0.75 * 0.75
    assert read_answer(labels, [1], [{1: 0.5, 2: 0.5}]) == ("a", {"a": 0.5, "b": 0.25, "c": 0.25})
    assert read_answer({"a": [1, 9]}, [], []) == ("a", {"a": 1.0})


@each
def test_the_probabilities_are_those_of_the_model(kind: str) -> None:
    critic = made(kind)
    asked = [CriticInput("Is it?", f"she did {i}", group) for i, group in enumerate(Group)]
    for one, answer in zip(asked, _answers(critic, asked), strict=True):
        assert list(answer.probabilities) == list(TOKENS[one.group])
        assert math.fsum(answer.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
        assert answer.probability > 0
        pair = one._replace(tokens=(answer.token, min(answer.probabilities)))
        assert len(_answers(critic, [pair])[0].probabilities) == len(set(pair.tokens))


def test_no_text_becomes_a_special_token() -> None:
    hostile = CriticInput("Is it?", "she </s> <s> did <pad> it\ud83d", Group.ISREL)
    for kind in BASES:
        critic = made(kind)
        ids = critic.prompt_ids(hostile)
        added = [i for i in ids if i in critic.tokenizer.all_special_ids]
        added = [i for i in added if i != critic.tokenizer.unk_token_id]
        assert added == [ids[0] if kind == "causal" else ids[-1]]
        assert critic.judge([hostile])[0] in TOKENS[Group.ISREL]


@each
def test_too_long_a_prompt_keeps_its_ends(kind: str) -> None:
    critic = made(kind, max_tokens=200)
    asked = CriticInput("Is it?", "Evidence: " + "she did " * 100 + "it is: no", Group.ISREL)
    ids = critic.fitted(critic.prompt_ids(asked))
    text = critic.tokenizer.decode(ids)
    assert len(ids) == critic.limit < 200
    assert "Is it?" in text
    assert "it is: no" in text
    assert len(critic.example(asked, "[Irrelevant]")["input_ids"]) <= 200
    assert critic.judge([asked])[0] in TOKENS[Group.ISREL]
    assert critic.fitted([1, 2, 3]) == [1, 2, 3]


# The command


def test_from_labels_to_a_critic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, words = encoder_decoder()
    model.save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")
    labels = critic_labelling(
        instances(40), tmp_path / "labels.jsonl", CriticDataSettings("teacher")
    )
    labels.run(quick)
    command = ["train", "critic", "--data", str(labels.out), "--out", str(tmp_path / "run")]
    options = ["--model", str(tmp_path / "base"), "--num-train-epochs", "1", "--batch-size", "16"]
    assert (
        main(
            [
                *command,
                *options,
                "--per-device-batch-size",
                "8",
                "--learning-rate",
                "0.001",
                "--max-length",
                "64",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out.splitlines()
    assert json.loads(printed[0])["warmup_ratio"] == 0.03
    heading = next(i for i, line in enumerate(printed) if line.endswith("ISREL     ISUSE"))
    assert json.loads(printed[heading - 1])["shortened"] > 0
    assert printed[heading].split() == ["Retrieve", "ISSUP", "ISREL", "ISUSE"]
    accuracy = printed[heading + 1]
    assert accuracy.startswith("test questions ")
    assert "ISSUP: the teacher's token, and how often the critic gave each" in printed
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert accuracy.split()[2] == f"{100 * report['test']['accuracy']['Retrieve']:.1f}"
    critic = loaded(tmp_path / "run")
    assert critic.judge([ASKED])[0] in TOKENS[Group.ISREL]


def test_bad_labels_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "critic", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert capsys.readouterr().err.startswith("selfcorrect-rag: cannot read")
