"""Ranking by words (BM25 of bm25s), the fusion of rankings, and places of their own."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from langchain_core.documents import Document

from selfcorrect_rag.errors import require

_RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) of each ranking."""
_SAME_PLACE = 2
"""Passages of one page or section that are taken before those of other places."""
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts without spaces
_TOKEN = rf"(?u)[{_WIDE}]|[^\W{_WIDE}]+"


def load_words(folder: Path) -> tuple[list[str], Any] | None:
    """Return ids and ``bm25s.BM25`` stored in a folder; None if there are none or broken ones."""
    try:
        ids = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
        return ids, require("bm25s", "demo").BM25.load(folder, mmap=True, show_progress=False)
    except Exception:
        return None


def count_words(texts: Mapping[str, str], folder: Path) -> tuple[list[str], Any]:
    """Compute BM25 of texts by id, and store it in ``folder`` in place of earlier ones.

    Returns:
        The ids, and ``bm25s.BM25``; None if there are no words.
    """
    ids, tokens = list(texts), tokenize(list(texts.values()))
    if not any(tokens):
        return [], None
    bm25 = require("bm25s", "demo").BM25()
    bm25.index(tokens, show_progress=False)
    # A read-only index can be searched too.
    with suppress(OSError), tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as new:
        stored = Path(new) / "words"
        bm25.save(stored, show_progress=False)
        (stored / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
        for earlier in folder.parent.glob("words-*"):
            shutil.rmtree(earlier, ignore_errors=True)
        stored.rename(folder)
    return ids, bm25


def fuse(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return ids with their fused scores, best first (reciprocal rank fusion)."""
    scores: dict[str, float] = {}
    for ids in rankings:
        for rank, id_ in enumerate(ids, 1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (_RRF + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def spread(documents: Sequence[Document]) -> list[Document]:
    """Put passages of a place that has two better ones behind those of other places."""
    taken: dict[tuple[Any, ...], int] = {}
    first: list[Document] = []
    later: list[Document] = []
    for document in documents:
        place = tuple(document.metadata.get(key) for key in ("source", "page", "heading"))
        taken[place] = taken.get(place, 0) + ("chunk" in document.metadata)
        (later if taken[place] > _SAME_PLACE else first).append(document)
    return [*first, *later]


def tokenize(texts: list[str]) -> list[list[str]]:
    """Return each text's words, without English stop words."""
    tokens = require("bm25s", "demo").tokenize(
        [text.casefold() for text in texts],
        lower=False,
        token_pattern=_TOKEN,
        stopwords="english",
        return_ids=False,
        show_progress=False,
    )
    return cast(list[list[str]], tokens)
