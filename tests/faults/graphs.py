"""The graphs of parts that break until they are mended, and count what they have done."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
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
        self.broken: Callable[..., Any] | None = None
        self.after = 0
        """Calls that still work."""
        self._calls = 0

    def __call__(self, *given: Any) -> Any:
        self._calls += 1
        if self.broken is not None and self._calls > self.after:
            return self.broken(*given)
        result = self._works(*given)
        self._done[f"{self._name}: {given}"] += 1
        return result


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

    def mend(self) -> None:
        for part in (self.retriever, self.evaluator, self.web, self.model):
            part.broken = None

    def build(self, graph: str, **options: Any) -> Any:
        llm = _Reflecting(write=_write, model=self.model)
        chat = RunnableLambda(lambda asked: self.model(str(asked)))
        corrected = (self.retriever, Evaluator(self.evaluator), Pages(self.web))
        options = {"checkpointer": InMemorySaver(), **options}
        match graph:
            case "self_rag":
                return create_self_rag(llm, self.retriever, **options)
            case "crag":
                return create_crag(chat, *corrected, **options)
            case "self_crag":
                return create_self_crag(llm, *corrected, **options)
            case _:
                return create_instruct_rag(chat, self.retriever, **options)


class _Reflecting(ScriptedReflectionLLM):
    """Writes two segments, unless ``model`` gives others."""

    model: Any

    def _segments(self, prompts: Any, **options: Any) -> list[Segment]:
        given = self.model("\n".join(p.to_string() for p in prompts))
        return super()._segments(prompts, **options) if given == "Austen." else given


def _write(prompt: str) -> Any:
    if "Austen." in prompt.split("### Response:\n")[-1]:
        return segment("In 1815.", RELEVANT, FULL, USEFUL)
    return segment("Austen.", RELEVANT, FULL, USEFUL, next={RETRIEVAL: 1.0})


def call(graph: Any, form: str, given: Any, config: Any = None, **options: Any) -> Any:
    """One run, sync or async."""
    if form == "sync":
        return graph.invoke(given, config, **options)
    return asyncio.run(graph.ainvoke(given, config, **options))


def seen(
    graph: str, form: str, break_it: Callable[[Parts], None], context: Any = None, **options: Any
) -> Seen:
    """Run a graph some part of which is broken; where it ends, mend all and go on.

    Args:
        graph: which.
        form: sync or async.
        break_it: does so, to one part.
        context: of the run.
        options: of the graph's factory.
    """
    parts, config = Parts(), {"configurable": {"thread_id": "1"}}
    built = parts.build(graph, **options)
    break_it(parts)
    try:
        result = call(built, form, QUESTION, config, context=context)
    except Exception as error:
        parts.mend()
        result = call(built, form, None, config, context=context)
        assert result["answer"]
        again = parts.done - left_alone(graph, context)
        return Seen(error, result["notes"], "from its thread", result["stopped"], list(again))
    assert result["answer"]
    return Seen(None, result["notes"], "yes", result["stopped"])


def left_alone(graph: str, context: Any = None) -> Counter[str]:
    """What the parts do in a run in which none breaks."""
    parts = Parts()
    parts.build(graph).invoke(QUESTION, {"configurable": {"thread_id": "1"}}, context=context)
    return parts.done
