"""Text that no honest source gives: broken, huge, or made to cost calls."""

from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag import create_crag, create_self_crag
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.search import RetrieverWebSearch
from tests.faults.cases import Seen, fault
from tests.faults.graphs import PASSAGE, QUESTION, Parts, call
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment

HALF = "an emoji cut in two \ud83d here"
CORRECTED = ("crag", "self_crag")
HUGE = "Emma is a novel by Jane Austen of 1815. " * 500_000


def answered(
    graph: str,
    form: str,
    given: Any = None,
    found: Document = PASSAGE,
    page: Document = PASSAGE,
    context: Any = None,
) -> Seen:
    """A run that ends in an answer, whatever it was given, its retriever and its web."""
    parts = Parts()
    parts.retriever.breaks(lambda query: [found])
    parts.web.breaks(lambda query: [page])
    result = call(
        parts.build(graph),
        form,
        given or QUESTION,
        {"configurable": {"thread_id": "1"}},
        context=context,
    )
    assert result["answer"]
    return Seen(None, result["notes"], "yes", result["stopped"])


def hostile(fault_: str, *graphs: str) -> Callable[..., Any]:
    return fault("Hostile and huge text", fault_, *([graphs] if graphs else []))


@hostile("half of a surrogate pair, or a control character, in the question")
def half_a_question(graph: str, form: str) -> Seen:
    return answered(graph, form, {"question": HALF})


@hostile("the same in a retrieved document, its title or its metadata")
def half_a_document(graph: str, form: str) -> Seen:
    return answered(graph, form, found=Document(HALF, metadata={"title": HALF, HALF: HALF}))


@hostile("the same in a document that the caller gives")
def half_a_given_document(graph: str, form: str) -> Seen:
    given = [{"page_content": HALF, "metadata": {"title": HALF}}]
    return answered(graph, form, {**QUESTION, "documents": given})


@hostile("the same on a web page", *CORRECTED)
def half_a_page(graph: str, form: str) -> Seen:
    return answered(graph, form, page=document("\x1b[2J", HALF))


@hostile("a question of a megabyte")
def huge_question(graph: str, form: str) -> Seen:
    return answered(graph, form, {"question": "Who wrote Emma? " * 70_000})


@hostile("a document of 20 megabytes")
def huge_document(graph: str, form: str) -> Seen:
    return answered(graph, form, found=document("Emma", HUGE))


@hostile("metadata of 20 megabytes")
def huge_metadata(graph: str, form: str) -> Seen:
    return answered(graph, form, found=document("Emma", "Emma is a novel.", html=HUGE))


@hostile("a web page of 20 megabytes", *CORRECTED)
def huge_page(graph: str, form: str) -> Seen:
    return answered(graph, form, page=document("Emma", HUGE))


@hostile("a thousand given documents")
def many_given(graph: str, form: str) -> Seen:
    return answered(graph, form, {**QUESTION, "documents": [PASSAGE] * 1000})


@hostile("a document of thousands of short sentences", *CORRECTED)
def many_strips(graph: str, form: str) -> Seen:
    return answered(graph, form, found=document("Emma", "Emma is a b c d. " * 2_000))


@hostile("an evaluator's model that keeps to no format", *CORRECTED)
def formless_judge(graph: str, form: str) -> Seen:
    calls = []

    def judge(prompt: str) -> str:
        calls.append(prompt)
        return "I would rather not say."

    pages = [document(f"Emma {i}", "Emma is a novel of 1815. " * 20) for i in range(5)]
    evaluator = ChatEvaluator(RunnableLambda(judge))
    web = RetrieverWebSearch(lambda query: pages, "pages")
    parts: Any = (lambda query: pages, evaluator, web)
    if graph == "crag":
        made: Any = create_crag(RunnableLambda(lambda prompt: "Austen."), *parts)
    else:
        write = ScriptedReflectionLLM(write=lambda p: segment("Austen.", RELEVANT, FULL, USEFUL))
        made = create_self_crag(write, *parts)
    result = call(made, form, QUESTION)
    assert result["answer"]
    assert len(calls) == (1 + 4 + 4) + 3, "one call more for each step that asks it"
    return Seen(None, result["notes"], "yes", result["stopped"])


@hostile("more model calls than a run may make", *CORRECTED)
def too_many_calls(graph: str, form: str) -> Seen:
    return answered(graph, form, context={"max_model_calls": 2})
