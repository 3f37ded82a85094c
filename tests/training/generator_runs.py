"""Runs of generator data on a shelf of passages."""

from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.demo import demo_questions
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.training.generator_data import (
    GeneratorDataReport,
    GeneratorDataSettings,
    make_generator_data,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow
from tests.conftest import byte_level_tokenizer, random_model

SETTINGS = GeneratorDataSettings("critic", "index", top_k=3)
ROWS = [
    GeneratorRow(
        question["question"],
        f"It is {question['answers'][0]}. That is what the books say. I like it.",
        id=str(number),
        dataset_name="demo",
    )
    for number, question in enumerate(demo_questions()[:23])
]


class Shelf:
    """A retriever that finds three passages for anything, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.runnable: Runnable[str, list[Document]] = RunnableLambda(self.now)

    def now(self, query: str) -> list[Document]:
        self.asked.append(query)
        return [
            Document(f"On {query}, part {i}.", metadata={"title": f"T{i}", "score": 1 - i / 10})
            for i in range(3)
        ]


def opinionated(**options: Any) -> Critic:
    """Random weights, and every label somewhere."""
    words = byte_level_tokenizer()
    return Critic.from_model(random_model(len(words), 400), words, **options)


def make(
    out: Path, critic: Any, retriever: Any, rows: list[GeneratorRow] = ROWS, **options: Any
) -> GeneratorDataReport:
    return make_generator_data(critic, retriever, rows, out, SETTINGS, **options)


def files(out: Path) -> set[str]:
    return {path.name for path in out.with_name(f"{out.name}.run").iterdir()}
