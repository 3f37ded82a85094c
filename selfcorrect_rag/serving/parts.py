"""Opens the models, indexes and searches of a configuration, and builds graphs of them."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import VectorStore
from langgraph.graph.state import CompiledStateGraph
from pydantic import SecretStr

from selfcorrect_rag import reader as readers
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.demo import (
    demo_index,
    demo_web,
    generator_path,
    load_chat_model,
    rationale_model_path,
)
from selfcorrect_rag.errors import BadDemonstrations, require
from selfcorrect_rag.follow_up import standalone_question
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.models import (
    RetrievalEvaluator,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.by_name import as_evaluator, find_language_model
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUpRule
from selfcorrect_rag.search import (
    NoWebSearch,
    RetrieverWebSearch,
    TavilyWebSearch,
    WebSearch,
    open_retriever,
)
from selfcorrect_rag.search.open_index import NoIndex, find_embeddings, find_store, open_index
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.serving.config import API_KEY, DEFAULT_INDEX, BadOption, ServingConfig
from selfcorrect_rag.settings import (
    GRAPHS,
    CRAGSettings,
    InstructRAGSettings,
    SelfRAGSettings,
    Settings,
)
from selfcorrect_rag.state.instruct_rag import Demonstration

if TYPE_CHECKING:
    from selfcorrect_rag.reader import Reader

Graph = CompiledStateGraph[Any, Any, Any, Any]
T = TypeVar("T")


class Parts:
    """The parts of graphs, each opened at its first use and then kept; a context manager.

    Args:
        config: what to open.
        passages: most passages that a run may ask of the index, at most 100.
        pages: most pages that a run may ask of an index in place of the web, at most 50.
        each: applied to every model, index and search that is opened, and kept in its place.
        sketch: open nothing; the graphs have the same nodes and schemas, but cannot run.
    """

    def __init__(
        self,
        config: ServingConfig,
        *,
        passages: int = 100,
        pages: int = 50,
        each: Callable[[Any], Any] = lambda part: part,
        sketch: bool = False,
    ) -> None:
        self.config, self.passages, self.pages = config, passages, pages
        self.sketch, self._each, self._opened = sketch, each, ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def over(self, index: Path) -> "Parts":
        """Parts with these models, and another index; models that are not open are opened."""
        config = self.config.model_copy(update={"index": index})
        others = Parts(config, passages=self.passages, pages=self.pages, each=self._each)
        for name in ("llm", "rationale_llm", "chat_model", "evaluator"):
            others.__dict__[name] = getattr(self, name)  # as cached_property keeps them
        return others

    @cached_property
    def reader(self) -> "Reader":
        """The shipped reader, which answers and grades unless other models are named."""
        return readers.Reader.load()

    @cached_property
    def llm(self) -> Runnable[Any, Any]:
        """The reader, a generator, or a chat model that is asked by prompts."""
        return self._generator(generator_path())

    @cached_property
    def rationale_llm(self) -> Runnable[Any, Any]:
        """The model that writes InstructRAG's rationales: a chat model that is named, else the
        model of the other graphs, for which the nano generator has one that was trained for it."""
        if self.chat_model or not self.config.is_nano:
            return self.chat_model or self.llm
        return self._generator(rationale_model_path())

    @cached_property
    def chat_model(self) -> Runnable[Any, Any] | None:
        """The chat model, where one is named."""
        name = self.config.chat_model
        if name is None:
            return None
        return self._or_sketch(lambda: find_language_model(name), _unopened_llm)

    @property
    def follow_up_rule(self) -> FollowUpRule | None:
        """What rewrites follow-up questions to the reader where no chat model is named."""
        return standalone_question if self.config.runs_on == "reader" else None

    @cached_property
    def agent_model(self) -> Runnable[Any, Any]:
        """The model of the chat agent: by default a rule, which says so."""
        return self.chat_model or load_chat_model(self.follow_up_rule)

    @cached_property
    def retriever(self) -> Any:
        """The index; a run takes the best of its passages.

        Raises:
            NoIndex: there is none, or there is nothing in it.
            EmbedderMismatch, BadName: see ``open_index``, ``find_embeddings``, ``find_store``.
        """
        return self._or_sketch(self._open_index, lambda: _nothing)

    @property
    def source(self) -> str:
        """The name of the index, for people."""
        if self.config.reads_demo:
            return "the demo corpus"
        return self.config.store or str(self._index_path)

    @property
    def answers(self) -> str:
        """The name of what answers, for people."""
        config = self.config
        if config.runs_on == "reader":
            return "the reader" if config.model is None else f"the reader in {config.model}"
        if config.model is None:
            own = "the nano generator" if config.is_nano else "the model"
            return f"{own} on {config.runs_on}"
        return f"{Path(config.model).name} on {config.runs_on}"

    @cached_property
    def evaluator(self) -> RetrievalEvaluator:
        """The evaluator that grades documents: the one that is named, else the shipped reader.

        Raises:
            ModelNotFound, NotAnEvaluator, NoLanguageModel, MissingExtra: see ``as_evaluator``.
        """
        return self._or_sketch(self._open_evaluator, _UnopenedEvaluator)

    @cached_property
    def web(self) -> WebSearch:
        """The web search.

        Raises:
            WebSearchFailed: there is no key for Tavily.
            NoIndex, EmbedderMismatch: see ``open_index``.
        """
        return self._or_sketch(self._open_web, NoWebSearch)

    @cached_property
    def demonstrations(self) -> list[Demonstration]:
        """InstructRAG's examples of how to answer."""
        path = self.config.demonstrations_from
        return [] if self.sketch or path is None else read_demonstrations(path)

    def settings(self, name: str, given: Settings | None = None) -> Settings:
        """The settings that the graph called ``name`` runs with: ``given``, and a mode that suits
        the models where none is given."""
        chosen: Any = GRAPHS[name].of(given)
        if isinstance(chosen, InstructRAGSettings):
            others = self.demonstrations or self.chat_model
            if chosen.mode is None and self.config.is_nano and not others:
                # The nano model is fine-tuned, and prompted as in its training.
                return chosen.model_copy(update={"mode": "ft"})
        # The reader writes nothing of its own, and whoever asks an index of their own asks about
        # what stands in it.
        reads_own = self.config.runs_on == "reader" and not self.config.reads_demo
        if isinstance(chosen, SelfRAGSettings) and reads_own:
            mode = chosen.mode if "mode" in chosen.model_fields_set else "always"
            return chosen.model_copy(update={"mode": mode})
        return cast(Settings, chosen)

    def graph(self, name: str, settings: Settings | None = None, **kept: Any) -> Graph:
        """The graph called ``name``, one of ``GRAPHS``; cheap parts are opened before models.

        Args:
            settings: its own class of settings; None is the defaults.
            kept: other arguments of its factory, such as ``checkpointer``.

        Raises:
            BadOption: thresholds that are invalid together with the evaluator's.
        """
        chosen: Any = self.settings(name, settings)
        retriever, chat = self.retriever, self.chat_model
        asked = self.llm if self.config.runs_on == "chat" else self.follow_up_rule
        follow_up = chat or asked
        if isinstance(chosen, InstructRAGSettings):
            return create_instruct_rag(
                self.rationale_llm,
                retriever,
                self.demonstrations,
                follow_up=follow_up,
                settings=chosen,
                **kept,
            )
        if not isinstance(chosen, CRAGSettings):
            return create_self_rag(
                self.llm, retriever, follow_up=follow_up, settings=chosen, **kept
            )
        web, evaluator = self.web, self.evaluator
        self._check_thresholds(chosen)
        create: Any = create_crag if name == "crag" else create_self_crag
        graph: Graph = create(
            (chat if name == "crag" else None) or self.llm,
            retriever,
            evaluator,
            web,
            rewriter=chat,
            follow_up=follow_up,
            settings=chosen,
            **kept,
        )
        return graph

    def _generator(self, default: Path) -> Runnable[Any, Any]:
        return self._or_sketch(lambda: self._open_generator(default), _unopened_llm)

    def _open_generator(self, default: Path) -> Runnable[Any, Any]:
        """The model that the configuration names, else that in the folder ``default``.

        All reflect but a chat model, which a graph wraps where it needs one that does.
        """
        config = self.config
        match config.runs_on:
            case "reader":
                reads = readers.Reader.load(Path(config.model)) if config.model else self.reader
                return readers.ReaderLLM(
                    reads, answer_above=config.answer_above, show_guess=config.show_guess
                )
            case "vllm":
                quiet_vllm()
                return self._opened.enter_context(
                    VLLMReflectionLLM(
                        model=config.model or str(default), engine=config.engine_arguments
                    )
                )
            case "server":
                key = os.environ.get(API_KEY)
                return self._opened.enter_context(
                    VLLMServerReflectionLLM(
                        base_url=config.base_url,
                        model=config.model or "",
                        tokenizer=config.tokenizer or "",
                        api_key=SecretStr(key) if key else None,
                    )
                )
            case "chat":
                return find_language_model(config.model or "")
            case _:
                quiet_transformers()
                return TransformersReflectionLLM.from_pretrained(
                    config.model or default, device=config.device, dtype=config.dtype
                )

    def _open_evaluator(self) -> RetrievalEvaluator:
        name = self.config.evaluator
        if name is None:
            return readers.ReaderEvaluator(self.reader)
        quiet_transformers()
        return as_evaluator(name)

    @property
    def _index_path(self) -> Path:
        return self.config.index or DEFAULT_INDEX

    def _open_index(self) -> Runnable[str, list[Document]]:
        if self.config.reads_demo:
            return demo_index().as_retriever(self.passages)
        if self.config.store:
            store = find_store(self.config.store)
            if isinstance(store, VectorStore):
                return store.as_retriever(search_kwargs={"k": self.passages})
            return store
        path, embeddings = self._index_path, self.config.embeddings
        index = open_index(path, None if embeddings is None else find_embeddings(embeddings))
        if not len(index):
            index.close()
            raise NoIndex(f"{path} holds no passages: selfcorrect-rag index PATH... --index {path}")
        return index.as_retriever(self.passages)

    def _open_web(self) -> WebSearch:
        web = self.config.web
        if web == "tavily":
            return TavilyWebSearch()
        if web == "none" or (web is None and not self.config.reads_demo):
            return NoWebSearch("--web tavily, or --web DIR")
        if web is None:
            return demo_web()
        found = open_retriever(Path(web), self.pages)
        return RetrieverWebSearch(found, f"{web} in place of the web")

    def _check_thresholds(self, settings: CRAGSettings) -> None:
        try:
            settings.thresholds(self.evaluator.thresholds)
        except ValueError as error:
            raise BadOption(f"--upper, --lower: with the evaluator's own, {error}") from error

    def _or_sketch(self, opened: Callable[[], T], sketched: Callable[[], T]) -> T:
        return sketched() if self.sketch else cast(T, self._each(opened()))


