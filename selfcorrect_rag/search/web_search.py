"""The interface between CRAG and the web, and a local stand-in for it."""

from abc import ABC, abstractmethod

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.constants import TAG_NOSTREAM

from selfcorrect_rag.errors import WebSearchFailed
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever


class WebSearch(ABC):
    """Finds pages for a query (CRAG section 4.5).

    Results are Documents with ``title`` and ``source`` (the address) in their metadata, best
    first. A search that fails raises
    :class:`~selfcorrect_rag.errors.WebSearchFailed`.
    """

    name: str
    """Who answers, as a result shows it."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Document]:
        """At most ``k`` pages."""

    @abstractmethod
    async def asearch(self, query: str, k: int) -> list[Document]:
        """The async twin of :meth:`search`."""


class RetrieverWebSearch(WebSearch):
    """A retriever that plays the web: a second corpus, an intranet, a demo without a network."""

    def __init__(
        self, retriever: Retriever, name: str = "a local corpus in place of the web"
    ) -> None:
        self.name = name
        self._retriever = AnyRetriever(retriever, f"{name}, as the web,", WebSearchFailed)

    def search(self, query: str, k: int) -> list[Document]:
        return self._named(self._retriever.invoke(query, _unstreamed()), k)

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self._named(await self._retriever.ainvoke(query, _unstreamed()), k)

    def _named(self, found: list[Document], k: int) -> list[Document]:
        return [
            Document(d.page_content, metadata={"source": self.name, **d.metadata}, id=d.id)
            for d in found[:k]
        ]


def _unstreamed() -> RunnableConfig:
    # A retriever may ask a chat model, whose words are no part of the answer.
    return ensure_config({"tags": [TAG_NOSTREAM]})
