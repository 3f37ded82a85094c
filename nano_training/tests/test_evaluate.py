"""The evaluations of the nano models. Bounds are far below the figures of their cards: they tell a
broken model, not a worse one."""

from functools import cache

import pytest

from nano_training import evaluate_evaluator, evaluate_rationales
from nano_training.evaluate_generator import Evaluation
from nano_training.models import tiny_t5_path
from selfcorrect_rag.models import T5Evaluator, TransformersReflectionLLM
from selfcorrect_rag.nano import load_generator, load_rationale_model


@cache
def generator() -> TransformersReflectionLLM:
    return load_generator()


@cache
def rationale_model() -> TransformersReflectionLLM:
    return load_rationale_model()


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return Evaluation(generator(), cases=10, seed="test")


def assert_above(figures: dict[str, float], bounds: dict[str, float]) -> None:
    assert not {name: figures[name] for name, bound in bounds.items() if figures[name] < bound}


def test_decisions(evaluation: Evaluation) -> None:
    bounds = {"retrieve_for_facts": 0.9, "no_retrieval_for_tasks": 0.5}
    assert_above(evaluation.decisions(), bounds)


def test_relevance_and_answers(evaluation: Evaluation) -> None:
    bounds = {"isrel_gold": 0.7, "answer_from_gold": 0.5, "isrel_other_entity": 0.8}
    assert_above(evaluation.relevance(), bounds)


def test_support(evaluation: Evaluation) -> None:
    assert_above(evaluation.support(), {"issup_right": 0.8, "issup_wrong": 0.5})


def test_the_nano_t5_is_a_t5_that_tells_passages_apart() -> None:
    evaluator = T5Evaluator.from_pretrained(tiny_t5_path())
    assert type(evaluator._model).__name__ == "T5ForSequenceClassification"
    figures = evaluate_evaluator.on_the_made_up_world(evaluator, cases=60)
    assert figures["other"]["accuracy"] > 0.85
    assert figures["missing"]["accuracy"] > 0.7


def test_names_and_wordings_that_it_never_saw() -> None:
    figures = evaluate_rationales.on_the_made_up_world(rationale_model(), cases=40)
    assert figures["instruct_rag"]["contained"] > 0.65
    assert figures["instruct_rag"]["document"] > 0.7
    assert figures["instruct_rag"]["concluded"] > figures["ralm"]["concluded"] + 0.2
