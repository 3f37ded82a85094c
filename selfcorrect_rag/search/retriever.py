"""Call any retriever or function as one that returns Documents, within the run's filter."""

import asyncio
import inspect
import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseLanguageModel
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import patch_config, run_in_executor, set_config_context
from langchain_core.runnables.utils import accepts_config
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore, VectorStoreRetriever
from langgraph.runtime import get_runtime
from pydantic import Field

from selfcorrect_rag.errors import (
    BadArgument,
    Fault,
    RetrievalFailed,
    SelfCorrectError,
    wrap_errors,
)
from selfcorrect_rag.intake import aas_documents, as_documents

Retriever = Runnable[str, Any] | VectorStore | Callable[[str], Any]
"""A LangChain retriever or vector store, or a function from a query to documents. A function may be
async, for async runs only; it may return a list, a tuple or a generator, of Documents or of JSON
objects; it may take the run's ``config`` or its ``filter`` as a second argument of that name."""
Filter = Mapping[str, Any]
"""Conditions on metadata in the language of Chroma's ``where``: ``{"owner": "ada"}``,
``{"year": {"$gte": 2024}}``, ``{"$and": [...]}``, ``{"$or": [...]}``."""
Test = Callable[[Mapping[str, Any]], bool]

_NO_RETRIEVERS = (BaseLanguageModel, BaseTool, BasePromptTemplate, BaseOutputParser)
"""Runnables that are passed by mistake where arguments are swapped."""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda value, wanted: value in wanted,
    "$nin": lambda value, wanted: value not in wanted,
    "$contains": lambda value, wanted: isinstance(value, list) and wanted in value,
    "$not_contains": lambda value, wanted: isinstance(value, list) and wanted not in value,
}


class BadFilter(SelfCorrectError, ValueError):
    """A filter is not in Chroma's language, or cannot be applied."""


def compile_filter(filter: object) -> Test:
    """Return a function that tells whether metadata satisfy a filter, which a missing field does
    not; BadFilter if it is not one."""
    if not isinstance(filter, Mapping) or not filter:
        raise BadFilter(f"a filter is an object of conditions on metadata, got {filter!r:.200}")
    tests = [_compile_condition(key, wanted) for key, wanted in filter.items()]
    return lambda metadata: all(test(metadata) for test in tests)


def _compile_condition(key: object, wanted: Any) -> Test:
    if key in ("$and", "$or") and isinstance(wanted, list) and wanted:
        parts, join = [compile_filter(part) for part in wanted], all if key == "$and" else any
        return lambda metadata: join(part(metadata) for part in parts)
    condition = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    name, value = next(iter(condition.items()), ("", None))
    kinds = list if name in ("$in", "$nin") else str | int | float
    is_known = len(condition) == 1 and name in _OPERATORS and isinstance(value, kinds)
    if not is_known or not isinstance(key, str) or key.startswith("$"):
        raise BadFilter(
            "a filter has conditions on metadata fields, or lists of filters in $and and $or; a "
            "condition is a text, a number, a boolean, or an object with one of "
            f"{', '.join(_OPERATORS)} ($in and $nin with a list); got {key!r:.200}: {wanted!r:.200}"
        )

    def test(metadata: Mapping[str, Any]) -> bool:
        try:
            return key in metadata and bool(_OPERATORS[name](metadata[key], value))
        except TypeError:  # text against a number
            return False

    return test


def run_filter(config: RunnableConfig | None = None) -> Any:
    """Return the filter of a run: ``filter`` in its config's ``configurable`` or in its context."""
    given = ((config or ensure_config()).get("configurable") or {}).get("filter")
    if given is not None:
        return given
    try:
        context: Any = get_runtime().context
    except Exception:  # not within a graph
        return None
    is_mapping = isinstance(context, Mapping)
    return context.get("filter") if is_mapping else getattr(context, "filter", None)


