"""What the page on faults shows works as written."""

from typing import Any

import pytest

from tests.scripted import document
from tests.test_docs import BLOCK, ROOT
from tests.test_faults import DOWN, Parts, raises

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The retriever fails at first, the model after the first segment; then it is mended."""
    parts, failures = Parts(), iter([ConnectionError("no route")])

    def retriever(query: str) -> Any:
        if error := next(failures, None):
            raise error
        return [document("Emma", "Emma is a novel.")]

    parts.model.does, parts.model.after = raises(DOWN), 2
    names: dict[str, Any] = {"llm": parts.reflecting(), "retriever": retriever}
    first, then = BLOCK.findall(PAGE)
    exec(compile(first, "faults.md", "exec"), names)
    said = "the retriever raised ConnectionError: no route; ask again once it works, "
    assert capsys.readouterr().out.startswith(said)
    assert said in PAGE
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen.", "model")
    parts.model.does = parts.model.works
    exec(compile(then, "faults.md", "exec"), names)
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen. In 1815.", None)
