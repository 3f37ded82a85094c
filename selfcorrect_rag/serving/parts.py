"""Opens the models, indexes and searches that a configuration names, each at its first use."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self, cast

from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import VectorStore
from langgraph.graph.state import CompiledStateGraph
from pydantic import SecretStr, TypeAdapter

from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.errors import BadDemonstrations, SelfCorrectError, find_named
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.models import (
    RetrievalEvaluator,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.from_name import as_evaluator, find_language_model
from selfcorrect_rag.models.rule_chat_model import RuleChatModel
from selfcorrect_rag.reader import Reader, ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search import (
    NoWebSearch,
    RetrieverWebSearch,
    TavilyWebSearch,
    WebSearch,
    open_index,
)
from selfcorrect_rag.search.demo import demo_index, demo_web
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.serving.config import API_KEY, DEFAULT_INDEX, BadOption, ServingConfig
from selfcorrect_rag.settings import GRAPHS, SelfRAGSettings, Settings
from selfcorrect_rag.state import Demonstration

Graph = CompiledStateGraph[Any, Any, Any, Any]
MAX_PASSAGES = 100
"""Passages that the index is asked for at most; the setting ``passages`` takes the best of them."""
_opening = threading.RLock()
"""Held while a served graph is built, so that calls that begin together open each model once."""


class Parts:
    """The parts of graphs, each opened once, at its first use; a context manager."""

    def __init__(self, config: ServingConfig) -> None:
        self.config, self._opened = config, ExitStack()
        self._graphs: dict[str, Graph] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @cached_property
    def llm(self) -> Runnable[Any, Any]:
        """The model that answers: the reader, a model with reflection tokens, or a chat model."""
        config, options = self.config, self.config.engine_options
        if config.model is None and config.runs_on in ("vllm", "transformers"):
            raise BadOption(f"engine {config.runs_on} needs a model: a folder or hub name")
        model = config.model or ""
        match config.runs_on:
            case "reader":
                above = {} if config.answer_above is None else {"answer_above": config.answer_above}
                return ReaderLLM(self.reader, **above)
            case "chat":
                return find_language_model(model, **options)
            case "transformers":
                return TransformersReflectionLLM.from_pretrained(model, **options)
            case "vllm":
                # vLLM logs to standard output, where results belong; read when it is imported.
                os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
                os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
                llm = VLLMReflectionLLM(model=model, engine=options)
                return self._opened.enter_context(llm)
            case "server":
                key = SecretStr(os.environ[API_KEY]) if os.environ.get(API_KEY) else None
                given = {"base_url": config.base_url, "model": model, "api_key": key, **options}
                return self._opened.enter_context(VLLMServerReflectionLLM(**given))

    @cached_property
    def reader(self) -> Reader:
        """The embedded reader, or the one in the folder that ``model`` names."""
        named = self.config.model if self.config.runs_on == "reader" else None
        return Reader.load(Path(named)) if named else Reader.load()

    @cached_property
    def chat_model(self) -> Runnable[Any, Any] | None:
        """The chat model, if one is named."""
        if self.config.chat_model:
            return find_language_model(self.config.chat_model)
        return self.llm if self.config.runs_on == "chat" else None

    @property
    def agent_model(self) -> Any:
        """The chat model of the agent; without one, a rule that calls the tool and says so."""
        return self.chat_model or RuleChatModel()

    @cached_property
    def retriever(self) -> Any:
        """The retriever over the index."""
        if self.config.reads_demo:
            return demo_index().as_retriever(MAX_PASSAGES)
        if self.config.retriever:
            found = _find("retriever", self.config.retriever, VectorStore, BaseRetriever)
            is_store = isinstance(found, VectorStore)
            return found.as_retriever(search_kwargs={"k": MAX_PASSAGES}) if is_store else found
        embeddings = find_embeddings(self.config.embeddings)
        index = open_index(self.config.index or DEFAULT_INDEX, embeddings)
        return self._opened.enter_context(index).as_retriever(MAX_PASSAGES)

    @cached_property
    def evaluator(self) -> RetrievalEvaluator:
        """CRAG's evaluator: the one that is named, else the reader."""
        if self.config.evaluator:
            return as_evaluator(self.config.evaluator)
        return ReaderEvaluator(self.reader if self.config.runs_on == "reader" else Reader.load())

    @cached_property
    def web_search(self) -> WebSearch:
        """The web search."""
        web = self.config.web
        if web == "none" or (web is None and not self.config.reads_demo):
            return NoWebSearch("--web tavily, or --web DIR")
        if web is None:
            return demo_web()
        if web == "tavily":
            return TavilyWebSearch()
        index = self._opened.enter_context(open_index(Path(web)))
        return RetrieverWebSearch(index.as_retriever(MAX_PASSAGES), f"{web} in place of the web")

    @cached_property
    def demonstrations(self) -> list[Demonstration]:
        """InstructRAG's demonstrations: JSONL rows of question, rationale and answers."""
        path = self.config.demonstrations
        if path is None:
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.strip()]
            return TypeAdapter(list[Demonstration]).validate_python(rows)
        except (OSError, ValueError) as error:
            raise BadDemonstrations(f"demonstrations {path}: {error}") from error

    @property
    def source(self) -> str:
        """The name of the index, for people."""
        if self.config.reads_demo:
            return "the demo corpus"
        return self.config.retriever or str(self.config.index or DEFAULT_INDEX)

    @property
    def answers(self) -> str:
        """The name of the model that answers, for people."""
        config = self.config
        if config.runs_on == "reader":
            return f"the reader in {config.model}" if config.model else "the reader"
        return f"{config.model or 'the model'} on {config.runs_on}"

    def settings(self, name: str, **given: Any) -> Any:
        """Return the settings of the graph called ``name``: the configuration's, then ``given``;
        BadSettings if a value is invalid."""
        chosen = {**self.config.settings_of(name), **given}
        # The reader writes nothing of its own: without passages it can only refuse.
        quotes_own = self.config.runs_on == "reader" and not self.config.reads_demo
        if quotes_own and issubclass(GRAPHS[name], SelfRAGSettings):
            chosen.setdefault("mode", "always")
        return GRAPHS[name](**chosen)

    def graph(self, name: str, settings: Settings | None = None, **options: Any) -> Graph:
        """Build the graph called ``name``, one of :data:`~selfcorrect_rag.settings.GRAPHS`.

        Args:
            name: the graph's name.
            settings: as :meth:`settings` returns them, which is the default.
            options: other arguments of its factory, such as ``checkpointer``.
        """
        options |= {"settings": settings or self.settings(name), "follow_up": self.chat_model}
        writer = self.chat_model or self.llm
        match name:
            case "self_rag":
                graph: Any = create_self_rag(self.llm, self.retriever, **options)
            case "instruct_rag":
                graph = create_instruct_rag(writer, self.retriever, self.demonstrations, **options)
            case _:
                create: Any = create_crag if name == "crag" else create_self_crag
                graph = create(
                    writer if name == "crag" else self.llm,
                    self.retriever,
                    self.evaluator,
                    self.web_search,
                    rewriter=self.chat_model,
                    **options,
                )
        return cast(Graph, graph)

    def shared_graph(self, name: str) -> Graph:
        """Return the graph called ``name``, built once, whichever threads ask."""
        with _opening:
            if name not in self._graphs:
                self._graphs[name] = self.graph(name)
            return self._graphs[name]


