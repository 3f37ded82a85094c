"""Parts of methods whose answers are written down, and questions about two people."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.evaluation.methods import Graph, Method, open_method, read_spec
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.search import RetrieverWebSearch
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import Settings
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import Findings, Read, reader_llm
from tests.scripted import document

PAGES = [
    document("A", "A vague word: it was Berg.", source="/a"),
    document("B", "It is gold: it was Lind.", source="/b"),
]
"""What is retrieved, best first; WordEvaluator grades it by its words."""
WEB = [document("W", "The web is gold: it was Holm.", source="https://example.org/w")]
QUESTION = Question("q1", "Who was it?", ("Lind",))
SURE: Findings = {"Berg": 0.8, "Lind": 0.9, "Holm": 0.95}


class ScriptedParts:
    """The graphs over a scripted reader, two pages and a web of one."""

    def __init__(
        self,
        pages: Sequence[Document] = PAGES,
        findings: Findings | Read | None = None,
        chat_model: Runnable[Any, Any] | None = None,
    ) -> None:
        self.llm, self.reader = reader_llm(SURE if findings is None else findings)
        self.chat_model, self.pages = chat_model, list(pages)
        self.queries: list[str] = []

    def retriever(self, query: str) -> list[Document]:
        self.queries.append(query)
        return self.pages

    def graph(self, name: str, settings: Settings | None = None) -> Graph:
        given: Any = settings
        if name == "self_rag":
            return create_self_rag(self.llm, self.retriever, settings=given)
        if name == "instruct_rag":
            return create_instruct_rag(self.chat_model or self.llm, self.retriever, settings=given)
        web = RetrieverWebSearch(lambda query: WEB, "a web")
        create: Any = create_crag if name == "crag" else create_self_crag
        made: Graph = create(self.llm, self.retriever, WordEvaluator(), web, settings=given)
        return made


def opened(spec: str, parts: ScriptedParts | None = None, **options: Any) -> Method:
    """The method of a specification."""
    return open_method(read_spec(spec, **options), parts or ScriptedParts())


def timeless(outcome: Outcome) -> Outcome:
    """An outcome without its time."""
    return outcome._replace(seconds=0.0)
