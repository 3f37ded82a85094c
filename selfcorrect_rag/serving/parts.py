"""Opens the models, indexes and searches that a configuration names, each at its first use."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import cache, cached_property
from typing import Annotated, Any, Required, cast

from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.vectorstores import VectorStore
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes the schemas, needs it on 3.11

from selfcorrect_rag.agents.tool import run_inside
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.errors import describe_error, find_named
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.journal import read_rows
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
from selfcorrect_rag.settings import GRAPHS, PROTOCOL, SelfRAGSettings, Settings
from selfcorrect_rag.state import Demonstration

Graph = CompiledStateGraph[Any, Any, Any, Any]
MAX_PASSAGES = 100
"""Passages that the index is asked for at most; the setting ``passages`` takes the best of them."""
_opening = threading.Lock()
"""Held while a shared graph is built, so that calls that begin together open each model once."""


class Parts(ExitStack):
    """The parts of graphs, each opened once, at its first use; a context manager."""

    def __init__(self, config: ServingConfig) -> None:
        super().__init__()
        self.config = config

    @cached_property
    def llm(self) -> Runnable[Any, Any]:
        """The model that answers: the reader, a model with reflection tokens, or a chat model."""
        config, model, options = self.config, self.config.model or "", self.config.engine_options
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
                return self.enter_context(VLLMReflectionLLM(model=model, engine=options))
            case "server":
                given = {"base_url": config.base_url, "model": model, **options}
                if key := os.environ.get(API_KEY):
                    given.setdefault("api_key", key)
                return self.enter_context(VLLMServerReflectionLLM(**given))

    @cached_property
    def reader(self) -> Reader:
        """The embedded reader, or the one in the folder that the configuration names."""
        named = self.config.reader or (self.config.runs_on == "reader" and self.config.model)
        return Reader.load(named) if named else Reader.load()

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
        """The retriever over the index, or the vector store that replaces it."""
        if self.config.reads_demo:
            return demo_index().as_retriever(MAX_PASSAGES)
        name = self.config.retriever
        if name is None:
            return open_index(self.config.index or DEFAULT_INDEX).as_retriever(MAX_PASSAGES)
        try:
            return find_named(name, VectorStore, BaseRetriever)
        except Exception as error:  # any code runs where a module is imported
            raise BadOption(
                f"retriever {name}: cannot be opened ({describe_error(error)}); a function is "
                "called without arguments"
            ) from error

    @cached_property
    def evaluator(self) -> RetrievalEvaluator:
        """CRAG's evaluator: the one that is named, else the reader."""
        if self.config.evaluator:
            return as_evaluator(self.config.evaluator)
        return ReaderEvaluator(self.reader)

    @cached_property
    def web_search(self) -> WebSearch:
        """The web search."""
        web = self.config.web
        if web == "tavily":
            return TavilyWebSearch()
        if not web and self.config.reads_demo:
            return demo_web()
        if web in ("", "none"):
            return NoWebSearch("--web tavily, or --web DIR")
        pages = open_index(web).as_retriever(MAX_PASSAGES)
        return RetrieverWebSearch(pages, f"{web} in place of the web")

    @cached_property
    def demonstrations(self) -> list[Demonstration]:
        """InstructRAG's demonstrations, which a run checks: question, rationale and answers."""
        path = self.config.demonstrations
        return [cast(Demonstration, row) for _, row in read_rows(path)] if path else []

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
            folder = config.reader or config.model
            return f"the reader in {folder}" if folder else "the reader"
        return f"{config.model or 'the model'} on {config.runs_on}"

    def settings(self, name: str, **given: Any) -> Any:
        """Return the settings of the graph called ``name``: the configuration's, then ``given``;
        BadSettings if a value is invalid."""
        kind, chosen = GRAPHS[name], self.config.settings
        chosen = {n: v for n, v in chosen.items() if n in kind.model_fields} | given
        # The reader writes nothing of its own: without passages it can only refuse.
        quotes_own = self.config.runs_on == "reader" and not self.config.reads_demo
        if quotes_own and issubclass(kind, SelfRAGSettings):
            chosen.setdefault("mode", "always")
        return kind(**chosen)

    def graph(self, name: str, settings: Settings | None = None, **options: Any) -> Graph:
        """Build the graph called ``name``, one of :data:`~selfcorrect_rag.settings.GRAPHS`, with
        ``settings``, by default those of :meth:`settings`, and other arguments of its factory."""
        options |= {"settings": settings or self.settings(name), "follow_up": self.chat_model}
        writer = self.chat_model or self.llm
        if name == "self_rag":
            return create_self_rag(self.llm, self.retriever, **options)
        if name == "instruct_rag":
            return create_instruct_rag(writer, self.retriever, self.demonstrations, **options)
        corrected = (self.retriever, self.evaluator, self.web_search)
        options["rewriter"] = self.chat_model
        if name == "crag":
            return create_crag(writer, *corrected, **options)
        return create_self_crag(self.llm, *corrected, **options)


