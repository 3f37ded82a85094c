"""What the page on faults shows works as written."""

from collections import Counter
from typing import Any

import pytest

from tests.faults.graphs import Parts, raises
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The retriever fails at first, the model after the first segment; both are mended at once."""
    parts = Parts()
    parts.retriever.breaks(raises(ConnectionError("no route")))
    names: dict[str, Any] = {
        "llm": parts.reflecting(),
        "retriever": once(parts.retriever),
    }
    first, then = BLOCK.findall(PAGE)
    parts.model.breaks(raises(ConnectionError("the model is down")), after=2)
    exec(compile(first, "faults.md", "exec"), names)
    said = "the retriever raised ConnectionError: no route; ask again once it works, "
    assert capsys.readouterr().out.startswith(said)
    assert said in PAGE
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen.", "model")
    parts.mend()
    done = Counter(parts.done)
    exec(compile(then, "faults.md", "exec"), names)
    assert (names["result"]["answer"], names["result"]["stopped"]) == ("Austen. In 1815.", None)
    assert all(parts.done[what] == times for what, times in done.items())  # none of it again


def once(retriever: Any) -> Any:
    """Broken at the first call alone."""

    def found(query: str) -> Any:
        try:
            return retriever(query)
        except ConnectionError:
            retriever.mend()
            raise

    return found
