"""Opens an index of either kind from its folder."""

from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from selfcorrect_rag.errors import SelfCorrectError, describe_error, find_named
from selfcorrect_rag.search.bm25 import BM25Index
from selfcorrect_rag.search.chroma import ChromaIndex
from selfcorrect_rag.search.index import (
    BM25_FILE,
    CHROMA_FILE,
    STORE_FILE,
    Index,
    IndexRetriever,
    holds,
    is_index,
)
from selfcorrect_rag.search.minilm import MiniLM
from selfcorrect_rag.search.store import StoreIndex


class NoIndex(SelfCorrectError, FileNotFoundError):
    """There is no index in a folder, or one of another kind."""


class BadName(SelfCorrectError, ValueError):
    """A ``module:attribute`` that does not lead to what is wanted."""


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
    if holds(path, STORE_FILE):
        raise NoIndex(f"{path} holds the list of a vector store: name the store with --store")
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
        EmbedderMismatch, BadName: see `open_index`, `find_embeddings`.
    """
    path = Path(path)
    if embeddings == "bm25":
        if is_index(path) and not holds(path, BM25_FILE):
            raise NoIndex(f"{path} holds another index: index into a new folder for BM25")
        return BM25Index(path)
    found = find_embeddings(embeddings) if embeddings else None
    return open_index(path, found) if is_index(path) else ChromaIndex(path, found)


def open_retriever(
    path: str | Path, k: int = 5, embeddings: Embeddings | None = None
) -> IndexRetriever:
    """A retriever for the ``k`` best passages of the index in ``path``; see `open_index`."""
    return open_index(path, embeddings).as_retriever(k)


def open_or_make_list(path: str | Path, store: str) -> StoreIndex:
    """The vector store called ``store``, and the list of its passages in the folder ``path``.

    Raises:
        NoIndex: the folder holds an index of another kind.
        BadName: the name leads to no vector store.
        EmbedderMismatch, UnreadableIndex, StoreFailed: see `StoreIndex`.
    """
    path = Path(path)
    refuse_other_index(path)
    found = find_store(store)
    if isinstance(found, BaseRetriever):
        raise BadName(f"{store} is {type(found).__name__}, which only reads: give the vector store")
    return StoreIndex(path, found)


def refuse_other_index(path: Path) -> None:
    """Do nothing if the folder ``path`` may hold, or holds, the list of a vector store.

    Raises:
        NoIndex: it holds an index of another kind.
    """
    if is_index(path) and not holds(path, STORE_FILE):
        raise NoIndex(f"{path} holds an index: give --index a new folder for the store's list")


def find_embeddings(name: str) -> Embeddings:
    """The embeddings called ``name``: "minilm", or ``module:attribute``.

    The attribute is LangChain `Embeddings`, or makes them when called without arguments.

    Raises:
        BadName: it does not exist or is something else.
    """
    if name == "minilm":
        return MiniLM()
    embeddings: Embeddings = _named(name, (Embeddings,), "minilm, bm25")
    return embeddings


def find_store(name: str) -> VectorStore | BaseRetriever:
    """The vector store or retriever called ``name``, a ``module:attribute``.

    The attribute is one of LangChain's, or makes it when called without arguments.

    Raises:
        BadName: it does not exist or is something else.
    """
    store: VectorStore | BaseRetriever = _named(name, (VectorStore, BaseRetriever))
    return store


def _named(name: str, kinds: tuple[type, ...], others: str = "") -> Any:
    try:
        made = find_named(name, *kinds)
    except Exception as error:  # any code runs where a module is imported
        wanted = f"neither {others} nor an" if others else "no"
        reason = describe_error(error)
        raise BadName(f"{name} is {wanted} importable module:attribute ({reason})") from error
    if not isinstance(made, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise BadName(f"{name} is {type(made).__name__}, not LangChain {wanted}")
    return made
