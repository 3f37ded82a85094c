"""Web search with Tavily: pages as text, and every failure in one line."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from langchain_core.documents import Document
from tenacity import (
    AsyncRetrying,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from selfcorrect_rag.errors import WebSearchFailed, require, safe_message
from selfcorrect_rag.search.page_text import page_text
from selfcorrect_rag.search.web_search import WebSearch


class _Transient(WebSearchFailed):
    """A failure that is worth a retry."""


class TavilyWebSearch(WebSearch):
    """Searches with tavily-python, from sync and async code alike.

    Pages are untrusted: only their text is used, up to ``max_characters``.

    Raises:
        MissingExtra: tavily-python or lxml is not installed.
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
        """Check that there is a key; makes no call yet.

        Args:
            api_key: ``TAVILY_API_KEY`` of the environment by default.
            include_domains: search only these.
            exclude_domains: never these.
            prefer_domains: their pages come first (the paper prefers Wikipedia's).
            raw_content: take the text of pages; only their snippets otherwise.
            max_characters: maximum per page; the rest is cut.
            timeout: seconds for one attempt, 120 at most.
            retries: further attempts after a transient failure.
            search_depth: as Tavily names it: basic, advanced, fast, ultra-fast.
            api_base_url: address of the API, for a proxy or a test server.
        """
        self._tavily = require("tavily", "tavily")
        require("lxml", "tavily")  # which reads the pages
        key = (api_key or os.environ.get("TAVILY_API_KEY") or "").strip()
        if not key:
            raise WebSearchFailed("Tavily needs a key: give api_key, or set TAVILY_API_KEY")
        self._connection = {"api_key": key, "api_base_url": api_base_url}
        self._prefer = tuple(prefer_domains)
        self._max_characters, self._retries = max_characters, retries
        self._options: dict[str, Any] = {
            "include_domains": list(include_domains) or None,
            "exclude_domains": list(exclude_domains) or None,
            "include_raw_content": "text" if raw_content else None,
            "search_depth": search_depth,
            "timeout": timeout,
        }

    def search(self, query: str, k: int) -> list[Document]:
        with self._tavily.TavilyClient(**self._connection) as client:
            for attempt in Retrying(**self._attempts()):
                with attempt:
                    return self._pages(self._asked(client, query, k), k)
        raise AssertionError("the last attempt returns or raises")

    async def asearch(self, query: str, k: int) -> list[Document]:
        # A client of its own: Tavily's belongs to the event loop in which it was first used.
        async with self._tavily.AsyncTavilyClient(**self._connection) as client:
            async for attempt in AsyncRetrying(**self._attempts()):
                with attempt:
                    answer = await self._aasked(client, query, k)
                    # Pages may be long, and parsing them would block the event loop.
                    return await asyncio.to_thread(self._pages, answer, k)
        raise AssertionError("the last attempt returns or raises")

    def _attempts(self) -> dict[str, Any]:
        return {
            "stop": stop_after_attempt(1 + self._retries),
            "wait": wait_random_exponential(multiplier=0.2, max=2),
            "retry": retry_if_exception_type(_Transient),
            "reraise": True,
        }

    def _asked(self, client: Any, query: str, k: int) -> Any:
        try:
            return client.search(query, max_results=min(k, 20), **self._options)
        except Exception as error:
            raise self._failure(error) from error

    async def _aasked(self, client: Any, query: str, k: int) -> Any:
        try:
            return await client.search(query, max_results=min(k, 20), **self._options)
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> WebSearchFailed:
        """The message for any error that tavily-python, requests or httpx raises."""
        errors = self._tavily.errors
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = f": {safe_message(error)}" if str(error) else ""
        match error:
            case errors.InvalidAPIKeyError():
                return WebSearchFailed("Tavily refuses the key (401): check TAVILY_API_KEY")
            case errors.UsageLimitExceededError():
                return WebSearchFailed(f"Tavily's limit of requests is reached (429){why}")
            case errors.ForbiddenError():
                return WebSearchFailed(f"Tavily does not allow it: plan or limit{why}")
            case errors.BadRequestError():
                return WebSearchFailed(f"Tavily does not take the query (400){why}")
            case errors.TimeoutError():
                return _Transient(f"Tavily gave no answer within {self._options['timeout']:g} s")
            case ValueError() if "JSON" in type(error).__name__:
                return _Transient("Tavily did not answer in JSON")
        if status is not None and 400 <= status < 500:
            return WebSearchFailed(f"Tavily answered HTTP {status}")
        if status is not None:
            return _Transient(f"Tavily answered HTTP {status}")
        return _Transient(f"Tavily cannot be reached ({type(error).__name__})")

    def _pages(self, answer: Any, k: int) -> list[Document]:
        """The pages of an answer, each address once, those of preferred domains first."""
        results = answer.get("results") if isinstance(answer, Mapping) else None
        if not isinstance(results, list):
            raise WebSearchFailed("Tavily's answer has no list of results")
        pages: dict[str, Document] = {}
        for result in results:
            page = self._page(result)
            if page is not None:
                pages.setdefault(page.metadata["source"], page)
        ranked = sorted(pages.values(), key=lambda page: not self._preferred(page))
        return ranked[:k]

    def _page(self, result: Any) -> Document | None:
        """One result as a document; None without a web address or text."""
        if not isinstance(result, Mapping):
            return None
        url = str(result.get("url") or "")
        text = page_text(str(result.get("raw_content") or "")) or page_text(
            str(result.get("content") or "")
        )
        if urlsplit(url).scheme not in ("http", "https") or not text:
            return None
        metadata = {"title": page_text(str(result.get("title") or ""))[:300], "source": url}
        if isinstance(result.get("score"), int | float):
            metadata["search_score"] = float(result["score"])  # type: ignore[assignment]
        return Document(text[: self._max_characters], metadata=metadata, id=url)

    def _preferred(self, page: Document) -> bool:
        host = urlsplit(page.metadata["source"]).hostname or ""
        return any(host == domain or host.endswith(f".{domain}") for domain in self._prefer)
