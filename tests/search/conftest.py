import asyncio
from pathlib import Path

import pytest

from selfcorrect_rag.search import Index

from .stand_ins import Call, WordHash


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


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a method by its name, or its async twin, whose name has an a in front."""
    if request.param == "sync":
        return lambda found, name, *args, **options: getattr(found, name)(*args, **options)
    return lambda found, name, *args, **options: asyncio.run(
        getattr(found, "a" + name)(*args, **options)
    )
