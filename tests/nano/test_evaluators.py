"""The shipped evaluators, and what they are trained on. Bounds are far below what
`nano_training.evaluate_evaluators` measures: they tell a broken model, not a worse one."""

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from nano_training import graded
from nano_training.evaluate_evaluators import on_the_made_up_world
from nano_training.models import tiny_t5_path
from nano_training.pretraining import Pretraining, Settings, Stream, evaluator_tokenizer
from selfcorrect_rag import create_crag
from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.nano import demo_web, generator_path, load_evaluator
from selfcorrect_rag.nano.embedded import demo_passages, demo_questions
from selfcorrect_rag.nano.evaluators import CROSS_ENCODER

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[3] / "shared" / "data"))
TOY = Settings(steps=4, tokens=512, layers=1, inner=64, threads=1, save_every=2)


@cache
def nano() -> T5Evaluator:
    return T5Evaluator.from_pretrained(tiny_t5_path())


@cache
def cross_encoder() -> T5Evaluator:
    return load_evaluator()


@pytest.mark.parametrize(("folder", "most"), [(tiny_t5_path(), 15), (CROSS_ENCODER, 8)])
def test_they_ship_small_and_with_their_cards(folder: Path, most: float) -> None:
    files = list(folder.iterdir())
    assert "README.md" in [file.name for file in files]
    assert sum(file.stat().st_size for file in files) < most * 2**20


def test_the_nano_t5_is_a_t5_that_tells_passages_apart() -> None:
    assert type(nano()._model).__name__ == "T5ForSequenceClassification"
    figures = on_the_made_up_world(nano(), cases=60)
    assert figures["other"]["accuracy"] > 0.85
    assert figures["missing"]["accuracy"] > 0.7


def test_the_cross_encoder_knows_the_demo_corpus() -> None:
    passages = {p.metadata["title"]: p for p in demo_passages()}
    right = 0
    facts = [row for row in demo_questions() if row["kind"] == "fact"][:40]
    others = list(passages.values())
    for i, row in enumerate(facts):
        asked = [
            passages[row["title"]],
            others[7 * i % len(others)],
            others[(11 * i + 5) % len(others)],
        ]
        scores = cross_encoder().score(row["question"], [graded.as_read(**_of(p)) for p in asked])
        right += scores[0] > max(scores[1:])
    assert right >= 36


def _of(document: Document) -> dict[str, str]:
    return {"title": document.metadata["title"], "text": document.page_content}


async def test_sixty_four_runs_share_an_evaluator_without_mixing() -> None:
    """On the real T5, each with documents of its own."""
    evaluator = nano()

    def retrieve(query: str) -> list[Document]:
        name = query.removeprefix("Who wrote ").rstrip("?")
        texts = [f"{name} is a novel by {name[::-1].title()}.", f"{name[::-1]} lies in Spain."]
        return [Document(text, metadata={"title": name}) for text in texts]

    graph = create_crag(RunnableLambda(lambda m: m[-1].content), retrieve, evaluator, demo_web())
    context: Any = {"without_action": "incorrect"}
    asked: list[Any] = [{"question": f"Who wrote Book {chr(65 + i % 26)}{i}?"} for i in range(64)]
    alone = [await graph.ainvoke(each, context=context) for each in asked[:8]]
    together = await asyncio.gather(*(graph.ainvoke(each, context=context) for each in asked))
    for one, other in zip(alone, together, strict=False):
        assert one["passages"] == other["passages"]
        scores = [[grade["score"] for grade in run["grades"]] for run in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert len({run["knowledge"][0].page_content for run in together}) == 64


def test_hints_mark_the_answer_in_the_passage_and_nothing_in_a_wrong_one() -> None:
    tokenizer = evaluator_tokenizer(generator_path())
    stream = Stream(tokenizer, TOY)
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
    again = Stream(tokenizer, TOY).batch(0)
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
    rows = graded.world_rows(20, "test")
    assert rows == graded.world_rows(20, "test")
    assert all(len(row.positives) == 1 and len(row.negatives) == 3 for row in rows)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}: set SELFCORRECT_DATA")
def test_nothing_of_a_held_out_question_is_trained_on() -> None:
    rows = graded.harder(DATA, "test")
    assert rows
    assert {row.part for row in rows} == {"train"}
    assert all(len(row.positives) == 1 for row in graded.popqa(DATA))
    assert len({row.question for row in graded.nq_open(DATA)}) > 2600


def test_the_strip_with_the_answer_is_relevant_and_the_rest_is_not() -> None:
    before = (
        "Emma Poe was a poet of the north. She wrote very many long books. "
        "Few people read any of them now."
    )
    after = "Her father was a smith in town. She had two brothers at sea."
    held = "She was born in Bergen in 1820."
    (row,) = graded._cut("Where was she born?", ["Bergen"], "Emma Poe", f"{before} {held} {after}")
    assert row.positives == (f"Emma Poe // {held} {after}",)
    assert row.negatives == (f"{before} {after}",)
    across = f"{before} It was B. Traven who told of her. {after}"
    (row,) = graded._cut("Who told of her?", ["B. Traven"], "Emma Poe", across)
    assert row.negatives == (), "no sentence holds the answer, and yet the rest does"
