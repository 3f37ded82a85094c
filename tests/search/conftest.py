from pathlib import Path

import pytest

from selfcorrect_rag.search import Index

from .stand_ins import WordHash


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture(params=["hybrid", "bm25"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    return Index(tmp_path / "index", WordHash() if request.param == "hybrid" else "bm25")


@pytest.fixture
def hybrid(tmp_path: Path) -> Index:
    return Index(tmp_path / "index", WordHash())
