"""The parts of our graphs over a scripted model, and a method that only counts."""

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.evaluation.methods import Spec, read_spec
from selfcorrect_rag.evaluation.tasks import Outcome, Question
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.settings import GRAPHS, Settings
from tests.four_graphs import create
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedLLM, passage_of, segment

MODEL = FakeListChatModel(responses=["Lind, I think."])
PAGES = [Document(f"It was {name}.", metadata={"title": name}) for name in ("Berg", "Lind")]


class ScriptedParts:
    """Our graphs over a scripted reflection model and two pages, of which Lind's is better."""

    chat_model: Any = None

    def __init__(self, config: object = None) -> None:
        self.llm = ScriptedLLM(write=self._write)
        self.queries: list[str] = []

    def __enter__(self) -> "ScriptedParts":
        return self

    def __exit__(self, *error: object) -> None: ...

    @staticmethod
    def _write(prompt: str) -> Any:
        name = passage_of(prompt)
        fully = {"[Fully supported]": 0.6, "[Partially supported]": 0.4}
        judgements = (RELEVANT, FULL if name == "Lind" else fully, USEFUL)
        return segment(f"It was {name}.", *judgements)

    def retriever(self, query: str) -> list[Document]:
        self.queries.append(query)
        return PAGES

    def settings(self, name: str, **given: Any) -> Settings:
        return GRAPHS[name](**given)

    def graph(self, name: str, settings: Settings | None = None) -> Any:
        writer = MODEL if name == "instruct_rag" else self.llm
        evaluator = NameEvaluator()
        return create(name, self.llm, writer, self.retriever, evaluator, settings=settings)


class NameEvaluator(RetrievalEvaluator):
    """Grades Lind's page as relevant, and others as not."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [0.9 if "Lind" in passage else -0.95 for passage in passages]


class Echo:
    """Answers in capitals, for a call and ten tokens; fails if it is asked to."""

    def __init__(self, name: str = "m", error: str = "") -> None:
        self.spec: Spec = read_spec(f"{name}=rag")
        self.error, self.asked = error, list[str]()
        self.most = self.now = 0

    async def answer(self, question: Question) -> Outcome:
        self.asked.append(question.id)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        said = Outcome(question.id, self.spec.name, question.question.upper(), model_calls=1)
        error = self.error or ("down" if "fail" in question.question else "")
        return said._replace(prompt_tokens=10, error=error)
