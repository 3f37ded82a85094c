"""CRAG's interface to web search, and adapters for tools, functions and retrievers."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.tools import BaseTool
from langgraph.constants import TAG_NOSTREAM

from selfcorrect_rag.errors import BadArgument, WebSearchFailed, one_line, require, safe_message
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever


class WebSearch(ABC):
    """Finds pages for a query (CRAG section 4.5).

    Pages are Documents with ``title`` and ``source`` (the address) in their metadata, best first. A
    search that fails raises `WebSearchFailed`.
    """

    name: str
    """Name of the search in results."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Document]:
        """Return at most ``k`` pages."""

    @abstractmethod
    async def asearch(self, query: str, k: int) -> list[Document]:
        """Return at most ``k`` pages."""


class NoWebSearch(WebSearch):
    """No web search: a run uses the retrieved documents only, and says how to add one."""

    name = "the web"

    def __init__(self, remedy: str = "give web_search=TavilyWebSearch(), or a retriever") -> None:
        """``remedy`` says how to add a web search."""
        self._remedy = remedy

    def search(self, query: str, k: int) -> list[Document]:
        raise WebSearchFailed(f"there is no web search: {self._remedy}")

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self.search(query, k)


class RetrieverWebSearch(WebSearch):
    """A retriever, a function or a LangChain tool in place of a web search.

    Args:
        retriever: A second corpus, an intranet, a search engine's tool.
        name: Its name in results.
        read: Converts its results to documents; by default `read_pages` for a tool, else nothing.

    Raises:
        BadArgument: ``retriever`` is none of these.
    """

    def __init__(
        self,
        retriever: Retriever | BaseTool,
        name: str = "a local corpus in place of the web",
        *,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        if isinstance(retriever, BaseTool):
            retriever, read = _CalledTool(retriever), read or read_pages
        source = f"{name}, as the web,"
        self._retriever = AnyRetriever(retriever, source, WebSearchFailed, read, filters=False)

    def search(self, query: str, k: int) -> list[Document]:
        return self._named(self._retriever.invoke(query, _quiet(), k=k), k)

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self._named(await self._retriever.ainvoke(query, _quiet(), k=k), k)

    def _named(self, found: list[Document], k: int) -> list[Document]:
        return [
            Document(d.page_content, metadata={"source": self.name, **d.metadata}, id=d.id)
            for d in found[:k]
        ]


Web = WebSearch | BaseTool | Retriever | None
"""A graph's ``web_search`` argument; None is no web search."""


def as_web_search(given: object) -> WebSearch:
    """Return a factory's argument as a `WebSearch`.

    Args:
        given: A `WebSearch`; a LangChain tool that searches, retriever or vector store; a function
            from a query to pages, sync or async; or None for no web search.

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
            "web_search must be a WebSearch such as TavilyWebSearch(), a LangChain tool, "
            "retriever or vector store, a function from a query to pages, or None; got "
            f"{type(given).__name__}"
        ) from error


_LISTS = ("results", "organic", "organic_results", "items", "web")
_TEXTS = ("page_content", "raw_content", "content", "snippet", "body", "description", "text")
_SOURCES = ("url", "link", "href", "source")


def read_pages(found: Any) -> Any:
    """Return the pages in a search tool's result as Documents, if its format is known.

    Known formats are a list of texts, or of objects with text and address under common names; an
    object with such a list (``{"results": [...]}`` of langchain-tavily); the same as JSON; one
    text. Anything else is returned unchanged.

    Raises:
        WebSearchFailed: it is an object with an ``error``.
    """
    if isinstance(found, str):
        try:
            read = json.loads(found) if found.strip()[:1] in ("[", "{") else [found]
        except ValueError:
            read = [found]
        return read_pages(read)
    if isinstance(found, Mapping):
        if found.get("error"):
            raise WebSearchFailed(safe_message(found["error"]))
        found = next((found[key] for key in _LISTS if isinstance(found.get(key), list)), [found])
    if not isinstance(found, list | tuple):
        return found
    return [page for page in map(_page, found) if page is not None]


def _page(given: Any) -> Any:
    """Return one page; None if it has no text, ``given`` itself if its format is unknown."""
    if isinstance(given, str):
        return Document(given) if given.strip() else None
    if not isinstance(given, Mapping) or "page_content" in given:
        return given
    texts = [given[key] for key in _TEXTS if isinstance(given.get(key), str)]
    if not texts and not any(key in given for key in _TEXTS):
        return given
    source = next((given[key] for key in _SOURCES if given.get(key)), None)
    known = {"title": given.get("title"), "source": source}
    metadata = {key: str(value) for key, value in known.items() if value is not None}
    text = next(filter(str.strip, texts), "")
    return Document(text, metadata=metadata) if text else None


_MARKUP = re.compile(r"</?(?:html|body|div|p|span|br|table|ul|li|h[1-6]|script)\b[^<>]*>", re.I)
_INLINE = [
    "a",
    "abbr",
    "b",
    "code",
    "em",
    "font",
    "i",
    "mark",
    "q",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "td",
    "th",
    "u",
]


def page_text(text: str, most: int) -> str:
    """Return the first ``most`` characters of a page's text, without markup and blank lines.

    Raises:
        MissingExtra: lxml is not installed.
    """
    text = valid(text[: 20 * most])
    if _MARKUP.search(text):
        html, etree = require("lxml.html", "tavily"), require("lxml.etree", "tavily")
        tree = html.document_fromstring(text)
        etree.strip_elements(tree, "script", "style", etree.Comment, with_tail=False)
        etree.strip_tags(tree, *_INLINE)
        text = "\n".join(tree.itertext())
    lines = text[: 4 * most].splitlines()
    return "\n".join(line for raw in lines if (line := one_line(raw)))[:most]


class _CalledTool(Runnable[str, Any]):
    """A tool that is called with its query as plain text."""

    def __init__(self, tool: BaseTool) -> None:
        fields = list(tool.args)
        if not fields:
            raise BadArgument(f"the tool {tool.name} takes no query")
        # A handled error would be the tool's result, and read as a page.
        self._tool = tool.model_copy(update={"handle_tool_error": False})
        self._field = "query" if "query" in fields else fields[0]

    def invoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._tool.invoke({self._field: input}, config)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> Any:
        return await self._tool.ainvoke({self._field: input}, config)


def _quiet() -> RunnableConfig:
    # A retriever may call a chat model, whose tokens are not part of the answer.
    return ensure_config({"tags": [TAG_NOSTREAM]})
