"""From a critic to a generator, at toy size, and how a critic is measured.

The critic has the weights of the nano generator, which was never trained on its prompts: what it
says is wrong more often than not, and what becomes of it is tested.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from nano_training import train_generator
from nano_training.evaluate_critic import agreement, as_chat_model, as_critic, judged
from nano_training.rows import NOT_SAID, unlabelled_rows
from nano_training.tokenizer import load_tokenizer
from nano_training.train_critic import chat_tokenizer
from nano_training.trainer import export
from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.chat.transformers_chat import TransformersChat
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.prompts import decision_prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS, Group
from selfcorrect_rag.training.generator_rows import order_faults, read_generator_rows

ROWS = 16


@pytest.fixture(scope="module")
def critic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("critic")
    model = LlamaForCausalLM.from_pretrained(generator_path(), dtype=torch.float32)
    export(model, chat_tokenizer(load_tokenizer(generator_path())), folder)
    return folder


def test_a_critic_becomes_a_generator(
    critic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"critic": critic, "out": tmp_path, "rows": ROWS}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["train_generator", *options])
    train_generator.main()
    data = tmp_path / "generator-data.jsonl"
    rows = read_generator_rows(data)
    assert len(rows) == ROWS
    assert [order_faults(row.output) for row in rows] == [[]] * ROWS
    report = (tmp_path / "data-report.json").read_text()
    assert json.loads(report)["calls"] > 0
    llm = TransformersReflectionLLM.from_pretrained(tmp_path / "generator")
    (asked,) = llm.choose([decision_prompt("Who wrote Emma?")], Group.RETRIEVE)
    assert asked["reflections"]

    written = data.read_bytes()
    train_generator.make_data(critic, tmp_path, ROWS)
    assert (tmp_path / "data-report.json").read_text() == report, "nothing is asked again"
    assert data.read_bytes() == written
    with pytest.raises(BadRun, match=r"other settings \(index\)"):
        train_generator.make_data(critic, tmp_path, ROWS + 1)


def test_a_critic_is_measured_in_both_of_its_forms(critic: Path) -> None:
    made = judged(1)
    perfect = agreement(made, [one.label for one in made])
    assert {share for of_prompt in perfect.values() for share in of_prompt.values()} == {1.0}
    labels = as_critic(critic, made)
    assert None not in labels, "a critic can say nothing but labels"
    few = made[:3]
    assert len(as_chat_model(TransformersChat.from_pretrained(critic), few)) == len(few)
    assert agreement(made, labels) != perfect


def test_outputs_come_with_pages_and_without_tokens() -> None:
    made = list(unlabelled_rows(200, seed=3))
    assert made == list(unlabelled_rows(200, seed=3))
    for one in made:
        for text in (*one.row[:3], *(page.page_content for page in one.pages)):
            assert not any(token in text for token in (*CONTROL_TOKENS, "</s>"))
        assert one.row.output.strip()
    asked = [one for one in made if one.pages]
    assert 0.8 < len(asked) / len(made) < 1
    silent = [one for one in asked if one.row.output == NOT_SAID]
    assert 0.2 < len(silent) / len(made) < 0.6