def build_once(build: Callable[[Any], Graph]) -> Callable[[Any], Graph]:
    """Make ``build`` build once for each argument, whichever threads ask."""
    built = cache(build)

    def locked(argument: Any) -> Graph:
        with _opening:
            return built(argument)

    return locked


class SketchParts(Parts):
    """Parts that open nothing: graphs of them have all nodes and schemas, but cannot run."""

    def __init__(self, config: ServingConfig) -> None:
        super().__init__(config)
        self.llm = TransformersReflectionLLM.model_construct()
        named = config.chat_model or config.runs_on == "chat"
        self.chat_model = self.llm if named else None
        self.retriever, self.demonstrations = (lambda query: []), []
        self.evaluator = ReaderEvaluator.__new__(ReaderEvaluator)
        self.web_search = NoWebSearch("a sketch has none")


def served(build: Callable[[Parts], Graph]) -> Callable[..., Coroutine[Any, Any, Graph]]:
    """Make a graph factory for a LangGraph server, as langgraph.json names it.

    The server calls a factory for every request. Models are opened once, by the first run; schemas,
    drawings and edits of threads get a graph of unopened parts. ``build`` gets the parts that the
    environment names (:meth:`ServingConfig.from_environment`). Requests of MCP get a
    :func:`tool_graph`.
    """
    built = build_once(lambda is_sketch: build(_environment_parts(is_sketch)))

    async def factory(runtime: Any, config: Any = None) -> Graph:
        graph = await asyncio.to_thread(built, runtime.execution_runtime is None)
        asked = ((config or {}).get("configurable") or {}).get(PROTOCOL)
        return tool_graph(graph) if asked == "mcp" else graph

    # The server reads the annotation to decide what it passes.
    from langgraph_sdk.runtime import ServerRuntime

    factory.__annotations__["runtime"] = ServerRuntime[Any]
    return factory


class ToolInput(TypedDict, total=False):
    """A question."""

    question: Required[Annotated[str, Field(description="One question that stands alone.")]]


class ToolOutput(TypedDict):
    """Its answer."""

    answer: Annotated[str, Field(description="The answer, its sources by number, and notes.")]


class _ToolState(ToolInput, ToolOutput):
    pass


def tool_graph(graph: Graph) -> Graph:
    """Wrap a chat graph for the server's MCP, which shows its client every key of a graph's input
    and output: here one question and one text. A call has no thread to keep."""
    inner = run_inside(graph)

    async def ask(state: _ToolState, config: RunnableConfig) -> dict[str, str]:
        given = {"messages": [HumanMessage(state.get("question", ""))]}
        result = await inner.ainvoke(given, config)
        return {"answer": result["messages"][-1].text}

    wrapper = StateGraph(
        _ToolState, graph.context_schema, input_schema=ToolInput, output_schema=ToolOutput
    )
    wrapper.add_node("ask", ask)
    wrapper.add_edge(START, "ask")
    wrapper.add_edge("ask", END)
    return wrapper.compile(name=graph.get_name())


@cache
def _environment_parts(is_sketch: bool) -> Parts:
    return (SketchParts if is_sketch else Parts)(ServingConfig.from_environment())
