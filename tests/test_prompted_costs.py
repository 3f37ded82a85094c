"""Calls of a chat model that is asked for reflections, and of the tutorial's scheme beside it."""

import asyncio
from typing import Any

import pytest
from benchmarks.generator_chat import GeneratorChat
from benchmarks.tutorial import create_tutorial
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import RunnableLambda

from benchmarks import tutorial
from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.demo import load_generator
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.state import total
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.crag_runs import document as text_document
from tests.prompted_runs import NOVEL, PASSAGES, QUESTION, hard, is_writing, reader
from tests.providers import LOGPROBS, REFUSES, Provider
from tests.test_costs import counts

ASKED: Any = {"question": QUESTION}


def essay(prompt: str) -> Any:
    """A model that keeps to no form, so that each critique is asked for twice."""
    return "It depends." if is_writing(prompt) else "Let me think about that at length."


MODELS: dict[str, dict[str, Any]] = {
    "probabilities": {"answer": reader, **LOGPROBS},
    "labels": {"answer": hard(reader), **REFUSES},
    "malformed": {"answer": essay, **REFUSES},
}


def warm(name: str) -> tuple[Any, Provider]:
    """A graph whose model is known: what it can do was found out by a first question."""
    model = Provider(**MODELS[name])
    graph = create_self_rag(PromptedReflectionLLM(model), lambda query: PASSAGES)
    assert graph.invoke(ASKED)["answer"]
    model._calls.clear()
    return graph, model


def test_every_request_is_counted_by_its_step() -> None:
    graph, model = warm("probabilities")
    result = graph.invoke(ASKED)
    # Both passages on Austen are relevant: one call for all ISREL, two for each that is written.
    calls = {step: calls for step, (calls, _, _) in counts(result).items()}
    assert calls == {"decide_retrieval": 1, "generate_and_critique": 1 + 2 * 2}
    assert len(model.calls) == 6
    assert total(result["costs"])["prompt_tokens"] == 60
    assert result["usage"]["model_calls"] == 6


def test_what_is_found_out_about_a_model_is_counted_too() -> None:
    model = Provider(**MODELS["labels"])
    graph = create_self_rag(PromptedReflectionLLM(model), lambda query: PASSAGES)
    result = graph.invoke(ASKED)
    assert total(result["costs"])["model_calls"] == len(model.calls) > 6


def test_crag_counts_a_prompted_answer_once() -> None:
    model = Provider(**MODELS["probabilities"])
    graph = create_crag(
        PromptedReflectionLLM(model),
        lambda query: [text_document("Gold is a novel by Jane Austen.")],
        WordEvaluator(),
        PagesWebSearch(),
    )
    for run in (graph.invoke, lambda asked: asyncio.run(graph.ainvoke(asked))):
        model._calls.clear()
        assert counts(run(ASKED))["generate"][0] == len(model.calls)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("name", list(MODELS))
def test_an_answer_within_any_number_of_requests(name: str, most: int) -> None:
    graph, model = warm(name)
    context: Any = {"max_model_calls": most}
    result = graph.invoke(ASKED, context=context)
    assert result["answer"]
    assert len(model.calls) == total(result["costs"])["model_calls"] <= most
    assert (result["stopped"] is None) == (most >= 13)
    model._calls.clear()
    again = asyncio.run(graph.ainvoke(ASKED, context=context))
    assert (again["answer"], again["notes"]) == (result["answer"], result["notes"])
    assert len(model.calls) <= most


def test_one_request_is_an_answer_without_critique() -> None:
    graph, model = warm("probabilities")
    result = graph.invoke(ASKED, context={"max_model_calls": 1})
    assert [is_writing(prompt) for prompt in model.prompts] == [True]
    assert (
        result["candidates"][0]["critique"]["ISREL"],
        result["candidates"][0]["critique"]["ISSUP"],
    ) == (None, None)


# The tutorial's scheme


def judged(**says: str) -> BaseChatModel:
    """A model that answers each of the tutorial's prompts as said."""

    def answer(prompt: str) -> str:
        named = {getattr(tutorial, name): text for name, text in says.items()}
        return named[prompt.split("\n", 1)[0]]

    return Provider(answer=answer)


@pytest.mark.parametrize(
    ("says", "calls", "answer"),
    [
        # 3 grades, an answer, and two judgements of it.
        ({"GRADE": "yes", "GROUNDED": "yes", "RESOLVES": "yes"}, 6, "Austen"),
        # 3 grades, then an answer and its judgement three times.
        ({"GRADE": "yes", "GROUNDED": "no"}, 9, "Austen"),
        # Answer, judgements, a new question; once more; the third round is an answer.
        ({"GRADE": "yes", "GROUNDED": "yes", "RESOLVES": "no"}, 6 + 1 + 6, "Austen"),
        # 3 grades and a new question, three times; then 3 grades.
        ({"GRADE": "no"}, 3 * 4 + 3, None),
    ],
)
def test_calls_of_the_tutorials_scheme(says: dict[str, str], calls: int, answer: str) -> None:
    model = judged(WRITE="Austen", REWRITE="Emma, author", **says)
    graph = create_tutorial(model, RunnableLambda(lambda query: PASSAGES))
    result = graph.invoke(ASKED)
    assert result.get("answer") == answer
    assert len(model.calls) == calls  # type: ignore[attr-defined]


def test_the_simulated_model_serves_both_schemes() -> None:
    chat = GeneratorChat(llm=load_generator())
    retriever = RunnableLambda(lambda query: [NOVEL, PASSAGES[0]])
    assert "Austen" in create_tutorial(chat, retriever).invoke(ASKED)["answer"]
    spent = chat.spent()
    assert spent["calls"] >= 5
    graph = create_self_rag(PromptedReflectionLLM(chat), retriever)
    result = graph.invoke(ASKED)
    assert "Austen" in result["answer"]
    assert all(
        r is not None for r in (result["candidates"][0]["critique"][k] for k in ("ISREL", "ISSUP"))
    )
    seen = chat.spent()
    assert seen["calls"] == total(result["costs"])["model_calls"] < spent["calls"]