def quiet_vllm() -> None:
    """Keep vLLM's log out of standard output, where results belong; before it is imported."""
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def quiet_transformers() -> None:
    """Keep its bars of weights that load out of a program's output; what is downloaded shows."""
    require("transformers", "local").utils.logging.disable_progress_bar()


def read_demonstrations(path: Path) -> list[Demonstration]:
    """The demonstrations in a JSONL file.

    Raises:
        BadDemonstrations: the file cannot be read, or a line is no demonstration.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDemonstrations(f"cannot read {path}: {error}") from error
    return [
        _demonstration(line, f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _demonstration(line: str, place: str) -> Demonstration:
    try:
        row = json.loads(line)
        made = Demonstration(question=str(row["question"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BadDemonstrations(f'{place}: not {{"question": ..., "rationale": ...}}') from error
    if row.get("rationale"):
        made["rationale"] = str(row["rationale"])
    if isinstance(row.get("answers"), list):
        made["answers"] = [str(answer) for answer in row["answers"]]
    return made


def _unopened_llm() -> Runnable[Any, Any]:
    return TransformersReflectionLLM.model_construct()


def _nothing(query: str) -> list[Document]:
    raise NotImplementedError("the parts of a sketch cannot run")


class _UnopenedEvaluator(RetrievalEvaluator):
    def score(self, question: str, passages: Any) -> list[float]:
        raise NotImplementedError("the parts of a sketch cannot run")
