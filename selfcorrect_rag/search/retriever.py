"""Any retriever or function as one that gives a list of Documents, in sync and async alike."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from selfcorrect_rag.documents import aas_documents, as_documents, needs_async
from selfcorrect_rag.errors import NotARetriever

Retriever = Runnable[str, list[Document]] | Callable[[str], Any]
"""A LangChain retriever, or a function from a query to documents. It may be async, then for async
runs alone; the documents may be a list, a tuple or a generator, and JSON objects."""


class AnyRetriever(Runnable[str, list[Document]]):
    """Reads what a retriever gives where that can be done without doubt, and refuses the rest.

    Raises:
        NotARetriever: when it is made, of what is no retriever.
        NoDocument: at a call that gives something else than documents, or at a sync call of what
            is async.
    """

    def __init__(self, retriever: Retriever, source: str = "the retriever") -> None:
        """Wrap ``retriever``; ``source`` is what messages call it."""
        if not isinstance(retriever, Runnable) and not callable(retriever):
            raise NotARetriever(
                f"{type(retriever).__name__} is no retriever: give a LangChain retriever, or a "
                "function from a query to documents"
            )
        self._source = source
        self._inner: Runnable[str, Any] = (
            retriever if isinstance(retriever, Runnable) else RunnableLambda(_whole(retriever))
        )
        self._needs_async = isinstance(self._inner, RunnableLambda) and not hasattr(
            self._inner, "func"
        )

    def invoke(self, input: str, config: RunnableConfig | None = None, **_: Any) -> list[Document]:
        self._check_sync()
        return as_documents(self._inner.invoke(input, config), self._source)

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **_: Any
    ) -> list[Document]:
        return await aas_documents(await self._inner.ainvoke(input, config), self._source)

    def batch(  # type: ignore[override]  # exceptions are raised, not returned
        self, inputs: list[str], config: RunnableConfig | None = None, **_: Any
    ) -> list[list[Document]]:
        self._check_sync()
        return [as_documents(f, self._source) for f in self._inner.batch(inputs, config)]

    async def abatch(  # type: ignore[override]
        self, inputs: list[str], config: RunnableConfig | None = None, **_: Any
    ) -> list[list[Document]]:
        found = await self._inner.abatch(inputs, config)
        return [await aas_documents(documents, self._source) for documents in found]

    def _check_sync(self) -> None:
        if self._needs_async:
            raise needs_async(self._source)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; of a generator all that it yields, which RunnableLambda would add up."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def listed(*args: Any, **kwargs: Any) -> list[Any]:
            return list(function(*args, **kwargs))

        return listed
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def alisted(*args: Any, **kwargs: Any) -> list[Any]:
            return [document async for document in function(*args, **kwargs)]

        return alisted
    return function
