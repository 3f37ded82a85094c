"""What the page on the parts of a graph shows works as written."""

import asyncio
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache

from selfcorrect_rag import create_crag
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, echo, segment
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
QUESTION: Any = {"question": "Who wrote Middlemarch"}


async def search(query: str) -> Any:
    yield document("Found by and by.")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def made(retriever: Any, evaluator: Any) -> Any:
        return create_crag(echo(), retriever, evaluator, PagesWebSearch(), cache=InMemoryCache())

    graph = made(lambda query: [document("Gold.")], WordEvaluator())
    names: dict[str, Any] = {
        "graph": graph,
        "search": search,
        "llm": ScriptedReflectionLLM(write=lambda _: segment("George Eliot.", RELEVANT, FULL)),
        "evaluator": WordEvaluator(),
        "document": document("Gold."),
    }
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "parts.md", "exec"), names)
    said = "uper: CRAG has no such setting; did you mean upper?"
    assert capsys.readouterr().out.splitlines() == [said, names["graded"]["action"]]
    assert names["shouting"].invoke(QUESTION)["answer"] == "GEORGE ELIOT."
    assert said in PAGE
    assert names["strict"]["action"] == names["same"]["action"] == "ambiguous"
    overlap = names["Overlap"]()
    found = made(names["retriever"], overlap).invoke(QUESTION)
    assert found["passages"][0].metadata == {"title": "Novels"}
    assert -1 < found["grades"][0]["score"] < 1
    found = asyncio.run(made(names["aretriever"], overlap).ainvoke(QUESTION))
    assert [passage.page_content for passage in found["passages"]] == ["Found by and by."]
