"""A graph as a LangChain tool."""

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config
from langchain_core.tools import StructuredTool, ToolException
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, Field

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.intake import valid
from selfcorrect_rag.nodes.write_answer import sources_and_notes
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.settings import Settings

Graph = CompiledStateGraph[Any, Any, Any, Any]
Context = Settings | Mapping[str, Any] | None
MOST_STEPS = 10_000  # an agent's limit counts the agent's own
DESCRIPTION = (
    "Answers a question from documents and names the passages that the answer rests on. Cite them "
    "by their numbers. Ask one question at a time, in words that stand alone."
)


class Question(BaseModel):
    """The arguments that a model gives to the tool."""

    question: str = Field(description="One question that stands alone: no pronouns of the chat.")


def as_tool(
    graph: Graph,
    *,
    name: str | None = None,
    description: str = DESCRIPTION,
    context: Context | Literal["agent"] = None,
) -> StructuredTool:
    """Make a tool of a graph, for agents and ``model.bind_tools``.

    Its content is the answer with ``[n]`` and the cited sources; its artifact is the graph's
    output. Pauses (``approve_search``, ``interrupt_before``) are kept in the agent's thread, so the
    agent needs a checkpointer for them; the graph's own is not used. Each call needs a separate
    task, as ``create_agent`` gives it; calls that LangGraph mixes raise SelfCorrectError.

    Args:
        graph: from any ``create_*`` of this package.
        name: the tool's name; the graph's by default.
        description: tells the model when to call it; say here what the documents are about.
        context: settings of every call; ``"agent"`` passes the agent's own context on.
    """
    inner = run_inside(graph)
    # None would pass the agent's own context on to the graph.
    settings: Any = None if context == "agent" else checked_context(graph, context)

    def ask(question: str, config: RunnableConfig) -> tuple[str, dict[str, Any]]:
        try:
            within = patch_config(config, recursion_limit=MOST_STEPS)
            result = inner.invoke({"question": question}, within, context=settings)
        except SelfCorrectError as error:  # for the model to read
            raise ToolException(str(error)) from error
        return _content_and_artifact(question, result)

    async def aask(question: str, config: RunnableConfig) -> tuple[str, dict[str, Any]]:
        try:
            within = patch_config(config, recursion_limit=MOST_STEPS)
            result = await inner.ainvoke({"question": question}, within, context=settings)
        except SelfCorrectError as error:
            raise ToolException(str(error)) from error
        return _content_and_artifact(question, result)

    return StructuredTool.from_function(
        ask,
        aask,
        name=name or graph.get_name(),
        description=description,
        args_schema=Question,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def checked_context(graph: Graph, context: Context) -> Any:
    """Return the context for every run; BadSettings if it is not settings of this graph."""
    graph.context_schema.of(context)  # type: ignore[union-attr]
    return {} if context is None else context


def run_inside(graph: Graph) -> Graph:
    """Return the graph as an agent runs it: not streamed, and without a checkpointer, so that
    LangGraph stores each call under its task in the agent's thread; with one, calls would mix."""
    return graph.copy({"checkpointer": None}).with_config(tags=["nostream"])


def _content_and_artifact(question: str, result: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    answered = result["original_question"]  # perhaps cut, at the shortest to 100 characters
    if valid(question).strip()[:100] != answered[:100]:
        raise SelfCorrectError(
            f"the call for {question!r} resumed the run for {answered!r}: give each call a "
            'separate task, as create_agent does: [Send("tools", [call]) for call in tool_calls]'
        )
    if "__interrupt__" in result:  # inside an agent it propagates, and never gets here
        raise ToolException("the run paused: call the tool from an agent with a checkpointer")
    return readable(result), result


def readable(result: Mapping[str, Any]) -> str:
    """Return a graph's cited answer, a line per source, and notes, quoted for a model."""
    below = sources_and_notes(result["citations"], result["notes"])
    return f"{quoted(result['cited_answer'])}\n\n{below}"
