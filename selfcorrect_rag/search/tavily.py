"""Web search by Tavily."""

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from langchain_core.documents import Document
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from selfcorrect_rag.errors import WebSearchFailed, require, safe_message
from selfcorrect_rag.search.web_search import WebSearch, page_text

MAX_BYTES = 32 * 2**20
"""Bytes of an answer; Tavily's are at most a few megabytes."""
MAX_RESULTS = 20
"""Most pages that Tavily gives."""


class _Transient(WebSearchFailed):
    """A failure that is worth a retry."""


class TavilyWebSearch(WebSearch):
    """Searches with tavily-python. Pages are untrusted: only their text is used.

    Args:
        api_key: ``TAVILY_API_KEY`` of the environment by default.
        include_domains: Search only these.
        exclude_domains: Never these.
        prefer_domains: Their pages come first, among the 20 best (the paper prefers Wikipedia).
        raw_content: Take the text of pages; otherwise only their snippets.
        max_characters: Of each page; the rest is cut.
        timeout: Seconds for the whole search, retries included.
        retries: Further attempts after a transient failure.
        search_depth: As Tavily names it: basic, advanced, fast, ultra-fast.
        api_base_url: Address of the API, for a proxy or a test server.

    Raises:
        MissingExtra: the extra ``tavily`` is not installed.
        WebSearchFailed: there is no key; Tavily's own client would go on without one.
    """

    name = "Tavily"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        include_domains: Sequence[str] = (),
        exclude_domains: Sequence[str] = (),
        prefer_domains: Sequence[str] = (),
        raw_content: bool = True,
        max_characters: int = 20_000,
        timeout: float = 20.0,
        retries: int = 2,
        search_depth: str = "basic",
        api_base_url: str | None = None,
    ) -> None:
        self._tavily, self._httpx = require("tavily", "tavily"), require("httpx", "tavily")
        require("lxml", "tavily")  # reads the pages
        self._key = (api_key or os.environ.get("TAVILY_API_KEY") or "").strip()
        if not self._key:
            raise WebSearchFailed("Tavily needs a key: give api_key, or set TAVILY_API_KEY")
        self._address = api_base_url or "https://api.tavily.com"
        self._prefer = tuple(prefer_domains)
        self._max_characters, self._timeout, self._retries = max_characters, timeout, retries
        self._options: dict[str, Any] = {
            "include_domains": list(include_domains) or None,
            "exclude_domains": list(exclude_domains) or None,
            "include_raw_content": "text" if raw_content else None,
            "search_depth": search_depth,
            "timeout": timeout,
        }

    def search(self, query: str, k: int) -> list[Document]:
        # In a thread, for the caller may be in an event loop.
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, asyncio.run, self.asearch(query, k)).result()

    async def asearch(self, query: str, k: int) -> list[Document]:
        attempts = AsyncRetrying(
            stop=stop_after_attempt(1 + self._retries),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            retry=retry_if_exception_type(_Transient),
            reraise=True,
        )
        try:
            async with asyncio.timeout(self._timeout):
                answer: Any = await attempts(self._ask, query, MAX_RESULTS if self._prefer else k)
        except TimeoutError as error:
            raise WebSearchFailed(f"Tavily gave no answer within {self._timeout:g} s") from error
        # Parsing long pages would block the event loop.
        return await asyncio.to_thread(self._pages, answer, k)

    async def _ask(self, query: str, k: int) -> Any:
        client = self._httpx.AsyncClient(
            base_url=self._address,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [self._limit]},
        )
        async with client:
            tavily = self._tavily.AsyncTavilyClient(api_key=self._key, client=client)
            try:
                return await tavily.search(query, max_results=min(k, MAX_RESULTS), **self._options)
            except Exception as error:
                raise self._failure(error) from error

    async def _limit(self, response: Any) -> None:
        """Refuse long answers and packed ones, whose length is unknown."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise WebSearchFailed("Tavily's answer is compressed, which was not asked for")
        stream = response.stream

        class Limited(self._httpx.AsyncByteStream):  # type: ignore[misc, name-defined]
            async def __aiter__(self) -> AsyncIterator[bytes]:
                size = 0
                async for block in stream:
                    size += len(block)
                    if size > MAX_BYTES:
                        limit = f"{MAX_BYTES / 2**20:.0f} MiB"
                        raise WebSearchFailed(f"Tavily's answer is longer than {limit}")
                    yield block

            async def aclose(self) -> None:
                await stream.aclose()

        response.stream = Limited()

    def _failure(self, error: Exception) -> WebSearchFailed:
        """Return the message for any error that tavily-python or httpx raises."""
        errors = self._tavily.errors
        why = f": {safe_message(error)}" if str(error) else ""
        for kind, reason in (
            (WebSearchFailed, ""),
            (errors.InvalidAPIKeyError, "Tavily refuses the key (401): check TAVILY_API_KEY"),
            (errors.UsageLimitExceededError, f"Tavily's limit of requests is reached (429){why}"),
            (errors.ForbiddenError, f"Tavily does not allow it: plan or limit{why}"),
            (errors.BadRequestError, f"Tavily does not take the query (400){why}"),
        ):
            if isinstance(error, kind):
                return WebSearchFailed(reason) if reason else error
        if isinstance(error, ValueError) and "JSON" in type(error).__name__:
            return _Transient("Tavily did not answer in JSON")
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is None:
            return _Transient(f"Tavily cannot be reached ({type(error).__name__})")
        kind = WebSearchFailed if 400 <= status < 500 else _Transient
        return kind(f"Tavily answered HTTP {status}")

    def _pages(self, answer: Any, k: int) -> list[Document]:
        """Return the pages of an answer, each address once, those of preferred domains first."""
        results = answer.get("results") if isinstance(answer, Mapping) else None
        if not isinstance(results, list):
            raise WebSearchFailed("Tavily's answer has no list of results")
        pages: dict[str, Document] = {}
        for result in results:
            if isinstance(result, Mapping) and (page := self._page(result)):
                pages.setdefault(page.metadata["source"], page)
        return sorted(pages.values(), key=lambda page: not self._is_preferred(page))[:k]

    def _page(self, result: Mapping[str, Any]) -> Document | None:
        """Return one result as a document; None without a web address or text."""
        url = str(result.get("url") or "")
        raw = (str(result.get(key) or "") for key in ("raw_content", "content"))
        texts = (page_text(text, self._max_characters) for text in raw)
        text = next(filter(None, texts), "")
        if urlsplit(url).scheme not in ("http", "https") or not text:
            return None
        metadata: dict[str, Any] = {"source": url}
        metadata["title"] = page_text(str(result.get("title") or ""), 300)
        if isinstance(result.get("score"), int | float):
            metadata["search_score"] = float(result["score"])
        return Document(text, metadata=metadata, id=url)

    def _is_preferred(self, page: Document) -> bool:
        host = urlsplit(page.metadata["source"]).hostname or ""
        return any(host == domain or host.endswith(f".{domain}") for domain in self._prefer)
