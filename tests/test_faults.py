"""Parts of the graphs that break: the error or note, what stops, and going on from the thread."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag.errors import EvaluatorFailed, ModelFailed, NoDocument, RetrievalFailed
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.reflection import RETRIEVAL
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.state import Segment
from selfcorrect_rag.thresholds import Thresholds
from tests.four_graphs import ALL, create
from tests.scripted import FULL, RELEVANT, THREAD, USEFUL, ScriptedLLM, document, segment

CORRECTING = ("crag", "self_crag")
REFLECTING = ("self_rag", "self_crag")
ASKED: Any = {"question": "Who wrote Emma?"}
GO_ON = "ask again once it works, or go on from the thread with invoke(None, config)"


class Part:
    """A part that counts what it finished, and that breaks after some calls until it is mended."""

    def __init__(self, works: Callable[..., Any]) -> None:
        self.works, self.does = works, works
        self.after, self.calls, self.done = 0, 0, Counter[str]()

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        if self.does is not self.works and self.calls > self.after:
            return self.does(*given)
        self.done[repr(given)] += 1
        return self.works(*given)


class Parts:
    """The parts of a graph: documents are ambiguous, so that every node of CRAG runs."""

    def __init__(self) -> None:
        self.retriever = Part(lambda query: [document("Emma", "Emma is a novel.")])
        self.evaluator = Part(lambda texts: [0.0] * len(texts))
        self.web = Part(lambda query: [document("Page", "A page of the web.")])
        self.model = Part(lambda prompt: "Austen.")
        self.rewriter = Part(lambda prompt: "Emma, author")
        self.retrieval = 0.9

    def reflecting(self) -> ScriptedLLM:
        """Return a model that writes two segments, unless ``model`` gives others."""
        model = self.model

        class Reflecting(ScriptedLLM):
            def _segments(self, prompts: Any, **given: Any) -> list[Segment]:
                said = model("\n".join(p.to_string() for p in prompts))
                return super()._segments(prompts, **given) if said == "Austen." else said

        def write(prompt: str) -> Any:
            if "Austen." in prompt.split("### Response:\n")[-1]:
                return segment("In 1815.", RELEVANT, FULL, USEFUL)
            return segment("Austen.", RELEVANT, FULL, USEFUL, next={RETRIEVAL: 1.0})

        return Reflecting(write=write, retrieval=self.retrieval)

    def build(self, graph: str, **options: Any) -> Any:
        model, evaluator, web = self.model, self.evaluator, self.web

        class Evaluator(RetrievalEvaluator):
            thresholds = Thresholds(upper=0.5, lower=-0.5)

            def score(self, question: str, passages: Any) -> Any:
                return evaluator(tuple(passages))

        class Pages(WebSearch):
            name = "pages"

            def search(self, query: str, k: int) -> Any:
                return web(query)

        options = {"checkpointer": InMemorySaver(), **options}
        chat = RunnableLambda(lambda asked: model(str(asked)))
        llm = self.reflecting()
        options["rewriter"] = RunnableLambda(lambda asked: self.rewriter(str(asked)))
        return create(graph, llm, chat, self.retriever, Evaluator(), Pages(), **options)


async def ask(graph: Any, form: str, *args: Any, **options: Any) -> Any:
    if form == "async":
        return await graph.ainvoke(*args, **options)
    return graph.invoke(*args, **options)


async def stream(graph: Any, form: str, *args: Any, **options: Any) -> list[Any]:
    if form == "async":
        return [part async for part in graph.astream(*args, **options)]
    return list(graph.stream(*args, **options))


def raises(error: Exception) -> Callable[..., Any]:
    def broken(*given: Any) -> Any:
        raise error

    return broken


def empty(*given: Any) -> Any:
    return next(iter([]))


DOWN = ConnectionError("no route\nto it")
FORMS = pytest.mark.parametrize("form", ["sync", "async"])

ENDS: list[tuple[Any, str, Any, int, type[Exception], Any, str]] = [
    # graphs, part, what it does, after so many calls, the error, its cause, its message
    (("self_rag",), "retriever", raises(DOWN), 0, RetrievalFailed, ConnectionError,
     f"the retriever raised ConnectionError: no route to it; {GO_ON}"),
    (("self_rag",), "retriever", empty, 0, RetrievalFailed, Exception, "the retriever raised"),
    (ALL, "retriever", lambda q: None, 0, NoDocument, None, "the retriever gave None"),
    (ALL, "retriever", lambda q: ["Emma"], 0, NoDocument, None, "gave a str as document 0"),
    (CORRECTING, "evaluator", raises(DOWN), 0, EvaluatorFailed, ConnectionError, "no route to it"),
    (CORRECTING, "evaluator", raises(DOWN), 1, EvaluatorFailed, ConnectionError, "no route to it"),
    (CORRECTING, "evaluator", empty, 0, EvaluatorFailed, Exception, "the evaluator ("),
    (CORRECTING, "evaluator", lambda t: None, 0, EvaluatorFailed, None, "gave None"),
    (CORRECTING, "evaluator", lambda t: [], 0, EvaluatorFailed, None, "gave [] for 1 passages"),
    (CORRECTING, "evaluator", lambda t: [float("nan")], 0, EvaluatorFailed, None, "nan"),
    (CORRECTING, "evaluator", lambda t: [57.0], 0, EvaluatorFailed, None, "57.0"),
    (ALL, "model", raises(DOWN), 0, ModelFailed, ConnectionError, f"no route to it; {GO_ON}"),
    (REFLECTING, "model", raises(DOWN), 1, ModelFailed, ConnectionError, "no route to it"),
    (("crag", "instruct_rag"), "model", lambda p: None, 0, ModelFailed, None, "NoneType"),
    (("crag",), "model", lambda p: 5, 0, ModelFailed, None, "gave int; give a model that returns"),
    (REFLECTING, "model", lambda p: [], 0, ModelFailed, None, "0 segments"),
    (CORRECTING, "web", lambda q: None, 0, NoDocument, None, "pages gave None"),
    (CORRECTING, "web", lambda q: [{"url": "a"}], 0, NoDocument, None, "pages gave a dict"),
]  # fmt: skip


@FORMS
@pytest.mark.parametrize(
    ("graph", "part", "does", "after", "error", "cause", "message"),
    [(graph, *rest) for graphs, *rest in ENDS for graph in graphs],
)
async def test_a_fault_ends_the_run_which_goes_on_from_its_thread(
    form: str, graph: str, part: str, does: Any, after: int, error: Any, cause: Any, message: str
) -> None:
    parts = Parts()
    broken: Part = getattr(parts, part)
    broken.does, broken.after = does, after
    built = parts.build(graph)
    with pytest.raises(error) as raised:
        await ask(built, form, ASKED, THREAD)
    said = str(raised.value).split("\nDuring task")[0]
    assert message in said
    assert "\n" not in said
    assert isinstance(raised.value.__cause__, cause or type(None))
    broken.does = broken.works
    result = await ask(built, form, None, THREAD)
    assert result["answer"]
    if part != "retriever":
        assert set(parts.retriever.done.values()) == {1}, "nothing is retrieved again"


GOES_ON: list[tuple[Any, str, Any, int, str, str | None]] = [
    # graphs, part, what it does, after so many calls, a note, what stopped
    (CORRECTING, "retriever", raises(DOWN), 0, "the retriever raised ConnectionError", None),
    (("instruct_rag",), "retriever", raises(DOWN), 0, "asked without documents", None),
    (("self_rag",), "retriever", raises(DOWN), 1, "it: the answer ends after segment", "retriever"),
    (("self_rag",), "retriever", lambda q: [], 0, "no passage was found for 'Who wrote", None),
    (REFLECTING, "model", raises(DOWN), 2, "the answer ends after segment 1", "model"),
    (CORRECTING, "web", raises(DOWN), 0, "(pages): the search raised ConnectionError: no", None),
    (CORRECTING, "web", lambda q: [], 0, "web search (pages): the search found nothing", None),
    (CORRECTING, "rewriter", raises(DOWN), 0, "rewriting failed: the model", None),
    (CORRECTING, "rewriter", lambda p: "", 0, "gave no usable query: it was made by rule", None),
    (("crag",), "rewriter", lambda p: "x" * 201, 0, "gave no usable query", None),
    (("crag", "instruct_rag"), "model", lambda p: " ", 0, "the model wrote nothing", None),
]  # fmt: skip


@FORMS
@pytest.mark.parametrize(
    ("graph", "part", "does", "after", "note", "stopped"),
    [(graph, *rest) for graphs, *rest in GOES_ON for graph in graphs],
)
async def test_a_run_goes_on_without_what_it_can_do_without(
    form: str, graph: str, part: str, does: Any, after: int, note: str, stopped: str | None
) -> None:
    parts = Parts()
    broken: Part = getattr(parts, part)
    broken.does, broken.after = does, after
    result = await ask(parts.build(graph), form, ASKED, THREAD)
    assert result["answer"]
    assert any(note in each for each in result["notes"]), result["notes"]
    assert result["stopped"] == stopped
    if part == "rewriter":
        assert parts.web.done == {"('wrote, Emma',)": 1}
    assert all(each.isprintable() for each in result["notes"])


@FORMS
async def test_an_evaluator_that_fails_late_ends_self_crag_with_what_is_written(form: str) -> None:
    parts = Parts()
    parts.retrieval = 0.01  # the first segment is written without evidence
    parts.evaluator.does = raises(DOWN)
    result = await ask(parts.build("self_crag"), form, ASKED, THREAD)
    assert (result["answer"], result["stopped"]) == ("Austen.", "evaluator")
    assert result["citations"] == []


def test_a_message_that_ends_in_a_full_stop_goes_on_with_its_remedy() -> None:
    assert str(ModelFailed("it raised APIError: Connection error.", GO_ON)) == (
        f"it raised APIError: Connection error; {GO_ON}"
    )
