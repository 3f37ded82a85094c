"""What the nano T5 is trained on and measured by, and how it learns to read before."""

import json
from pathlib import Path

import pytest
import torch

from nano_training import evaluator_data
from nano_training.t5_pretraining import (
    PairStream,
    Pretraining,
    PretrainingSettings,
    evaluator_tokenizer,
)
from selfcorrect_rag.nano import generator_path

TOY = PretrainingSettings(
    steps=4, batch_tokens=512, layers=1, intermediate_size=64, threads=1, save_every=2
)


def test_hints_mark_the_answer_in_the_passage_and_nothing_in_a_wrong_one() -> None:
    tokenizer = evaluator_tokenizer(generator_path())
    stream = PairStream(tokenizer, TOY)
    batch = stream.batch(0)
    assert batch.ids.shape == batch.answers.shape
    assert set(batch.labels.tolist()) == {1.0, -1.0}
    for ids, answers, label in zip(*batch, strict=True):
        inside = answers[ids > 0]
        assert (inside.max() == 1.0) == (label == 1.0)
        text = tokenizer.decode(ids[ids > 0])
        assert text.count("</s>") == 1
        marked = tokenizer.decode(ids[answers == 1.0])
        assert all(word in text.split("[SEP]")[1] for word in marked.split())
    again = PairStream(tokenizer, TOY).batch(0)
    assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True))


def test_pretraining_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    whole = Pretraining(TOY, tmp_path / "whole", generator_path())
    losses = [error for _, error, _ in whole.run()]
    assert len(losses) == TOY.steps
    killed = Pretraining(TOY, tmp_path / "killed", generator_path())
    for step, _, _ in killed.run():
        if step == 3:  # one step after the checkpoint
            break
    resumed = Pretraining(TOY, tmp_path / "killed", generator_path())
    assert [step for step, _, _ in resumed.run()] == [3, 4]
    weights = resumed.model.state_dict()
    assert all(torch.equal(weights[n], w) for n, w in whole.model.state_dict().items())


def test_made_up_rows_hold_what_they_say() -> None:
    rows = evaluator_data.world_rows(20, "test")
    assert rows == evaluator_data.world_rows(20, "test")
    assert all(len(row.positives) == 1 and len(row.negatives) == 3 for row in rows)


@pytest.mark.parametrize("titles", [True, False])
def test_the_page_of_a_question_s_subject_is_relevant(tmp_path: Path, titles: bool) -> None:
    pages = [("Ada Poe", "She wrote."), ("Emma Poe", "She was born in Bergen.")]
    row = {
        "question": "Where was Emma Poe born?",
        "s_wiki_title": "Emma Poe",
        "paragraphs": [{"title": title, "text": text} for title, text in pages],
    }
    (tmp_path / "popqa_dev_741.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (read,) = evaluator_data.popqa(tmp_path, titles=titles)
    assert read.positives == ("Emma Poe // She was born in Bergen."[0 if titles else 12 :],)
    assert len(evaluator_data.popqa_corpus(tmp_path, titles=titles)) == len(pages)
