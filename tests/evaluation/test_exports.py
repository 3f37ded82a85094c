"""Exports, each with the real package offline: LangSmith, openevals, and RAGAS where installed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.errors import BadArgument, BadRun
from selfcorrect_rag.evaluation.exports import (
    evaluator,
    export,
    judge_evaluator,
    langsmith_example,
    replay,
    target,
)
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished
from tests.evaluation.scripted_parts import ScriptedParts, opened
from tests.evaluation.test_judges import StructuredChat

QUESTIONS = [
    Question("q0", "Who built the mill?", ("Lind", "Lindh")),
    Question("q1", "Who built the dam?", ("Holm",)),
]
PASSAGES = ({"title": "Mills", "text": "Lind built the mill."},)
RUN = Finished(
    QUESTIONS,
    [
        Outcome("q0", "rag", "Lind", passages=PASSAGES),
        Outcome("q1", "rag", "I do not know.", refused=True),
        Outcome("q0", "crag", "It was Lind.", passages=PASSAGES),
        Outcome("q1", "crag", "Holm", passages=PASSAGES),
    ],
)


def rows(to: str, *methods: str) -> list[dict[str, Any]]:
    """The rows, after their way through a file."""
    found: list[dict[str, Any]] = json.loads(json.dumps(list(export(RUN, to, methods))))
    return found


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run is sent to LangSmith, which happens in a thread of its own."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("LANGSMITH_API_KEY", "none")
    sent: list[object] = []
    monkeypatch.setattr("langsmith.Client.create_run", lambda *given, **fields: sent.append(fields))
    yield
    assert sent == []


def by_question(results: Any) -> dict[str, dict[str, Any]]:
    return {
        row["example"].inputs["id"]: {
            found.key: found.score for found in row["evaluation_results"]["results"]
        }
        for row in results
    }


@pytest.mark.usefixtures("_offline")
def test_langsmith_evaluates_a_finished_run() -> None:
    langsmith = pytest.importorskip("langsmith")
    examples = [langsmith.schemas.Example(**row) for row in rows("langsmith")]
    results = langsmith.evaluate(
        replay(RUN, "crag"),
        data=examples,
        evaluators=[
            evaluator("match"),
            evaluator("em"),
            judge_evaluator("correctness", FakeListChatModel(responses=["Yes."])),
        ],
        upload_results=False,
    )
    assert by_question(results) == {
        "q0": {"match": 1.0, "em": 0.0, "judged_correctness": 1.0},
        "q1": {"match": 1.0, "em": 1.0, "judged_correctness": 1.0},
    }


@pytest.mark.usefixtures("_offline")
def test_langsmith_asks_a_method() -> None:
    langsmith = pytest.importorskip("langsmith")
    fixed = Question("q", "Who was it?", ("Berg",), (Document("It was Berg."),))
    method = opened("rag", ScriptedParts())
    examples = [langsmith.schemas.Example(**langsmith_example(fixed))]
    options: dict[str, Any] = {"evaluators": [evaluator("match")], "upload_results": False}
    found = langsmith.evaluate(target(method, [fixed]), data=examples, **options)
    assert by_question(found) == {"q": {"match": 1.0}}
    # Without the question's own passages they are retrieved, and say that it was Lind.
    found = langsmith.evaluate(target(method), data=examples, **options)
    assert by_question(found) == {"q": {"match": 0.0}}


@pytest.mark.usefixtures("_offline")
def test_openevals_evaluates_rows_of_a_run() -> None:
    exact = pytest.importorskip("openevals.exact")
    llm = pytest.importorskip("openevals.llm")
    prompts = pytest.importorskip("openevals.prompts")
    found = [exact.exact_match(**row) for row in rows("openevals")]
    assert [result["score"] for result in found] == [True, False, False, True]
    model = StructuredChat(gives={"score": True, "reasoning": "It was."})
    for prompt in (prompts.CORRECTNESS_PROMPT, prompts.HALLUCINATION_PROMPT):
        judged = llm.create_llm_as_judge(prompt=prompt, judge=model, feedback_key="judged")
        result = judged(**rows("openevals", "crag")[0])
        assert (result["key"], result["score"], result["comment"]) == ("judged", True, "It was.")
    assert "Lind built the mill." in model._asked[-1]


def test_our_evaluators_take_rows_of_openevals() -> None:
    asked = rows("openevals")
    assert [evaluator("match")(**row)["score"] for row in asked] == [1.0, 0.0, 1.0, 1.0]
    judged = judge_evaluator("correctness", FakeListChatModel(responses=["No: Berg.", "Hm."]))
    assert judged(**asked[2]) == {
        "key": "judged_correctness",
        "score": 0.0,
        "comment": "No: Berg.",
    }
    assert judged(**asked[2])["score"] is None
    unasked = judged(inputs="Who?", outputs={"answer": "", "error": "no"}, reference_outputs="Lind")
    assert unasked == {"key": "judged_correctness", "score": 0.0, "comment": None}


def test_evaluators_that_cannot_score_a_row_are_refused() -> None:
    with pytest.raises(BadArgument, match="mauve scores all rows"):
        evaluator("mauve")
    with pytest.raises(BadArgument, match="needs entails="):
        evaluator("citation_recall")
    with pytest.raises(BadArgument, match="no metric"):
        evaluator("goodness")


def test_rows_of_ragas_are_its_fields() -> None:
    assert rows("ragas", "crag")[0] == {
        "user_input": "Who built the mill?",
        "response": "It was Lind.",
        "retrieved_contexts": ["Title: Mills\nLind built the mill."],
        "reference": "Lind",
        "id": "q0",
        "method": "crag",
    }
    assert [row["method"] for row in rows("ragas")] == ["rag", "rag", "crag", "crag"]


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(BadRun, match="no export to 'deepeval'"):
        export(RUN, "deepeval")
    with pytest.raises(BadRun, match="no method 'self_rag'"):
        export(RUN, "ragas", ["self_rag"])
