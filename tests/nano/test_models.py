"""The models that ship do what they are for; the figures on their cards are of `nano_training`."""

import asyncio
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from nano_training.models import tiny_t5_path
from selfcorrect_rag import create_crag, create_instruct_rag
from selfcorrect_rag.models import T5Evaluator, TransformersReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import titled
from selfcorrect_rag.nano import (
    demo_index,
    demo_passages,
    demo_questions,
    demo_web,
    generator_path,
    load_generator,
    load_rationale_model,
    rationale_model_path,
)
from selfcorrect_rag.prompts import segment_prompt
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.reflection import Group, critique
from selfcorrect_rag.settings import InstructRAGSettings

REAL = [
    (
        "Who wrote Middlemarch?",
        "Middlemarch",
        "George Eliot",
        "Middlemarch is a novel by the English author George Eliot, published in 1871.",
    ),
    (
        "When was the Eiffel Tower completed?",
        "Eiffel Tower",
        "1889",
        "The Eiffel Tower is a tower in Paris. It was completed in 1889.",
    ),
    (
        "What is the capital of Mongolia?",
        "Mongolia",
        "Ulaanbaatar",
        "Mongolia is a landlocked country in Asia. Its capital and largest city is Ulaanbaatar.",
    ),
    (
        "Where was Marie Curie born?",
        "Marie Curie",
        "Warsaw",
        "Marie Curie (7 November 1867 – 4 July 1934) was a physicist and chemist. "
        "She was born in Warsaw.",
    ),
]


@cache
def generator() -> TransformersReflectionLLM:
    return load_generator()


@cache
def rationale_model() -> TransformersReflectionLLM:
    return load_rationale_model()


@pytest.mark.parametrize("folder", [generator_path(), rationale_model_path()])
def test_they_ship_small_and_with_their_cards(folder: Path) -> None:
    files = list(folder.iterdir())
    assert "README.md" in [file.name for file in files]
    assert sum(file.stat().st_size for file in files) < 9e6


def answers(title: str, text: str, questions: Sequence[str]) -> list[dict]:
    document = Document(text, metadata={"title": title})
    prompts = [segment_prompt(q, [], [document], "retrieve", 0) for q in questions]
    return generator().generate_segments(prompts, max_tokens=40)


def test_real_sentences() -> None:
    right = 0
    for question, title, answer, text in REAL:
        (segment,) = answers(title, text, [question])
        right += answer in segment["text"]
    assert right >= len(REAL) - 1


def test_a_segment_carries_every_group_of_critique() -> None:
    question, title, _, text = REAL[0]
    (segment,) = answers(title, text, [question])
    scores = critique(segment["reflections"])
    assert scores["ISREL"] > 0.5
    assert scores["ISSUP"] > 0.5
    assert scores["ISUSE"] > 0
    assert {r["group"] for r in segment["reflections"]} == {Group.ISREL, Group.ISSUP, Group.ISUSE}


def test_the_evaluator_knows_the_demo_corpus() -> None:
    evaluator = ReaderEvaluator(Reader.load())
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
        scores = evaluator.score(row["question"], [titled(p) for p in asked])
        right += scores[0] > max(scores[1:])
    assert right >= 36


async def test_sixty_four_runs_share_an_evaluator_without_mixing() -> None:
    """On the real T5, each with documents of its own."""
    evaluator = T5Evaluator.from_pretrained(tiny_t5_path())

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


@pytest.mark.parametrize("mode", ["ft", "ralm"])
def test_through_the_graph(mode: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    index = demo_index(tmp_path_factory.getbasetemp() / "demo")
    settings = InstructRAGSettings(rationale_tokens=400, instruction="Give only the answer.")
    graph = create_instruct_rag(rationale_model(), index.as_retriever(), settings=settings)
    asked: dict[str, str] = {"question": "Who wrote Don Quixote?"}
    result = graph.invoke(asked, context={"mode": mode})  # type: ignore[arg-type]
    assert result["answer"]
    if mode == "ft":
        assert "Miguel de Cervantes" in result["answer"]
        (useful,) = result["useful_documents"]
        assert result["passages"][useful].metadata["title"] == "Don Quixote"
        assert f"[{result['citations'][0]['number']}]" in result["rationale"]
