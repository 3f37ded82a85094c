"""The shipped generator answers questions about names that it never saw. Bounds are far below
what `nano_training.evaluate` measures: they tell a broken model, not a worse one."""

from collections.abc import Sequence
from functools import cache

import pytest
from langchain_core.documents import Document

from nano_training.evaluate import Evaluation
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import generator_path, load_generator
from selfcorrect_rag.prompts import segment_prompt
from selfcorrect_rag.reflection import Group, critique

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
def llm() -> TransformersReflectionLLM:
    return load_generator()


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return Evaluation(llm(), cases=10, seed="test")


def assert_above(figures: dict[str, float], bounds: dict[str, float]) -> None:
    assert not {name: figures[name] for name, bound in bounds.items() if figures[name] < bound}


def test_it_ships_small_and_with_its_card() -> None:
    files = list(generator_path().iterdir())
    assert sum(file.stat().st_size for file in files) < 20e6
    assert generator_path() / "README.md" in files


def test_decisions(evaluation: Evaluation) -> None:
    bounds = {"retrieve_for_facts": 0.9, "no_retrieval_for_tasks": 0.5}
    assert_above(evaluation.decisions(), bounds)


def test_relevance_and_answers(evaluation: Evaluation) -> None:
    bounds = {"isrel_gold": 0.7, "answer_from_gold": 0.5, "isrel_other_entity": 0.8}
    assert_above(evaluation.relevance(), bounds)


def test_support(evaluation: Evaluation) -> None:
    assert_above(evaluation.support(), {"issup_right": 0.8, "issup_wrong": 0.5})


def answers(title: str, text: str, questions: Sequence[str]) -> list[dict]:
    document = Document(text, metadata={"title": title})
    prompts = [segment_prompt(q, [], [document], "retrieve", 0) for q in questions]
    return llm().generate_segments(prompts, max_tokens=40)


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
    assert scores["isrel"] > 0.5
    assert scores["issup"] > 0.5
    assert scores["isuse"] > 0
    assert {r["group"] for r in segment["reflections"]} == {Group.ISREL, Group.ISSUP, Group.ISUSE}
