"""Opens an index of either kind from its folder."""

import importlib
from pathlib import Path

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.search.bm25 import BM25Index
from selfcorrect_rag.search.chroma import ChromaIndex
from selfcorrect_rag.search.index import (
    BM25_FILE,
    CHROMA_FILE,
    Index,
    IndexRetriever,
    holds,
    is_index,
)
from selfcorrect_rag.search.minilm import MiniLM


class NoIndex(SelfCorrectError, FileNotFoundError):
    """There is no index in a folder, or one of another kind."""


class NoEmbeddings(SelfCorrectError, ValueError):
    """A name that does not resolve to LangChain embeddings."""


def open_index(path: str | Path, embeddings: Embeddings | None = None) -> Index:
    """The index in the folder ``path``, Chroma or BM25.

    Args:
        embeddings: The embeddings that a Chroma index was made with; `MiniLM` by default.

    Raises:
        NoIndex: the folder holds no index, or a BM25 index and ``embeddings`` were given.
        EmbedderMismatch: the index was made with other embeddings. They are never imported by the
            name that the folder records: a folder from elsewhere would choose what code runs.
    """
    path = Path(path)
    if holds(path, CHROMA_FILE):
        return ChromaIndex(path, embeddings)
    if not holds(path, BM25_FILE):
        raise NoIndex(f"{path} holds no index: selfcorrect-rag index PATH... --index {path}")
    if embeddings is not None:
        raise NoIndex(f"{path} holds a BM25 index: open it without embeddings")
    return BM25Index(path)


def open_or_make_index(path: str | Path, embeddings: str | None = None) -> Index:
    """The index in the folder ``path``, or a new one.

    Args:
        embeddings: "minilm", "bm25" or ``module:attribute``. None is the kind in the folder, or
            "minilm" for a new index.

    Raises:
        NoIndex: the folder holds an index of the other kind.
        EmbedderMismatch, NoEmbeddings: see `open_index`, `find_embeddings`.
    """
    path = Path(path)
    if embeddings == "bm25":
        if holds(path, CHROMA_FILE):
            raise NoIndex(f"{path} holds a Chroma index: index into a new folder for BM25")
        return BM25Index(path)
    found = find_embeddings(embeddings) if embeddings else None
    return open_index(path, found) if is_index(path) else ChromaIndex(path, found)


def open_retriever(
    path: str | Path, k: int = 5, embeddings: Embeddings | None = None
) -> IndexRetriever:
    """A retriever for the ``k`` best passages of the index in ``path``; see `open_index`."""
    return open_index(path, embeddings).as_retriever(k)


def find_embeddings(name: str) -> Embeddings:
    """The embeddings called ``name``: "minilm", or ``module:attribute``.

    The attribute is LangChain `Embeddings`, or makes them when called without arguments.

    Raises:
        NoEmbeddings: it does not exist or is something else.
    """
    if name == "minilm":
        return MiniLM()
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise NoEmbeddings(
            f"{name} is neither minilm, bm25 nor an importable module:attribute ({error})"
        ) from error
    made = found() if not isinstance(found, Embeddings) and callable(found) else found
    if not isinstance(made, Embeddings):
        raise NoEmbeddings(f"{name} is {type(made).__name__}, not LangChain Embeddings")
    return made