class AnyRetriever(BaseRetriever):
    """A retriever, vector store or function whose results are Documents, within the run's filter.

    A document that does not satisfy the filter is dropped, whoever found it. A function's calls are
    retriever runs in traces. It may take the run's ``config``, its ``filter`` and, if it has a
    bound ``most``, the number of documents ``k`` as arguments of these names.
    """

    inner: Any
    source: str = "the retriever"
    """Its name in error messages."""
    fault: type[Fault] = RetrievalFailed
    """Raised if it raises, inside its run already, so that traces show no secret of its message."""
    read: Any = staticmethod(lambda found: found)
    """Converts its results to documents, if they are something else."""
    takes_k: bool
    most: int | None = Field(default=None, ge=1)
    filters: bool = True
    """False where the filter does not hold, as for pages of the web."""

    def __init__(self, retriever: Any, **known: Any) -> None:
        known["takes_k"] = isinstance(retriever, VectorStore | AnyRetriever) or "most" in known
        if isinstance(retriever, VectorStore):
            retriever = retriever.as_retriever()
        if isinstance(retriever, _NO_RETRIEVERS) or not (
            isinstance(retriever, Runnable) or takes_one(retriever)
        ):
            raise BadArgument(
                "retriever must be a LangChain retriever or vector store, or a function from a "
                f"query to documents, got {type(retriever).__name__}"
            )
        name = getattr(retriever, "__name__", type(retriever).__name__)
        name = "retriever" if name == "<lambda>" else name
        super().__init__(**{"name": name, "inner": retriever, **known})

    def invoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        run = ensure_config(config)
        with wrap_errors(self.fault, self.source):
            options, is_let = self._options(run, k)
            if isinstance(self.inner, Runnable):
                found = self.read(self.inner.invoke(input, config, **options))
            else:
                found = super().invoke(input, config, run=run, **options)
            return [d for d in as_documents(found, self.source) if is_let(d.metadata)]

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, *, k: int | None = None, **_: Any
    ) -> list[Document]:
        run = ensure_config(config)
        with wrap_errors(self.fault, self.source):
            options, is_let = self._options(run, k)
            if isinstance(self.inner, Runnable):
                found = self.read(await self.inner.ainvoke(input, config, **options))
            else:
                found = super().ainvoke(input, config, run=run, **options)
            return [d for d in await aas_documents(found, self.source) if is_let(d.metadata)]

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, run: Any = None, **options: Any
    ) -> list[Document]:
        within = patch_config(run, callbacks=run_manager.get_child())
        with wrap_errors(self.fault, self.source), set_config_context(within) as context:
            return context.run(
                lambda: as_documents(self.read(self._call(query, options)), self.source)
            )

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, run: Any = None, **options: Any
    ) -> list[Document]:
        async def documents() -> list[Document]:
            found = await run_in_executor(None, self._call, query, options)
            found = await found if inspect.isawaitable(found) else found
            return await aas_documents(self.read(found), self.source)

        within = patch_config(run, callbacks=run_manager.get_sync().get_child())
        with wrap_errors(self.fault, self.source), set_config_context(within) as context:
            return await asyncio.create_task(documents(), context=context)

    def _call(self, query: str, options: dict[str, Any]) -> Any:
        given = dict(options)
        if "config" in self._takes:
            given.setdefault("config", ensure_config())
        if "filter" in self._takes:
            given.setdefault("filter", run_filter())
        return self.inner(query, **{name: given[name] for name in given if name in self._takes})

    @cached_property
    def _takes(self) -> Mapping[str, object]:
        return inspect.signature(self.inner).parameters

    def _options(self, config: RunnableConfig, k: int | None) -> tuple[dict[str, Any], Test]:
        """Return the arguments for a call, and the test that its results must satisfy."""
        inner, wanted = self.inner, run_filter(config)
        limits = [limit for limit in (self.most, k) if self.takes_k and limit is not None]
        options: dict[str, Any] = {"k": min(limits)} if limits else {}
        is_let: Test = lambda metadata: True  # noqa: E731
        if wanted is None:
            return options, is_let
        is_store = isinstance(inner, VectorStoreRetriever)
        try:
            is_let = compile_filter(wanted)
        except BadFilter:  # perhaps it is in the store's own language
            if not is_store:
                raise
        if is_store:
            own = inner.search_kwargs.get("filter")
            options["filter"] = {"$and": [own, wanted]} if isinstance(own, Mapping) else wanted
            if isinstance(inner.vectorstore, InMemoryVectorStore) and not callable(wanted):
                options["filter"] = lambda d: is_let(d.metadata) and (not own or own(d))
        return options, is_let if self.filters else lambda metadata: True


def takes_one(function: Any) -> bool:
    """Return whether it can be called with one argument, and perhaps a run's ``config``."""
    try:
        given = {"config": None} if accepts_config(function) else {}
        inspect.signature(function).bind(None, **given)
    except (TypeError, ValueError):
        return False
    return True
