"""Adapts any retriever or function to one that returns a list of Documents, sync and async."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from langchain_core.runnables.config import set_config_context
from langchain_core.runnables.utils import accepts_config, is_async_callable, is_async_generator
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import VectorStore

from selfcorrect_rag.errors import ASYNC_ONLY, BadArgument, Fault, RetrievalFailed, wrap_errors
from selfcorrect_rag.state.documents import (
    MOST_DOCUMENTS,
    aas_documents,
    as_documents,
    first_of,
    needs_async,
)

Retriever = Runnable[str, Any] | VectorStore | Callable[[str], Any]
"""A LangChain retriever or vector store, or a function from a query to documents. A function may be
async, for async runs only; it may return a list, a tuple or a generator, of Documents or of JSON
objects."""
NO_RETRIEVERS = (BaseLanguageModel, BaseTool, BasePromptTemplate, BaseOutputParser)
"""Runnables that are passed by mistake where arguments are swapped."""


class AnyRetriever(Runnable[str, list[Document]]):
    """Converts a retriever's results to Documents where that is unambiguous, and refuses the rest.

    Raises:
        BadArgument: at creation, if ``retriever`` is not a retriever.
        NoDocument: at a call that returns something else than documents, or a sync call of an async
            function.
        RetrievalFailed: at a call that raises.
    """

    def __init__(
        self,
        retriever: Retriever,
        source: str = "the retriever",
        fault: type[Fault] = RetrievalFailed,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """Wrap ``retriever``.

        Args:
            retriever: the retriever, vector store or function.
            source: its name in error messages.
            fault: the error to raise where it raises.
            read: converts its results to documents, where they are something else.
        """
        self._is_store = isinstance(retriever, VectorStore)
        if isinstance(retriever, VectorStore):
            retriever = retriever.as_retriever()
        is_runnable = isinstance(retriever, Runnable) and not isinstance(retriever, NO_RETRIEVERS)
        if not is_runnable and not takes_one(retriever):
            kinds = "a LangChain retriever or vector store, or a function from a query to documents"
            given = "its .as_retriever()" if hasattr(retriever, "as_retriever") else kinds
            raise BadArgument(f"{type(retriever).__name__} is no retriever: give {given}")
        self._source, self._fault = source, fault
        self._read: Callable[[Any], Any] = read or (lambda found: found)
        self._inner: Runnable[str, Any] = (
            _whole_runnable(retriever)
            if isinstance(retriever, Runnable)
            else FunctionRetriever.of(retriever, source, fault, self._read)
        )
        if isinstance(self._inner, FunctionRetriever):
            self._read = list

    def invoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        """The documents for a query; a vector store returns the best ``k``, others as many as they
        were made for."""
        with self._named(), self._sync():
            found = self._inner.invoke(input, config, **self._most(k))
            return as_documents(self._read(found), self._source)

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        with self._named():
            found: Any = await self._inner.ainvoke(input, config, **self._most(k))
            found = await found if inspect.isawaitable(found) else found
            return await aas_documents(self._read(found), self._source)

    def _most(self, k: int | None) -> dict[str, Any]:
        return {"k": k} if self._is_store and k is not None else {}

    def batch(  # type: ignore[override]  # exceptions are raised, not returned
        self,
        inputs: list[str],
        config: RunnableConfig | None = None,
        *,
        k: int | None = None,
        **_: Any,
    ) -> list[list[Document]]:
        with self._named(), self._sync():
            found = self._inner.batch(inputs, config, **self._most(k))
            return [as_documents(self._read(documents), self._source) for documents in found]

    async def abatch(  # type: ignore[override]
        self,
        inputs: list[str],
        config: RunnableConfig | None = None,
        *,
        k: int | None = None,
        **_: Any,
    ) -> list[list[Document]]:
        with self._named():
            found = await self._inner.abatch(inputs, config, **self._most(k))
            return [await aas_documents(self._read(documents), self._source) for documents in found]

    def _named(self) -> AbstractContextManager[None]:
        return wrap_errors(self._fault, self._source)

    @contextmanager
    def _sync(self) -> Iterator[None]:
        try:
            yield
        except TypeError as error:
            if ASYNC_ONLY in str(error):
                raise needs_async(self._source) from error
            raise


class FunctionRetriever(BaseRetriever):
    """A function from a query to documents, whose calls are retriever runs in traces, and what it
    calls their children."""

    function: Any
    """The function, which may be async, for async runs only."""
    afunction: Any = None
    """Its async form, if it has both."""
    source: str
    """Its name in error messages."""
    fault: type[Fault]
    """The error to raise where it raises: traces keep no words of another's."""
    read: Any = list
    """Converts its results to what :func:`~selfcorrect_rag.state.documents.as_documents` takes."""

    @classmethod
    def of(
        cls,
        function: Callable[[str], Any],
        source: str,
        fault: type[Fault],
        read: Callable[[Any], Any],
    ) -> Self:
        """The function under its own name."""
        name = getattr(function, "__name__", type(function).__name__)
        name = "retriever" if name == "<lambda>" else name
        return cls(name=name, function=function, source=source, fault=fault, read=read)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        def documents() -> list[Document]:
            return as_documents(self.read(self._called(self.function, query)), self.source)

        with self._named(), set_config_context(_within(run_manager)) as context:
            return context.run(documents)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        function = self.afunction or self.function

        async def documents() -> list[Document]:
            is_async = is_async_callable(function) or is_async_generator(function)
            found = (
                self._called(function, query)
                if is_async
                else await asyncio.to_thread(self._called, function, query)
            )
            found = await found if inspect.isawaitable(found) else found
            return await aas_documents(self.read(found), self.source)

        with self._named(), set_config_context(_within(run_manager)) as context:
            return await asyncio.create_task(documents(), context=context)

    def _named(self) -> AbstractContextManager[None]:
        return wrap_errors(self.fault, self.source)

    def _called(self, function: Callable[..., Any], query: str) -> Any:
        given = {"config": ensure_config()} if accepts_config(function) else {}
        return function(query, **given)


def _within(
    run: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
) -> RunnableConfig:
    sync = run.get_sync() if isinstance(run, AsyncCallbackManagerForRetrieverRun) else run
    return {**ensure_config(), "callbacks": sync.get_child()}


def takes_one(function: object) -> bool:
    """Whether it can be called with one argument, by its signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _whole_runnable(retriever: Runnable[str, Any]) -> Runnable[str, Any]:
    if type(retriever) is RunnableLambda:
        own = vars(retriever)
        functions: list[Any] = [_whole(own[name]) for name in ("func", "afunc") if name in own]
        whole: RunnableLambda[str, Any] = RunnableLambda(*functions)
        whole.name = own.get("name")
        return whole
    return retriever


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; a generator is collected into a list, as RunnableLambda would add up its
    items."""
    called = (function, type(function).__call__)  # a function, or an object that is called
    if any(map(inspect.isgeneratorfunction, called)):

        @functools.wraps(function)
        def listed(*args: Any, **kwargs: Any) -> list[Any]:
            return list(islice(function(*args, **kwargs), MOST_DOCUMENTS))

        return listed
    if any(map(inspect.isasyncgenfunction, called)):

        @functools.wraps(function)
        async def alisted(*args: Any, **kwargs: Any) -> list[Any]:
            return await first_of(function(*args, **kwargs))

        return alisted
    return function
