"""CRAG's interface to web search: Tavily, and adapters for tools, functions and retrievers."""

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool

from selfcorrect_rag.errors import (
    BadArgument,
    WebSearchFailed,
    describe_error,
    require,
    safe_message,
)
from selfcorrect_rag.models.chat_model import QUIET
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever

MAX_BYTES = 32 * 2**20
"""Bytes of Tavily's answer, which has at most a few megabytes."""
MAX_RESULTS = 20
"""Most pages that Tavily gives."""
_LISTS = ("results", "organic", "organic_results", "items", "web")
_TEXTS = ("raw_content", "content", "snippet", "body", "description", "text")
_SOURCES = ("url", "link", "href", "source")


class WebSearch(ABC):
    """Finds pages for a query (CRAG section 4.5).

    Pages are Documents with ``title`` and ``source`` (the address) in their metadata, best first. A
    search that fails raises `WebSearchFailed`.
    """

    name: str

    @abstractmethod
    def search(self, query: str, k: int) -> list[Document]:
        """Return at most ``k`` pages."""

    async def asearch(self, query: str, k: int) -> list[Document]:
        """Return at most ``k`` pages; by default `search` runs in a thread."""
        return await run_in_executor(None, self.search, query, k)


class NoWebSearch(WebSearch):
    """No web search: a run uses the retrieved documents only, and says how to add one."""

    name = "the web"

    def __init__(self, remedy: str = "give web_search= a tool or a function") -> None:
        self._remedy = remedy

    def search(self, query: str, k: int) -> list[Document]:
        raise WebSearchFailed(f"there is no web search: {self._remedy}")


class RetrieverWebSearch(WebSearch):
    """A retriever, a function or a LangChain tool in place of a web search.

    Beside documents it may return what `read_pages` takes.
    """

    def __init__(
        self, retriever: Retriever | BaseTool, name: str = "a local corpus in place of the web"
    ) -> None:
        self.name = name
        inner: Any = retriever
        if isinstance(retriever, BaseTool):
            field = "query" if "query" in retriever.args else next(iter(retriever.args), "query")
            # A handled error would be the tool's result, and read as a page.
            tool = retriever.model_copy(update={"handle_tool_error": False})
            inner = RunnableLambda(lambda query: {field: query}) | tool
        known: dict[str, Any] = {"fault": WebSearchFailed, "read": read_pages, "filters": False}
        self._inner = AnyRetriever(inner, source=f"{name}, as the web,", **known)

    def search(self, query: str, k: int) -> list[Document]:
        return self._named(self._inner.invoke(query, QUIET, k=k)[:k])

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self._named((await self._inner.ainvoke(query, QUIET, k=k))[:k])

    def _named(self, found: list[Document]) -> list[Document]:
        return [
            Document(d.page_content, metadata={"source": self.name, **d.metadata}, id=d.id)
            for d in found
        ]


Web = WebSearch | BaseTool | Retriever | None
"""A graph's ``web_search`` argument; None disables the web search."""


def as_web_search(given: Any) -> WebSearch:
    """Return a factory's argument as a `WebSearch`, or raise `BadArgument`."""
    if given is None:
        return NoWebSearch()
    if isinstance(given, WebSearch):
        return given
    name = given.name if isinstance(given, BaseTool) else getattr(given, "__name__", None)
    try:
        return RetrieverWebSearch(given, **({"name": name} if name else {}))
    except BadArgument as error:
        raise BadArgument(
            "web_search must be a WebSearch such as TavilyWebSearch(), a LangChain tool, "
            "retriever or vector store, a function from a query to pages, or None; got "
            f"{type(given).__name__}"
        ) from error


def read_pages(found: Any) -> Any:
    """Return the pages in a search tool's result as Documents, if its format is known.

    Known formats are a list of texts, or of objects with text and address under common names; an
    object with such a list (``{"results": [...]}`` of langchain-tavily); the same as JSON; one
    text. Anything else is returned unchanged; an object with an ``error`` is raised.
    """
    if isinstance(found, str):
        try:
            found = json.loads(found) if found.strip()[:1] in ("[", "{") else [found]
        except ValueError:
            found = [found]
    if isinstance(found, Mapping):
        if found.get("error"):
            raise WebSearchFailed(safe_message(found["error"]))
        found = next((found[key] for key in _LISTS if isinstance(found.get(key), list)), [found])
    if not isinstance(found, list | tuple):
        return found
    pages = list(map(_read_page, found))
    return [page for page in pages if not isinstance(page, Document) or page.page_content.strip()]


