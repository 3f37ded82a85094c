"""Call any retriever or function as one that returns Documents, sync and async, with filters."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import patch_config, run_in_executor, set_config_context
from langchain_core.runnables.utils import accepts_config, is_async_callable, is_async_generator
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore, VectorStoreRetriever
from langgraph.runtime import get_runtime
from pydantic import ConfigDict, Field

from selfcorrect_rag.errors import BadArgument, Fault, RetrievalFailed, wrap_errors
from selfcorrect_rag.intake import aas_documents, as_documents
from selfcorrect_rag.search.filters import BadFilter, Filter, Test, compile_filter
from selfcorrect_rag.search.index import Index

Retriever = Runnable[str, Any] | VectorStore | Callable[[str], Any]
"""A LangChain retriever or vector store, or a function from a query to documents. A function may be
async, for async runs only; it may return a list, a tuple or a generator, of Documents or of JSON
objects; it may take the run's ``config`` or its ``filter`` as a second argument of that name."""
_NO_RETRIEVERS = (BaseLanguageModel, BaseTool, BasePromptTemplate, BaseOutputParser)
"""Runnables that are passed by mistake where arguments are swapped."""


class IndexRetriever(BaseRetriever):
    """The ``k`` best passages of an index, within the call's ``filter=`` or the run's."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Index
    k: int = Field(default=5, ge=1)

    def invoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        return super().invoke(input, config, **{"filter": run_filter(config), **kwargs})

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        return await super().ainvoke(input, config, **{"filter": run_filter(config), **kwargs})

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any,
        k: int | None = None,
        filter: Filter | None = None,
    ) -> list[Document]:
        return self.index.search(query, k or self.k, filter=filter)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, **options: Any
    ) -> list[Document]:
        search = self._get_relevant_documents
        return await run_in_executor(None, search, query, run_manager=run_manager, **options)


def run_filter(config: RunnableConfig | None = None) -> Filter | None:
    """Return the filter of a run: ``filter`` in its config's ``configurable`` or in its context."""
    given: Any = (ensure_config(config).get("configurable") or {}).get("filter")
    if given is None:
        try:
            context: Any = get_runtime().context
        except Exception:  # not within a graph
            return None
        is_mapping = isinstance(context, Mapping)
        given = context.get("filter") if is_mapping else getattr(context, "filter", None)
    return cast(Filter | None, given)


class AnyRetriever(Runnable[str, list[Document]]):
    """A retriever, vector store or function whose results are Documents, within the run's filter.

    A document that does not satisfy the filter is dropped, whoever found it.

    Args:
        source: Its name in error messages.
        fault: The error to raise if it raises.
        read: Converts its results to documents, if they are something else.
        filters: False where the filter does not hold, as for pages of the web.
    """

    def __init__(
        self,
        retriever: Any,
        source: str = "the retriever",
        fault: type[Fault] = RetrievalFailed,
        read: Callable[[Any], Any] = lambda found: found,
        *,
        filters: bool = True,
    ) -> None:
        self._is_store = isinstance(retriever, VectorStore)
        self._source, self._fault, self._read, self._filters = source, fault, read, filters
        if isinstance(retriever, VectorStore):
            retriever = retriever.as_retriever()
        is_runnable = isinstance(retriever, Runnable) and not isinstance(retriever, _NO_RETRIEVERS)
        if not is_runnable and not takes_one(retriever):
            hint = ": give its .as_retriever()" if hasattr(retriever, "as_retriever") else ""
            raise BadArgument(
                "retriever must be a LangChain retriever or vector store, or a function from a "
                f"query to documents, got {type(retriever).__name__}{hint}"
            )
        if not is_runnable:
            name = getattr(retriever, "__name__", type(retriever).__name__)
            retriever = _FunctionRetriever(
                name="retriever" if name == "<lambda>" else name,
                function=retriever,
                read=read,
                source=source,
                fault=fault,
            )
            self._read = list
        self._inner: Runnable[str, Any] = retriever

    def invoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        with wrap_errors(self._fault, self._source):
            options, is_let = self._options(config, k)
            found = self._inner.invoke(input, config, **options)
            return self._within(as_documents(self._read(found), self._source), is_let)

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        with wrap_errors(self._fault, self._source):
            options, is_let = self._options(config, k)
            found = await self._inner.ainvoke(input, config, **options)
            return self._within(await aas_documents(self._read(found), self._source), is_let)

    def _options(
        self, config: RunnableConfig | None, k: int | None
    ) -> tuple[dict[str, Any], Test | None]:
        """Return the arguments for a call, and the test that its results must satisfy."""
        inner, wanted, options = self._inner, run_filter(config), dict[str, Any]()
        if isinstance(inner, _FunctionRetriever):
            options["run"] = ensure_config(config)
        elif isinstance(inner, IndexRetriever) and k is not None:
            options["k"] = min(k, inner.k)
        elif self._is_store and k is not None:
            options["k"] = k
        if wanted is None:
            return options, None
        try:
            is_let = compile_filter(wanted)
        except BadFilter:
            if not isinstance(inner, VectorStoreRetriever):
                raise
            return {**options, "filter": wanted}, None  # in the store's own language
        if isinstance(inner, VectorStoreRetriever):
            own = inner.search_kwargs.get("filter")
            options["filter"] = {"$and": [own, wanted]} if isinstance(own, Mapping) else wanted
            if isinstance(inner.vectorstore, InMemoryVectorStore):
                options["filter"] = lambda d: is_let(d.metadata) and (not own or own(d))
        return options, is_let if self._filters else None

    @staticmethod
    def _within(found: list[Document], is_let: Test | None) -> list[Document]:
        return [d for d in found if is_let is None or is_let(d.metadata)]


class _FunctionRetriever(BaseRetriever):
    """A function from a query to documents; its calls are retriever runs in traces."""

    function: Any
    read: Any
    source: str
    fault: type[Fault]
    """Raised inside its run already, so that traces show no secret of its message."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, run: Any = None
    ) -> list[Document]:
        within = patch_config(run, callbacks=run_manager.get_child())
        with wrap_errors(self.fault, self.source), set_config_context(within) as context:
            return context.run(lambda: as_documents(self.read(self._call(query)), self.source))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, run: Any = None
    ) -> list[Document]:
        async def documents() -> list[Document]:
            if is_async_callable(self.function) or is_async_generator(self.function):
                found = self._call(query)
            else:  # a StopIteration in a bare thread would never end the wait
                found = await run_in_executor(None, self._call, query)
            found = await found if inspect.isawaitable(found) else found
            return await aas_documents(self.read(found), self.source)

        child = run_manager.get_sync().get_child()
        within = patch_config(run, callbacks=child)
        with wrap_errors(self.fault, self.source), set_config_context(within) as context:
            return await asyncio.create_task(documents(), context=context)

    def _call(self, query: str) -> Any:
        given: dict[str, Any] = {"config": ensure_config()} if accepts_config(self.function) else {}
        with suppress(ValueError):  # a builtin without a signature
            if "filter" in inspect.signature(self.function).parameters:
                given["filter"] = run_filter()
        return self.function(query, **given)


def takes_one(function: object) -> bool:
    """Return whether it can be called with one argument, and perhaps a run's ``config``."""
    if not callable(function):
        return False
    with suppress(ValueError):  # a builtin without a signature
        try:
            given = {"config": None} if accepts_config(function) else {}
            inspect.signature(function).bind(None, **given)
        except TypeError:
            return False
    return True
