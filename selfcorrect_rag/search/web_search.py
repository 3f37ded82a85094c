"""CRAG's interface to web search, and adapters for tools, functions and retrievers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.tools import BaseTool
from langgraph.constants import TAG_NOSTREAM

from selfcorrect_rag.errors import BadArgument, WebSearchFailed, safe_message
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever


class WebSearch(ABC):
    """Finds pages for a query (CRAG section 4.5).

    Results are Documents with ``title`` and ``source`` (the address) in their metadata, best
    first. A search that fails raises
    :class:`~selfcorrect_rag.errors.WebSearchFailed`.
    """

    name: str
    """Name of the search in results."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Document]:
        """At most ``k`` pages."""

    @abstractmethod
    async def asearch(self, query: str, k: int) -> list[Document]:
        """The async twin of :meth:`search`."""


class NoWebSearch(WebSearch):
    """No web search: the run uses the retrieved documents only, and says how to add one."""

    name = "the web"

    def __init__(self, remedy: str = "give web_search=TavilyWebSearch(), or a retriever") -> None:
        """``remedy`` says how to add a web search."""
        self._remedy = remedy

    def search(self, query: str, k: int) -> list[Document]:
        raise WebSearchFailed(f"none was chosen: {self._remedy}")

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self.search(query, k)


class RetrieverWebSearch(WebSearch):
    """A retriever, a function or a LangChain tool in place of a web search.

    A second corpus, an intranet, a search engine's tool, or a demo without a network.
    """

    def __init__(
        self,
        retriever: Retriever | BaseTool,
        name: str = "a local corpus in place of the web",
        *,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """Wrap ``retriever``.

        Args:
            retriever: the retriever, function or tool.
            name: its name in results.
            read: converts its results to documents; by default :func:`read_pages` for a tool, else
                none.

        Raises:
            BadArgument: it is none of these.
        """
        self.name = name
        if isinstance(retriever, BaseTool):
            retriever, read = _CalledTool(retriever), read or read_pages
        source = f"{name}, as the web,"
        self._retriever = AnyRetriever(retriever, source, WebSearchFailed, read)

    def search(self, query: str, k: int) -> list[Document]:
        return self._named(self._retriever.invoke(query, _unstreamed(), k=k), k)

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self._named(await self._retriever.ainvoke(query, _unstreamed(), k=k), k)

    def _named(self, found: list[Document], k: int) -> list[Document]:
        return [
            Document(d.page_content, metadata={"source": self.name, **d.metadata}, id=d.id)
            for d in found[:k]
        ]


Web = WebSearch | BaseTool | Retriever | None
"""A graph's ``web_search`` argument; None is no web search."""


def as_web_search(given: object) -> WebSearch:
    """A factory's argument as a :class:`WebSearch`.

    Args:
        given: a :class:`WebSearch`; a LangChain tool that searches, retriever or vector store; a
            function from a query to pages, sync or async; or None for no web search.

    Raises:
        BadArgument: it is something else.
    """
    if given is None:
        return NoWebSearch()
    if isinstance(given, WebSearch):
        return given
    options: dict[str, Any] = {"read": read_pages}
    if isinstance(given, BaseTool):
        options["name"] = given.name
    elif not isinstance(given, Runnable) and callable(given):
        options["name"] = str(getattr(given, "__name__", type(given).__name__))
    wanted: Any = given
    try:
        return RetrieverWebSearch(wanted, **options)
    except BadArgument as error:
        raise BadArgument(
            f"web_search is a {type(given).__name__}: give a WebSearch such as TavilyWebSearch(), "
            "a LangChain tool, retriever or vector store, a function from a query to pages, or None"
        ) from error


_LISTS = ("results", "organic", "organic_results", "items", "web")
_TEXTS = ("page_content", "raw_content", "content", "snippet", "body", "description", "text")
_SOURCES = ("url", "link", "href", "source")


def read_pages(found: Any) -> Any:
    """The pages in a search tool's result as Documents, if its format is known.

    Known formats are a list of texts, or of objects with text and address under common names; an
    object with such a list (``{"results": [...]}`` of langchain-tavily); the same as JSON; one
    text. Anything else is returned unchanged.

    Raises:
        WebSearchFailed: it is an object with an ``error``.
    """
    if isinstance(found, str):
        text = found.strip()
        try:
            return read_pages(json.loads(text)) if text[:1] in ("[", "{") else _pages([text])
        except ValueError:
            return _pages([text])
    if isinstance(found, Mapping):
        if found.get("error"):
            raise WebSearchFailed(safe_message(found["error"]))
        lists = (found[key] for key in _LISTS if isinstance(found.get(key), list))
        return _pages(next(lists, [found]))
    return _pages(found) if isinstance(found, list | tuple) else found


def _pages(found: list[Any] | tuple[Any, ...]) -> list[Any]:
    return [page for page in map(_page, found) if page is not None]


def _page(given: Any) -> Any:
    """One page; None if it has no text, ``given`` itself if its format is unknown."""
    if isinstance(given, str):
        return Document(given) if given.strip() else None
    if not isinstance(given, Mapping) or "page_content" in given:
        return given
    if not any(key in given for key in _TEXTS):
        return given
    text = next((given[key] for key in _TEXTS if isinstance(given.get(key), str)), "")
    source = next((given[key] for key in _SOURCES if given.get(key)), None)
    metadata = {"title": given.get("title"), "source": source}
    kept = {key: str(value) for key, value in metadata.items() if value is not None}
    return Document(text, metadata=kept) if text.strip() else None


class _CalledTool(Runnable[str, Any]):
    """A tool that is called with its query as plain text."""

    def __init__(self, tool: BaseTool) -> None:
        fields = list(tool.args)
        if not fields:
            raise BadArgument(f"the tool {tool.name} takes no query")
        # A handled error is the tool's result, a text like any: it would be read as a page.
        self._tool = tool.model_copy(update={"handle_tool_error": False})
        self._field = "query" if "query" in fields else fields[0]

    def invoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._tool.invoke({self._field: input}, config)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> Any:
        return await self._tool.ainvoke({self._field: input}, config)


def _unstreamed() -> RunnableConfig:
    # A retriever may call a chat model, whose tokens are not part of the answer.
    return ensure_config({"tags": [TAG_NOSTREAM]})
