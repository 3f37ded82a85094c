"""The examples do what they say, on the reader, the nano generator and loopback servers."""

import importlib.util
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nano_training.tokenizer import load_tokenizer

from selfcorrect_rag import nano
from selfcorrect_rag.demo import demo_passages, generator_path
from selfcorrect_rag.reflection import FULLY_SUPPORTED, RELEVANT, UTILITY, unregister_group
from selfcorrect_rag.search import Index
from tests.prompted_runs import hard, opinion
from tests.providers import Provider
from tests.search.test_tavily import Tavily, page, tavily  # noqa: F401
from tests.test_docs import ROOT
from tests.test_vllm_server import TOKENIZER, Loopback, completion, loopback  # noqa: F401

WORDS = load_tokenizer(generator_path())
QUESTION = "Who wrote Middlemarch?"
PENICILLIN = "Who discovered penicillin?"


@pytest.fixture(autouse=True)
def small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The demo corpus in an index that is quick to make."""
    with Index(tmp_path / "demo", "bm25") as index:
        index.add(demo_passages())
        monkeypatch.setattr(nano, "demo_index", lambda: index)
        yield


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


def test_crag_with_tavily(
    tavily: Tavily,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def approve(question: str) -> str:
        asked.append(question)
        return "yes"

    main = example("crag_with_tavily").main
    main(PENICILLIN, tavily.web(), approve)
    assert not asked, "what the demo corpus knows is not searched for"
    tavily.results = [page(1, content="Harper Lee was born in Monroeville.", title="Harper Lee")]
    main("Where was Harper Lee born?", tavily.web(), approve)
    (said,) = asked
    assert said.startswith("search Tavily for 'Harper Lee, born'?")
    assert len(tavily.asked) == 1
    out = capsys.readouterr().out
    assert "-> Monroeville [1]" in out
    assert "read: Harper Lee (https://example.org/1)" in out


def segment(body: dict[str, Any]) -> dict[str, Any]:
    """The same supported sentence for every prompt, as vLLM writes it."""
    if body["max_tokens"] == 1:
        return completion(body)
    ids = TOKENIZER.control_ids
    text = WORDS.encode("George Eliot wrote it.", add_special_tokens=False)
    end = WORDS.eos_token_id
    written = [ids[RELEVANT], *text, ids[FULLY_SUPPORTED], ids[UTILITY[-1]], end]
    steps = [
        {f"token_id:{i}": -0.1 if i == token else -5.0 for i in (*body["logprob_token_ids"], token)}
        for token in written
    ]
    choice = {
        "text": "",
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": written,
        "logprobs": {"top_logprobs": steps},
    }
    return {"choices": [{**choice, "index": i} for i in range(len(body["prompt"]))]}


async def test_self_rag_on_vllm_server(
    loopback: Loopback,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    loopback.answers["/v1/completions"] = lambda body: (200, segment(body))
    await example("self_rag_on_vllm_server").main(loopback.url, QUESTION, "Who wrote Emma?")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [QUESTION, "  George Eliot wrote it. [1]"]
    assert sum("(demo corpus)" in line for line in lines) == 2


def test_own_reflection_group(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(prompt: str) -> str:
        return hard(opinion)(prompt) + ("\nISPLAIN: [Plain]" if "ISPLAIN" in prompt else "")

    module = example("own_reflection_group")
    try:
        module.main(Provider(answer=answer), QUESTION)
    finally:
        unregister_group("ISPLAIN")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("1.0") and "George Eliot" in line for line in lines)


def test_own_engine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its engine passes tests/engine_contract.py too."""
    monkeypatch.setattr(sys, "argv", ["own_engine.py", QUESTION])
    runpy.run_path(str(ROOT / "examples" / "own_engine.py"), run_name="__main__")
    assert capsys.readouterr().out == "Middlemarch was written by George Eliot. [1]\n"


def test_community_retriever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes"
    (notes / "naturalists").mkdir(parents=True)
    passages = {passage.metadata["title"]: passage.page_content for passage in demo_passages()}
    folders = {"Jane Austen": "", "George Eliot": "", "Charles Darwin": "naturalists"}
    for name, folder in folders.items():
        (notes / folder / f"{name}.txt").write_text(f"{passages[name]}\n\n\n", encoding="utf-8")
    (notes / "Jane Austen.csv").write_text("Where was Jane Austen born?", encoding="utf-8")
    module = example("community_retriever")
    found = module.paragraphs(notes)
    assert {d.metadata["title"]: d.page_content for d in found} == {n: passages[n] for n in folders}
    module.main(str(notes), "Where was Jane Austen born?")
    written, cited = capsys.readouterr().out.splitlines()
    assert "Steventon" in written
    assert cited == f"[1] Jane Austen ({notes / 'Jane Austen.txt'})"


def test_own_node(capsys: pytest.CaptureFixture[str]) -> None:
    example("own_node").main(PENICILLIN)
    replaced, alone, inside = capsys.readouterr().out.splitlines()
    assert "Alexander Fleming" in replaced
    assert alone.removeprefix("alone: ") == inside.removeprefix("in a graph: ") == "correct"


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
