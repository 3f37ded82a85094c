"""The user's own documents: files into an index, an index as a retriever; web search.

The names below are imported at their first use: the process that converts files loads no LangChain.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcorrect_rag.search.documents import load
    from selfcorrect_rag.search.files import Problem
    from selfcorrect_rag.search.folder import NoIndex
    from selfcorrect_rag.search.index import Index, is_index, open_index
    from selfcorrect_rag.search.indexing import IndexProgress, IndexReport, index_paths
    from selfcorrect_rag.search.retriever import IndexRetriever, Retriever
    from selfcorrect_rag.search.tavily import TavilyWebSearch
    from selfcorrect_rag.search.web_search import (
        NoWebSearch,
        RetrieverWebSearch,
        WebSearch,
        as_web_search,
    )

_MODULES = {
    "documents": ("load",),
    "files": ("Problem",),
    "folder": ("NoIndex",),
    "index": ("Index", "is_index", "open_index"),
    "indexing": ("IndexProgress", "IndexReport", "index_paths"),
    "retriever": ("IndexRetriever", "Retriever"),
    "tavily": ("TavilyWebSearch",),
    "web_search": ("NoWebSearch", "RetrieverWebSearch", "WebSearch", "as_web_search"),
}
__all__ = [
    "Index",
    "IndexProgress",
    "IndexReport",
    "IndexRetriever",
    "NoIndex",
    "NoWebSearch",
    "Problem",
    "Retriever",
    "RetrieverWebSearch",
    "TavilyWebSearch",
    "WebSearch",
    "as_web_search",
    "index_paths",
    "is_index",
    "load",
    "open_index",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
