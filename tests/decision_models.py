"""Scripted decision models, and a stand-in of ``langchain_core.decisions`` for a core without it.

``STAND_IN`` has what langchain-core 1.8.2 has under these names, as far as it is used here;
test_decisions.py compares both where that core is installed.
"""

import importlib
import importlib.util
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, Literal

import pytest
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import run_in_executor
from pydantic import BaseModel, Field, PrivateAttr

IS_REAL = importlib.util.find_spec("langchain_core.decisions") is not None


class Noul(BaseModel):
    type: Literal["noul"] = "noul"
    instructions: str | dict[str, Any] | list[Any]
    criteria: Any = None


class Choice(BaseModel):
    type: Literal["choice"] = "choice"
    criteria: dict[str, Any] = Field(min_length=1)
    instructions: str | dict[str, Any] | list[Any]


class NoulAnswer(BaseModel):
    type: Literal["noul"]
    noul: float = Field(ge=0.0, le=1.0)


class ChoiceAnswer(BaseModel):
    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float = Field(ge=0.0, le=1.0)


class ClassifierResponse(BaseModel):
    model: str
    answers: dict[str, Any]
    usage: dict[str, int] | None = None
    request_id: str | None = None

    @property
    def nouls(self) -> dict[str, Any]:
        return {name: each for name, each in self.answers.items() if each.type == "noul"}

    @property
    def choices(self) -> dict[str, Any]:
        return {name: each for name, each in self.answers.items() if each.type == "choice"}


class BaseDecisionModel(RunnableSerializable[Any, Any], ABC):
    model: str

    @property
    @abstractmethod
    def _provider(self) -> str: ...

    @abstractmethod
    def _classify(self, state: Any, questions: dict[str, Any]) -> Any: ...

    async def _aclassify(self, state: Any, questions: dict[str, Any]) -> Any:
        return await run_in_executor(None, self._classify, state, questions)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._call_with_config(
            lambda given: self._classify(given["state"], dict(given["questions"])),
            input,
            config,
            run_type="llm",
        )

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        async def classify(given: Any) -> Any:
            return await self._aclassify(given["state"], dict(given["questions"]))

        return await self._acall_with_config(classify, input, config, run_type="llm")


STAND_IN = ModuleType("langchain_core.decisions")
NAMES = (Noul, Choice, NoulAnswer, ChoiceAnswer, ClassifierResponse, BaseDecisionModel)
for _each in NAMES:
    setattr(STAND_IN, _each.__name__, _each)
DECISIONS: Any = importlib.import_module("langchain_core.decisions") if IS_REAL else STAND_IN


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in where the real module is not."""
    monkeypatch.setitem(sys.modules, "langchain_core.decisions", DECISIONS)


def yes(probability: float) -> Any:
    return DECISIONS.NoulAnswer(type="noul", noul=probability)


def chosen(label: str, probabilities: Mapping[str, float]) -> Any:
    return DECISIONS.ChoiceAnswer(
        type="choice", choice=label, probabilities=dict(probabilities), confidence=0.5
    )


class Decider(DECISIONS.BaseDecisionModel):  # type: ignore[misc]
    """Answers each question by a function of the state and the question, and remembers requests.

    The function gives an answer, None for none, or an error to raise.
    """

    model: str = "decider"
    answer: Callable[[Any, Any], Any]
    _requests: list[tuple[Any, dict[str, Any]]] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def requests(self) -> list[tuple[Any, dict[str, Any]]]:
        return list(self._requests)

    @property
    def _provider(self) -> str:
        return "tests"

    def _classify(self, state: Any, questions: dict[str, Any]) -> Any:
        with self._lock:
            self._requests.append((state, questions))
        answers = {}
        for name, question in questions.items():
            given = self.answer(state, question)
            if isinstance(given, Exception):
                raise given
            if given is not None:
                answers[name] = given
        usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
        return DECISIONS.ClassifierResponse(model=self.model, answers=answers, usage=usage)


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[Any]]]:
    """A client, and the bodies that it sends to a server with opinions."""
    decisions = pytest.importorskip("langchain_openai.decisions")
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append((self.path, body))
            answers = [_answered(body, question) for question in body["questions"]]
            usage = {"input_tokens": 20, "output_tokens": 2}
            sent = json.dumps({"model": "m", "answers": answers, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    yield decisions.OpenAIDecisions(model="gpt-6-luna"), bodies
    server.shutdown()
    server.server_close()


def _answered(body: Any, question: Any) -> Any:
    name, kind = question["name"], question["type"]
    if kind == "predicate":
        return {"name": name, "type": kind, "probability": 0.25}
    values = [each["value"] for each in question["choices"]]
    if "1" in values:
        return {"name": name, "type": "refusal", "refusal": "no"}
    shares = [0.75, *[0.25 / (len(values) - 1)] * (len(values) - 1)]
    probabilities = [{"value": v, "probability": p} for v, p in zip(values, shares, strict=True)]
    return {
        "name": name,
        "type": "choice",
        "choice": values[0],
        "probabilities": probabilities,
        "confidence": 0.5,
    }
