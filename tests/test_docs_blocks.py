"""What the page on building blocks shows works as written."""

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "blocks.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"chat_model": RunnableLambda(lambda given: AIMessage("once"))}
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "blocks.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "Harper Lee incorrect external",
        "Alexander Fleming 0.9",
        "[Fully supported] Middlemarch was written by George Eliot.",
        "[No support / Contradictory] Middlemarch was written by Jane Austen.",
        "[No support / Contradictory]: 'Middlemarch was written by Jane Austen.'",
        "Alexander Fleming [1]",
        "The documents do not say. []",
    ]
