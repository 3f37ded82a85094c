"""What the page on durability shows works as written."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.durability import measured
from selfcorrect_rag.nodes.base import node as base

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.state import total
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")


def write(prompt: str) -> Any:
    return segment("George Eliot.", RELEVANT, FULL, USEFUL)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    llm = ScriptedReflectionLLM(write=write)
    names: dict[str, Any] = {
        "create_self_rag": create_self_rag,
        "llm": llm,
        "retriever": lambda query: [document("Middlemarch")],
    }
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "durability.md", "exec"), names)
    assert names["result"]["answer"] == names["resumed"]["answer"] == "George Eliot."
    asked = [names[turn]["original_question"] for turn in ("emma", "ulysses", "resumed")]
    assert asked == ["Who wrote Emma?", "Who wrote Ulysses?", "Who wrote Ulysses?"]
    assert [len(names[turn].get("messages", [])) for turn in ("emma", "ulysses")] == [0, 2]
    assert len(names["states"]) == 8  # the input, six nodes and the end
    assert names["first"]["candidates"] == names["second"]["candidates"]
    assert total(names["second"]["costs"])["model_calls"] == 0
    assert len(llm.calls) == 3 * 2 + 2  # the thread's three turns, and the two runs with a cache


def test_the_table_says_which_nodes_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfcorrect_rag.nodes.base import turns

    kept: set[str] = set()

    def cached(node: base.Node, cache: object, model: object, settings: object) -> Any:
        marked.append(node)
        return node

    marked: list[Any] = []
    monkeypatch.setattr(turns, "cached", cached)
    llm, parts = ScriptedReflectionLLM(write=write), (WordEvaluator(), PagesWebSearch())
    graphs: list[Any] = [
        create_self_rag(llm, lambda query: []),
        create_crag(llm, lambda query: [], *parts),
        create_self_crag(llm, lambda query: [], *parts),
        create_instruct_rag(llm, lambda query: []),
    ]
    everything: set[str] = set()
    for graph in graphs:
        for name, node in graph.builder.nodes.items():
            everything.add(name)
            if any(node.runnable is one for one in marked):
                kept.add(name)
    table = PAGE.split("| node |")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    said = {row.split("|")[1].strip(): row.split("|")[3].strip() for row in rows}
    listed = {
        name.strip(" `"): how == "yes" for names, how in said.items() for name in names.split(",")
    }
    assert {name for name, how in listed.items() if how} == kept
    assert set(listed) <= everything


def test_the_benchmark_measures_every_kind() -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    figures = measured({"memory": InMemorySaver()}, repeats=2)
    assert set(figures["over_none"]) == {"memory exit", "memory async", "memory sync"}
    assert figures["none_ms"] > 0