class SketchParts(Parts):
    """Parts that open nothing: graphs of them have all nodes and schemas, but cannot run."""

    def __init__(self, config: ServingConfig) -> None:
        super().__init__(config)
        self.llm = TransformersReflectionLLM.model_construct()
        named = config.chat_model or config.runs_on == "chat"
        self.chat_model = self.llm if named else None
        self.retriever, self.demonstrations = (lambda query: []), []
        self.evaluator, self.web_search = _UnopenedEvaluator(), NoWebSearch("a sketch has none")


class _UnopenedEvaluator(RetrievalEvaluator):
    def score(self, question: str, passages: Any) -> list[float]:
        raise NotImplementedError("a sketch of a graph cannot run")


def served(build: Callable[[Parts], Graph]) -> Callable[[Any], Coroutine[Any, Any, Graph]]:
    """Make a graph factory for a LangGraph server, as langgraph.json names it.

    The server calls a factory for every request. Models are opened once, by the first run; schemas,
    drawings and edits of threads get a graph of unopened parts.

    Args:
        build: builds the graph from the parts that the environment names
            (:meth:`ServingConfig.from_environment`).
    """

    @cache
    def built(is_sketch: bool) -> Graph:
        return build(_environment_parts(is_sketch))

    def locked(is_sketch: bool) -> Graph:
        with _opening:
            return built(is_sketch)

    async def factory(runtime: Any) -> Graph:
        return await asyncio.to_thread(locked, runtime.execution_runtime is None)

    # The server reads the annotation to decide what it passes.
    from langgraph_sdk.runtime import ServerRuntime

    factory.__annotations__["runtime"] = ServerRuntime[Any]
    return factory


@cache
def _environment_parts(is_sketch: bool) -> Parts:
    return (SketchParts if is_sketch else Parts)(ServingConfig.from_environment())


def find_embeddings(name: str | None) -> Any:
    """Return the embeddings at MODULE:ATTRIBUTE; "bm25" and None as they are."""
    return name if name in (None, "bm25") else _find("embeddings", name, Embeddings)


def _find(option: str, name: str, *kinds: type) -> Any:
    try:
        found = find_named(name, *kinds)
    except SelfCorrectError:
        raise
    except Exception as error:  # any code runs where a module is imported
        raise BadOption(
            f"{option} {name}: cannot be opened ({error}); a function is called without arguments"
        ) from error
    if not isinstance(found, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise BadOption(f"{option} {name}: expected a {wanted}, got {type(found).__name__}")
    return found
