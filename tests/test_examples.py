"""The examples do what they say, on the reader and on scripted models."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.tasks import Outcome, read_task
from selfcorrect_rag.journal import Journal
from selfcorrect_rag.search import Index, as_web_search, demo
from selfcorrect_rag.search.demo import add_corpus
from tests.evaluation.scripted_parts import Echo
from tests.snippets import ROOT

GUERNICA = "Who painted Guernica?"
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
    example("chat_agent").main(GUERNICA, "Where was the poet T. S. Eliot born?")
    said = capsys.readouterr().out
    assert "repeats library) Pablo Picasso [1]" in said
    assert "[1] Guernica (demo corpus)" in said
    assert "repeats library) St. Louis" in said


def test_subgraph(capsys: pytest.CaptureFixture[str]) -> None:
    example("subgraph").main(GUERNICA)
    letter = "Dear Dorothea,\nPablo Picasso [1]\n(from Guernica)\n"
    assert capsys.readouterr().out == letter


@pytest.mark.parametrize(
    ("reply", "queries"), [("yes", ["{}"]), ("Lee birthplace", ["Lee birthplace"]), ("no", [])]
)
def test_crag_with_tavily(reply: str, queries: list[str], capsys: Any) -> None:
    searched: list[str] = []

    def search(query: str) -> list[dict[str, str]]:
        searched.append(query)
        text = "Harper Lee was born in Monroeville."
        return [{"title": "Harper Lee", "url": "https://example.org/1", "content": text}]

    main, prompts = example("crag_with_tavily").main, list[str]()

    def approve(prompt: str) -> str:
        prompts.append(prompt)
        return reply

    main(GUERNICA, as_web_search(search), approve)
    assert not prompts, "what the demo corpus knows is not searched for"
    main("Where was Harper Lee born?", as_web_search(search), approve)
    (prompt,) = prompts
    proposed = prompt.split("'")[1]
    assert "Harper Lee" in proposed
    assert searched == [query.format(proposed) for query in queries]
    assert ("-> Monroeville [1]" in capsys.readouterr().out) is bool(queries)


def test_own_strip_filter(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_strip_filter").main(GUERNICA)
    first, *kept = capsys.readouterr().out.splitlines()
    assert first.endswith("strips kept")
    assert first.startswith(f"{len(kept)} of ")
    assert kept
    assert all("Guernica" in strip or "Who" in strip for strip in kept)


def test_own_rewriter(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_rewriter").main("Where was Harper Lee born?")
    assert capsys.readouterr().out.splitlines() == [
        "searched for: Harper Lee",
        "read: ['https://example.org/harper-lee']",
        "answered: Monroeville",
    ]


def test_bound_wrong_answers(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an index of the checkout's own would be asked
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


def test_revise_answer(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("revise_answer")
    module.main(PENICILLIN, module.ANSWER)
    *marked, revised, share = capsys.readouterr().out.splitlines()
    assert "unsupported without evidence: 1828" in marked
    assert "discovered penicillin in 1928" in revised
    assert "1828" not in revised
    assert "Nobel Prize in 1945" in revised
    assert "Bielefeld" not in revised
    assert share == "supported: 100%"


def test_several_web_searches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(query: str) -> Any:
        raise OSError("gone")

    pages = as_web_search(lambda query: [{"title": "Third", "content": "Nothing."}])
    webs = (as_web_search(broken), demo.demo_web(tmp_path / "web"), pages)
    example("several_web_searches").main("Where was Harper Lee born?", *webs)
    failed, read, answered = capsys.readouterr().out.splitlines()
    assert re.search("failed: .*gone", failed)
    assert re.match(r"read: \['Harper Lee', 'Third'", read), "the best of each first"
    assert answered.startswith("answered: Monroeville")


def test_multi_query(capsys: pytest.CaptureFixture[str]) -> None:
    queries = FakeListChatModel(responses=["Who made Guernica?\n\nWhich Spaniard was it?\n4?\n5?"])
    module = example("multi_query")
    module.main(GUERNICA, queries)
    assert capsys.readouterr().out == "Pablo Picasso [1]\n"
    asked = list[str]()

    def find(query: str) -> list[Document]:
        asked.append(query)
        return [Document(text) for text in ("one", "two" if "?" in query else "three")]

    found = module.multi_query(queries, RunnableLambda(find)).invoke("it")
    assert sorted(asked) == ["Which Spaniard was it?", "Who made Guernica?", "it"]
    assert [document.page_content for document in found] == ["one", "two", "three"]


def test_two_hop(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("two_hop")
    module.main("In which city is the office of the person who leads the Orion project?")
    one_hop, two_hops = capsys.readouterr().out.splitlines()
    assert "Bergen" not in one_hop
    assert two_hops == "Bergen (Orion, Mara Lindholm (via Orion))"


def test_permissions(capsys: pytest.CaptureFixture[str]) -> None:
    example("permissions").main("What is the salary of the director?", "ada", "ben", "eve")
    ada, *others = capsys.readouterr().out.splitlines()
    assert "120,000 euros" in ada
    assert len(others) == 2
    assert not any("120,000" in line for line in others)


def test_memory_across_threads(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "Where does the server run?"
    said = ("ada", "The server runs in Oslo.")
    example("memory_across_threads").main(said, ("ada", asked), ("ben", asked))
    _, ada, ben = capsys.readouterr().out.splitlines()
    assert re.match("ada: .*Oslo", ada)
    assert ben.startswith("ben: ")
    assert "Oslo" not in ben


def test_tune_grader(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that heeds the instruction, and improves it at its second attempt."""
    written = iter(["Say yes.", "Say whether it states the answer.", "Say yes."])

    def ask(prompt: str) -> str:
        if prompt.startswith("Improve"):
            assert "Kafka was born to a merchant." in prompt or "states" in prompt
            return next(written)
        is_strict = "states" in prompt
        return "No." if is_strict and re.search("a name that|merchant", prompt) else "Yes."

    best = example("tune_grader").main(ask)
    told = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["2 of 4 wrong", "0 of 4 wrong", "0 of 4 wrong"]
    assert best.score("Who wrote Emma?", ["a name that", "by Jane Austen"]) == [-1.0, 1.0]


def test_dated_documents(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("dated_documents")
    module.main("Which port does the staging server run on?")
    assert "9100" in capsys.readouterr().out
    other = Document("Other.", metadata={"title": "Rules", "date": "2024-12-31"})
    kept = module.current(RunnableLambda(lambda query: [*module.PAGES[::-1], other]))
    for question, dates in (
        ("Which port?", ["2025-02-01", "2024-12-31"]),
        ("Which port in 2024?", ["2024-01-05", "2024-12-31"]),
        ("Which port from 2022 to 2023?", ["2023-03-01"]),
        ("Which port in 2022?", []),
    ):
        found = [document.metadata["date"] for document in kept.invoke(question)]
        assert sorted(found) == sorted(dates)


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
