"""What the page on durability shows works as written."""

from pathlib import Path
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
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
    assert names["second"]["usage"]["model_calls"] == 0
    assert names["again"]["score"] > names["resumed"]["score"]
    assert (
        len(llm.calls) == 3 * 2 + 1 + 2
    )  # the thread's three turns, a fork, and the two runs with a cache


def test_the_table_says_which_nodes_are_cached() -> None:
    llm, parts = ScriptedReflectionLLM(write=write), (WordEvaluator(), PagesWebSearch())
    cache: Any = InMemoryCache()
    graphs: list[Any] = [
        create_self_rag(llm, lambda query: [], cache=cache),
        create_crag(llm, lambda query: [], *parts, cache=cache),
        create_self_crag(llm, lambda query: [], *parts, cache=cache),
        create_instruct_rag(llm, lambda query: [], cache=cache),
    ]
    nodes = {name: node for graph in graphs for name, node in graph.builder.nodes.items()}
    table = PAGE.split("| node |")[1].split("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    listed = {
        name.strip(" `"): row[3].strip().startswith("yes")
        for row in rows
        for name in row[1].split(",")
    }
    assert listed == {name: nodes[name].cache_policy is not None for name in listed}
    assert {name for name, node in nodes.items() if node.cache_policy} <= listed.keys()
