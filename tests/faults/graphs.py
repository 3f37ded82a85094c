"""The graphs of parts that break until they are mended, and count what they have done."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.reflection import RETRIEVAL
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.state import Segment
from selfcorrect_rag.thresholds import Thresholds
from tests.faults.cases import Seen
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment

QUESTION: Any = {"question": "Who wrote Emma?"}
PASSAGE = document("Emma", "Emma is a novel.")
PAGE = document("Page", "A page of the web.")


class Breaking:
    """A part that does its work, or what is told of it while it is broken."""

    def __init__(self, done: Counter[str], name: str, works: Callable[..., Any]) -> None:
        self._done, self._name, self._works = done, name, works
        self._broken: Callable[..., Any] | None = None
        self._after = self._calls = 0

    def breaks(self, broken: Callable[..., Any], after: int = 0) -> None:
        """Do this instead, after so many calls that still work."""
        self._broken, self._after = broken, after

    def mend(self) -> None:
        self._broken = None

    def __call__(self, *given: Any) -> Any:
        self._calls += 1
        if self._broken is not None and self._calls > self._after:
            return self._broken(*given)
        result = self._works(*given)
        self._done[f"{self._name}: {given}"] += 1
        return result


HANGING = threading.Event()
"""Set once what hangs may end, as long as nobody waits for it."""


def hangs(*given: Any) -> Any:
    """What does not answer, for as long as a test looks."""
    HANGING.wait(30)


def raises(error: Exception) -> Callable[..., Any]:
    """What raises this."""

    def broken(*given: Any) -> Any:
        raise error

    return broken


class Evaluator(RetrievalEvaluator):
    """Finds everything ambiguous, so that every node of CRAG runs."""

    thresholds = Thresholds(upper=0.5, lower=-0.5)

    def __init__(self, scores: Breaking) -> None:
        self._scores = scores

    def score(self, question: str, passages: Any) -> Any:
        return self._scores(passages)


class Pages(WebSearch):
    name = "pages"

    def __init__(self, found: Breaking) -> None:
        self._found = found

    def search(self, query: str, k: int) -> Any:
        return self._found(query)

    async def asearch(self, query: str, k: int) -> Any:
        return await asyncio.to_thread(self._found, query)


class Parts:
    """The parts of one graph; ``done`` counts what they have finished."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.retriever = Breaking(self.done, "retriever", lambda query: [PASSAGE])
        self.evaluator = Breaking(self.done, "evaluator", lambda texts: [0.0] * len(texts))
        self.web = Breaking(self.done, "web", lambda query: [PAGE])
        self.model = Breaking(self.done, "model", lambda prompt: "Austen.")
        self.rewriter = Breaking(self.done, "rewriter", lambda prompt: "Emma, author")
        self.retrieval = 0.9
        """P(Retrieval) of the first decision."""
        self.llm: Any = None
        """Another chat model."""
        self.pages: Any = Pages(self.web)
        """The web search."""
        self.judge: Any = Evaluator(self.evaluator)
        self.repairs: list[Callable[[], Any]] = []
        """What else mends something."""

    def mend(self) -> None:
        for part in (self.retriever, self.evaluator, self.web, self.model, self.rewriter):
            part.mend()
        for repair in self.repairs:
            repair()
        HANGING.set()

    def reflecting(self) -> ScriptedReflectionLLM:
        return _Reflecting(write=_write, model=self.model, retrieval=self.retrieval)

    def build(self, graph: str, **options: Any) -> Any:
        llm = self.llm or self.reflecting()
        chat = self.llm or RunnableLambda(lambda asked: self.model(str(asked)))
        corrected = (self.retriever, self.judge, self.pages)
        rewriter = RunnableLambda(lambda asked: self.rewriter(str(asked)))
        options = {"checkpointer": InMemorySaver(), **options}
        match graph:
            case "self_rag":
                return create_self_rag(llm, self.retriever, **options)
            case "crag":
                return create_crag(chat, *corrected, rewriter=rewriter, **options)
            case "self_crag":
                return create_self_crag(llm, *corrected, rewriter=rewriter, **options)
            case _:
                return create_instruct_rag(chat, self.retriever, **options)


class _Reflecting(ScriptedReflectionLLM):
    """Writes two segments, unless ``model`` gives others."""

    model: Any

    def _segments(self, prompts: Any, **options: Any) -> list[Segment]:
        given = self.model("\n".join(p.to_string() for p in prompts))
        return super()._segments(prompts, **options) if given == "Austen." else given

    async def _asegments(self, prompts: Any, **options: Any) -> list[Segment]:
        return await asyncio.to_thread(self._segments, prompts, **options)


def _write(prompt: str) -> Any:
    if "Austen." in prompt.split("### Response:\n")[-1]:
        return segment("In 1815.", RELEVANT, FULL, USEFUL)
    return segment("Austen.", RELEVANT, FULL, USEFUL, next={RETRIEVAL: 1.0})


def call(graph: Any, form: str, given: Any, config: Any = None, **options: Any) -> Any:
    """One run, sync or async."""
    if form == "sync":
        return graph.invoke(given, config, **options)
    # Unlike asyncio.run, this does not wait for a thread that hangs.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(graph.ainvoke(given, config, **options))
    finally:
        loop.close()


def seen(
    graph: str,
    form: str,
    break_it: Callable[[Parts], None],
    context: Any = None,
    *,
    asked: Any = QUESTION,
    resumes: str = "",
    **options: Any,
) -> Seen:
    """Run a graph some part of which is broken; where it ends, mend all and go on.

    Args:
        graph: which.
        form: sync or async.
        break_it: does so, to one part.
        context: of the run.
        asked: the input.
        resumes: the form in which it goes on, where that is another; "no" where it cannot.
        options: of the graph's factory.
    """
    HANGING.clear()
    parts = Parts()
    break_it(parts)
    try:
        built = parts.build(graph, **options)
    except SelfCorrectError as error:
        return Seen(error)
    config = {"configurable": {"thread_id": "1"}}
    try:
        result = call(built, form, asked, config, context=context)
    except Exception as error:
        parts.mend()
        if resumes == "no":
            return Seen(error)
        done = Counter(parts.done)
        result = call(built, resumes or form, None, config, context=context)
        assert result["answer"]
        # What a run does twice by itself it may do twice.
        twice = parts.done - _left_alone(graph, context, options) if done else Counter[str]()
        if form == "sync":
            # Strips that are graded while the search beside them fails may be graded again: docs.
            # The async form of the same case shows that nothing else is.
            twice -= Counter(what for what in twice if what.startswith("evaluator"))
        return Seen(error, result["notes"], "from its thread", result["stopped"], list(twice))
    HANGING.set()
    assert result["answer"]
    return Seen(None, [*result["notes"], result["answer"]], "yes", result["stopped"])


def _left_alone(graph: str, context: Any, options: Any) -> Counter[str]:
    """What the parts do in a run in which none breaks."""
    parts = Parts()
    parts.build(graph, **options).invoke(
        QUESTION, {"configurable": {"thread_id": "1"}}, context=context
    )
    return parts.done
