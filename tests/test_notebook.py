"""The notebook runs anywhere, and what it shows without being run is what it gives."""

from pathlib import Path

import nbformat
import pytest

from tests.notebooks import executed, printed, shown
from tests.test_docs import ROOT

NOTEBOOK = ROOT / "examples" / "thresholds_and_weights.ipynb"


def test_thresholds_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    stored = nbformat.read(NOTEBOOK, as_version=4)
    fresh = executed(NOTEBOOK, tmp_path)
    assert printed(fresh) == printed(stored), (
        "the models say something else now: `make notebook`, and read whether its words still hold"
    )
    for notebook in (fresh, stored):
        assert len(shown(notebook, "image/png")) == 4
        (page,) = shown(notebook, "text/html")
        assert page.startswith("<iframe")
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
