"""The user's own documents: files into an index, an index as a retriever; web search."""

from selfcorrect_rag.search.documents import IndexReport, Problem, index_paths, load
from selfcorrect_rag.search.index import Index, NoIndex, is_index, open_index
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.search.web_search import (
    NoWebSearch,
    RetrieverWebSearch,
    TavilyWebSearch,
    WebSearch,
    as_web_search,
)

__all__ = [
    "Index",
    "IndexReport",
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
