"""How much retrieval a question gets: none, one step, or Self-RAG's loop."""

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.classification import ChatClassifier
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import choose
from selfcorrect_rag.nodes.base.node import Node, Work
from selfcorrect_rag.nodes.base.turns import read_turn
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.prompts.decisions import ROUTES, routing_prompt
from selfcorrect_rag.settings import SelfRAGSettings

Route = Literal["none", "once", "loop"]
"""No retrieval; one step, as in CRAG and InstructRAG; Self-RAG's loop, which retrieves at each
segment where the model asks for it."""


class AdaptiveRouter(Runnable[Any, Route]):
    """Routes a question by how much retrieval it needs (the idea of Adaptive-RAG, 2024).

    A chat model is asked for one of the three routes; one that gives none readable gets ``once``.
    A ReflectionLLM makes Self-RAG's own decision: ``none``, or ``loop``, which ends after one step
    where the model asks for no more. Either is one model call.

    The input is a question, or a state with ``question`` or ``messages``: a router is a path of
    ``add_conditional_edges``.

    Raises:
        ModelFailed: at a call, where the model raises.
        NoQuestion: at a call, where the input has no question.
    """

    def __init__(self, llm: ReflectionLLM | Model, *, threshold: float | None = 0.2) -> None:
        """Ask ``llm``.

        Args:
            llm: any LangChain LLM or chat model, its name, or a ReflectionLLM.
            threshold: of a ReflectionLLM's decision, as ``SelfRAGSettings.threshold``.

        Raises:
            BadArgument: ``llm`` is of the wrong kind.
            BadSettings: the threshold is not in [0, 1].
        """
        settings = SelfRAGSettings(threshold=threshold)
        self.name = "adaptive_router"  # LangGraph reads it
        reflects = isinstance(llm, ReflectionLLM)
        self._node = decide_retrieval(llm, settings) if reflects else _route_question(llm)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Route:
        return _route(self._node.invoke(_asked(input), config))

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Route:
        return _route(await self._node.ainvoke(_asked(input), config))


def _route_question(llm: Model) -> Node:
    classifier = ChatClassifier(as_language_model(llm, "llm"))

    def run(state: Mapping[str, Any]) -> Work:
        said = yield from choose(classifier, routing_prompt(state["question"]), ROUTES)
        return {"path": said.label if said else "once"}

    return Node("route_question", run)


def _asked(given: Any) -> dict[str, Any]:
    given = {"question": given} if isinstance(given, str) else given
    return {"question": read_turn(given, shared=True)["question"]}


def _route(update: Mapping[str, Any]) -> Route:
    if "retrieval" in update:
        return "loop" if update["retrieval"]["retrieve"] else "none"
    path: Route = update["path"]
    return path
