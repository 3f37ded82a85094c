"""The user's own documents: files into an index, an index as a retriever."""

from selfcorrect_rag.search.bm25 import BM25Index
from selfcorrect_rag.search.chroma import ChromaIndex
from selfcorrect_rag.search.files import Problem
from selfcorrect_rag.search.index import Index, IndexRetriever
from selfcorrect_rag.search.indexing import IndexProgress, IndexReport, index_paths
from selfcorrect_rag.search.loading import load
from selfcorrect_rag.search.minilm import MiniLM
from selfcorrect_rag.search.open_index import open_index, open_or_make_index, open_retriever
from selfcorrect_rag.search.store import StoreIndex
from selfcorrect_rag.search.tavily import TavilyWebSearch
from selfcorrect_rag.search.web_search import NoWebSearch, RetrieverWebSearch, WebSearch

__all__ = [
    "BM25Index",
    "ChromaIndex",
    "Index",
    "IndexProgress",
    "IndexReport",
    "IndexRetriever",
    "MiniLM",
    "NoWebSearch",
    "Problem",
    "RetrieverWebSearch",
    "StoreIndex",
    "TavilyWebSearch",
    "WebSearch",
    "index_paths",
    "load",
    "open_index",
    "open_or_make_index",
    "open_retriever",
]