def _read_page(page: Any) -> Any:
    row = {"text": page} if isinstance(page, str) else page
    if not isinstance(row, Mapping) or not any(key in row for key in _TEXTS):
        return page
    texts = (row[key] for key in _TEXTS if isinstance(row.get(key), str))
    source = next((row[key] for key in _SOURCES if row.get(key)), None)
    known = {"title": row.get("title"), "source": source}
    metadata = {key: str(value) for key, value in known.items() if value is not None}
    return Document(next(filter(str.strip, texts), ""), metadata=metadata)


class TavilyWebSearch(WebSearch):
    """Searches with tavily-python. Pages are untrusted: only their text is used.

    Args:
        api_key: ``TAVILY_API_KEY`` of the environment by default; without one, it raises.
        prefer_domains: Their pages come first, among the 20 best (the paper prefers Wikipedia).
        timeout: Seconds for the whole search.
        options: Other fields of Tavily's search, such as ``include_domains`` or ``search_depth``.
    """

    name = "Tavily"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        prefer_domains: Sequence[str] = (),
        timeout: float = 20.0,
        api_base_url: str = "https://api.tavily.com",
        **options: Any,
    ) -> None:
        self._tavily, self._httpx = require("tavily", "tavily"), require("httpx", "tavily")
        self._key = (api_key or os.environ.get("TAVILY_API_KEY") or "").strip()
        if not self._key:
            raise WebSearchFailed("Tavily needs a key: give api_key, or set TAVILY_API_KEY")
        self._address, self._timeout = api_base_url, timeout
        self._preferred = tuple(f".{domain}" for domain in prefer_domains)
        self._options = {"include_raw_content": "text", "timeout": timeout, **options}

    def search(self, query: str, k: int) -> list[Document]:
        with ThreadPoolExecutor(1) as pool:  # the caller may be in an event loop
            return pool.submit(asyncio.run, self.asearch(query, k)).result()

    async def asearch(self, query: str, k: int) -> list[Document]:
        client = self._httpx.AsyncClient(
            base_url=self._address,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [self._limit]},
        )
        results = MAX_RESULTS if self._preferred else min(k, MAX_RESULTS)
        try:
            async with asyncio.timeout(self._timeout), client:
                tavily = self._tavily.AsyncTavilyClient(self._key, client=client)
                answer = await tavily.search(query, max_results=results, **self._options)
        except WebSearchFailed:
            raise
        except TimeoutError as error:
            raise WebSearchFailed(f"Tavily gave no answer within {self._timeout:g} s") from error
        except Exception as error:
            raise WebSearchFailed(f"Tavily failed ({describe_error(error)})") from error
        return self._pages(answer)[:k]

    async def _limit(self, response: Any) -> None:
        """Refuse an answer longer than ``MAX_BYTES``, or compressed: its length is unknown."""
        blocks, size = [], 0
        async for block in response.stream:
            size += len(block)
            if size > MAX_BYTES or "content-encoding" in response.headers:
                limit = f"{MAX_BYTES / 2**20:.0f} MiB"
                raise WebSearchFailed(f"Tavily's answer is longer than {limit}, or compressed")
            blocks.append(block)
        response.stream = self._httpx.ByteStream(b"".join(blocks))

    def _pages(self, answer: Any) -> list[Document]:
        """Return the pages of an answer, each address once, those of preferred domains first."""
        if not isinstance(answer, Mapping) or not isinstance(answer.get("results"), list):
            raise WebSearchFailed("Tavily's answer has no list of results")
        pages: dict[str, Document] = {}
        for page in read_pages(answer):
            if isinstance(page, Document) and _host(page):
                pages.setdefault(page.metadata["source"], page)
        return sorted(pages.values(), key=lambda d: not f".{_host(d)}".endswith(self._preferred))


def _host(page: Document) -> str:
    """Return the host of a page's web address; empty for anything else."""
    with suppress(ValueError):
        parts = urlsplit(page.metadata.get("source", ""))
        return (parts.hostname or "") if parts.scheme in ("http", "https") else ""
    return ""
