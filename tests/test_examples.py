"""The examples do what they say, on the reader and on scripted models."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.tasks import Outcome, read_task
from selfcorrect_rag.journal import Journal
from selfcorrect_rag.search import Index, as_web_search, demo
from selfcorrect_rag.search.demo import add_corpus
from tests.evaluation.scripted_parts import Echo
from tests.snippets import ROOT

QUESTION = "Who wrote Middlemarch?"
PENICILLIN = "Who discovered penicillin?"


@pytest.fixture(autouse=True)
def small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo corpus in an index that is quick to make."""
    index = add_corpus(Index(tmp_path / "demo", "bm25"), "passages.jsonl", "demo corpus")
    monkeypatch.setattr(demo, "demo_index", lambda: index)


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_chat_agent(capsys: pytest.CaptureFixture[str]) -> None:
    example("chat_agent").main(PENICILLIN, "Where was the poet T. S. Eliot born?")
    said = capsys.readouterr().out
    assert "repeats library) Alexander Fleming [1]" in said
    assert "[1] Alexander Fleming (demo corpus)" in said
    assert "repeats library) St. Louis" in said


def test_subgraph(capsys: pytest.CaptureFixture[str]) -> None:
    example("subgraph").main(PENICILLIN)
    letter = "Dear Dorothea,\nAlexander Fleming [1]\n(from Alexander Fleming)\n"
    assert capsys.readouterr().out == letter


@pytest.mark.parametrize(
    ("reply", "queries", "answer"),
    [
        ("yes", ["{}"], "-> Monroeville [1]"),
        ("Harper Lee birthplace", ["Harper Lee birthplace"], "-> Monroeville [1]"),
        ("no", [], "-> "),
    ],
)
def test_crag_with_tavily(
    reply: str, queries: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    searched: list[str] = []

    def search(query: str) -> list[dict[str, str]]:
        searched.append(query)
        text = "Harper Lee was born in Monroeville."
        return [{"title": "Harper Lee", "url": "https://example.org/1", "content": text}]

    main, prompts = example("crag_with_tavily").main, list[str]()

    def approve(prompt: str) -> str:
        prompts.append(prompt)
        return reply

    main(PENICILLIN, as_web_search(search), approve)
    assert not prompts, "what the demo corpus knows is not searched for"
    main("Where was Harper Lee born?", as_web_search(search), approve)
    (prompt,) = prompts
    proposed = prompt.split("'")[1]
    assert "Harper Lee" in proposed
    assert searched == [query.format(proposed) for query in queries]
    assert answer in capsys.readouterr().out


def test_own_strip_filter(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_strip_filter").main(QUESTION)
    first, *kept = capsys.readouterr().out.splitlines()
    assert first.endswith("strips kept")
    assert first.startswith(f"{len(kept)} of ")
    assert kept
    assert all("Middlemarch" in strip or "Who" in strip for strip in kept)


def test_own_rewriter(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_rewriter").main("Where was Harper Lee born?")
    assert capsys.readouterr().out.splitlines() == [
        "searched for: Harper Lee",
        "read: ['https://example.org/harper-lee']",
        "answered: Monroeville",
    ]


def test_bound_wrong_answers(capsys: pytest.CaptureFixture[str]) -> None:
    example("bound_wrong_answers").main(PENICILLIN, max_wrong=0.5)
    calibrated, answered = capsys.readouterr().out.splitlines()
    assert "of 11 labelled questions are answered" in calibrated
    assert answered == f"{PENICILLIN} -> Alexander Fleming"


def test_trained_searcher(capsys: pytest.CaptureFixture[str]) -> None:
    example("trained_searcher").main(PENICILLIN)
    said = capsys.readouterr().out.splitlines()
    assert "<search> who discovered penicillin </search>" in said
    assert said[-1].startswith("answered: Alexander Fleming [1]")


def test_tell_conflicts(capsys: pytest.CaptureFixture[str]) -> None:
    example("tell_conflicts").main("Which port does the staging server run on?")
    answer, notes, *claims = capsys.readouterr().out.splitlines()
    assert "8443" in answer or "9000" in answer
    assert re.search("disagree: .*9000” .Operations handbook.*8443” .Staging notes.$", notes)
    newest, older = claims
    assert re.fullmatch(r"2026-01-05: .*9000 \(Operations handbook\)", newest)
    assert re.fullmatch(r"2024-03-01: .*8443 \(Staging notes\)", older)


def test_judge_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openevals")
    data = tmp_path / "questions.jsonl"
    rows = [("1", "who?", ["WHO?"]), ("2", "why?", ["because"])]
    lines = [json.dumps({"id": i, "question": q, "answers": a}) for i, q, a in rows]
    data.write_text("\n".join(lines), encoding="utf-8")
    run_methods(read_task(data).questions, [Echo()], tmp_path / "run")

    class Judge(FakeListChatModel):
        """Gives structured output with a score, as openevals asks for."""

        def with_structured_output(self, schema: Any, **options: Any) -> Any:
            return RunnableLambda(lambda _: {"reasoning": "it says so", "score": True})

    module = example("judge_a_run")
    module.main(str(data), str(tmp_path / "run"), Judge(responses=[]))
    assert capsys.readouterr().out == "m: why? -> WHY?: it says so\n"


TEXTS = ("ada wrote it", "ada wrote it and bo ran", "nothing", "bo ran")
CITED = tuple({"number": n, "title": "T", "text": text} for n, text in enumerate(TEXTS, start=1))


@pytest.mark.parametrize(
    ("cited", "recall", "precision"),
    [
        ("Ada wrote it [1].", 1, 1),
        ("Ada wrote it [1][2].", 1, 1),  # each entails alone
        ("Ada wrote it [1][3].", 1, 0.5),  # [3] is irrelevant and superfluous
        ("Ada wrote it [3].", 0, 0),
        ("Ada wrote it.", 0, 0),
        ("Ada wrote it [1][9].", 1, 0.5),
        ("Ada wrote it [3][3][3][1].", 1, 0.5),
        ("Ada wrote it [1]. Bo ran.", 0.5, 1),
        ("Ada wrote it. [1] Bo ran. [4]", 1, 1),
        ("", 0, 0),
    ],
)
def test_check_citations(
    cited: str, recall: float, precision: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome("1", "m", "x", cited_answer=cited, citations=CITED)
    Journal(tmp_path / "rows.jsonl").append("1", outcome._asdict())

    def entails(premise: str, hypothesis: str) -> bool:
        return hypothesis.strip(" .").lower() in premise.lower()

    example("check_citations").main(str(tmp_path), entails)
    shown = f"m: recall {recall:.3f}, precision {precision:.3f}, n = 1\n"
    assert capsys.readouterr().out == shown
