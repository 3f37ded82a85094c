"""The models and indexes that the server's graphs share."""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.commands.correction import opened_evaluator, opened_web
from selfcorrect_rag.commands.demonstrations import demonstrations_from
from selfcorrect_rag.commands.engines import opened_model
from selfcorrect_rag.commands.retrieving import opened_retriever, reads_demo
from selfcorrect_rag.models import RetrievalEvaluator, TransformersReflectionLLM
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.models.off_loop import spare_from_collection
from selfcorrect_rag.nano import generator_path, load_chat_model, rationale_model_path
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.state.instruct_rag import Demonstration

T = TypeVar("T")
MOST_PASSAGES, MOST_PAGES = 100, 50
"""As many as the settings ``passages`` and ``web_results`` allow: each run takes its own number."""


class Parts:
    """What graphs are made of, each opened at its first use and then kept.

    In a sketch nothing is opened: its graphs have the same nodes and schemas, and cannot run.
    """

    def __init__(self, args: argparse.Namespace, *, sketch: bool = False) -> None:
        self.args = args
        self._sketch, self._held = sketch, ExitStack()

    @cached_property
    def llm(self) -> Runnable[Any, Any]:
        """The generator, or a chat model that is asked by prompts."""
        model = opened_model(self.args, generator_path())
        return self._open(lambda: self._held.enter_context(model))

    @cached_property
    def rationale_llm(self) -> Runnable[Any, Any]:
        """What writes InstructRAG's rationales: a chat model that is named, else a generator."""
        if self.chat_model or not self.nano:
            return self.chat_model or self.llm
        model = opened_model(self.args, rationale_model_path())
        return self._open(lambda: self._held.enter_context(model))

    @cached_property
    def retriever(self) -> Runnable[str, list[Document]]:
        """What finds passages."""
        return self._open(lambda: opened_retriever(self.args, MOST_PASSAGES)[0])

    @cached_property
    def evaluator(self) -> RetrievalEvaluator:
        """What grades documents."""
        return self._open(lambda: opened_evaluator(self.args.evaluator))

    @cached_property
    def web(self) -> WebSearch:
        """What is searched where the index does not do."""
        demo = reads_demo(self.args)
        return self._open(lambda: opened_web(self.args.web, MOST_PAGES, demo=demo))

    @cached_property
    def chat_model(self) -> Runnable[Any, Any] | None:
        """A chat model, where one is named."""
        name = self.args.chat_model
        return self._open(lambda: find_language_model(name)) if name else None

    @cached_property
    def agent_model(self) -> Runnable[Any, Any]:
        """What the chat agent talks with: by default a rule, which says so."""
        return self.chat_model or load_chat_model()

    @cached_property
    def demonstrations(self) -> list[Demonstration]:
        """InstructRAG's examples of how to answer."""
        return self._open(lambda: demonstrations_from(self.args.demonstrations_from))

    @property
    def nano(self) -> bool:
        """Whether the shipped models answer."""
        return self.args.model is None and self.args.engine != "server"

    def _open(self, opened: Callable[[], T]) -> T:
        if self._sketch:
            unopened: Any = TransformersReflectionLLM.model_construct()
            return unopened  # type: ignore[no-any-return]
        part = opened()
        spare_from_collection()
        return part
