"""A graph as a LangChain tool, and as a subagent of deepagents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import StructuredTool, ToolException
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, Field

from selfcorrect_rag.errors import CallsMixed, SelfCorrectError, one_line
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.intake import valid
from selfcorrect_rag.state.sources import shown_source, title_line

if TYPE_CHECKING:
    from deepagents import CompiledSubAgent

DESCRIPTION = (
    "Answers a question from documents and names the passages that the answer rests on. Cite them "
    "by their numbers. Ask one question at a time, in words that stand alone."
)
Answered = tuple[str, dict[str, Any]]
"""The text for the model, and the whole result."""


class Question(BaseModel):
    """The arguments that a model gives to the tool."""

    question: str = Field(description="One question that stands alone: no pronouns of the chat.")


def as_tool(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    *,
    name: str | None = None,
    description: str = DESCRIPTION,
    context: Settings | Mapping[str, Any] | Literal["agent"] | None = None,
) -> StructuredTool:
    """Make a tool of one of the graphs, for agents and for ``model.bind_tools``.

    Its content is the answer with ``[n]`` and the list of cited sources; its artifact is the
    graph's whole output. Calls may be parallel, sync or async, and each keeps its pauses
    (``approve_search``, ``interrupt_before``) in the thread of the agent, which needs a
    checkpointer for them. A checkpointer of the graph's own is not used.

    LangGraph tells runs apart by task, and ``create_agent`` gives each tool call one. A graph of
    your own does so with ``[Send("tools", [call]) for call in message.tool_calls]``; a ToolNode
    that is handed several calls at once runs them in one task, and may mix them on resuming.

    Args:
        graph: from any ``create_*`` of this package.
        name: the tool's name; the graph's by default.
        description: when to call it, for the model; say here what the documents are about.
        context: settings of every call; ``"agent"`` passes the agent's own context on, which the
            graph does not get by default.

    Raises:
        BadSettings: ``context`` is another graph's settings, or has an unknown knob.
        CallsMixed: at a call, if parallel calls were mixed.
        ToolException: at a call, for any :class:`~selfcorrect_rag.errors.SelfCorrectError`. The
            tool catches it: the model reads the error's message in place of an answer.
    """
    inner = inside(graph)
    if context != "agent":
        check_context(graph, context)
    # None would pass the agent's own context on to the graph.
    settings: Any = None if context == "agent" else context if context is not None else {}

    def ask(question: str, config: RunnableConfig) -> Answered:
        try:
            result = inner.invoke({"question": question}, config, context=settings)
        except SelfCorrectError as error:
            raise ToolException(str(error)) from error
        return _answered(question, result)

    async def aask(question: str, config: RunnableConfig) -> Answered:
        try:
            result = await inner.ainvoke({"question": question}, config, context=settings)
        except SelfCorrectError as error:
            raise ToolException(str(error)) from error
        return _answered(question, result)

    return StructuredTool.from_function(
        ask,
        aask,
        name=name or graph.get_name(),
        description=description,
        args_schema=Question,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def as_subagent(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    *,
    name: str | None = None,
    description: str = DESCRIPTION,
    context: Settings | Mapping[str, Any] | Literal["agent"] | None = None,
) -> "CompiledSubAgent":
    """Make a subagent of one of the graphs, for ``deepagents.create_deep_agent(subagents=[...])``.

    Its task is the question. A deep agent keeps the text of a subagent's last message alone: it is
    the content of the tool (:func:`as_tool`, with the same arguments and errors), which lists the
    cited sources. Pauses are kept in the thread of the deep agent.
    """
    tool = as_tool(graph, name=name, description=description, context=context)

    def run(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [AIMessage(tool.invoke(_task(state)))]}

    async def arun(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [AIMessage(await tool.ainvoke(_task(state)))]}

    return {
        "name": tool.name,
        "description": description,
        "runnable": RunnableLambda(run, arun, name=tool.name),
    }


def _task(state: Mapping[str, Any]) -> dict[str, str]:
    return {"question": as_text(state["messages"][-1].content)}


def check_context(graph: CompiledStateGraph[Any, Any, Any, Any], context: object) -> None:
    """Refuse settings that are not the graph's before any run.

    Raises:
        BadSettings: they are not.
    """
    settings: Any = graph.context_schema
    settings.of(context)


def inside(graph: CompiledStateGraph[Any, Any, Any, Any]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph as an agent runs it: its models' tokens are not in the agent's token stream.

    It has no checkpointer: with its own, parallel calls of a thread would share a checkpoint;
    without, LangGraph stores each call under its task in the agent's thread.
    """
    return graph.copy({"checkpointer": None}).with_config(tags=["nostream"])


def _answered(question: str, result: dict[str, Any]) -> Answered:
    if not _is_of(question, result["original_question"]):
        raise CallsMixed(
            f"the call for {question!r} resumed the run for {result['original_question']!r}: give "
            "each call a task of its own, as create_agent does: "
            '[Send("tools", [call]) for call in tool_calls]'
        )
    if "__interrupt__" in result:
        # Inside an agent a pause propagates to the agent's own thread, and never gets here.
        raise ToolException(
            "the run paused for a person, and a tool called on its own has no thread to go on in: "
            "call it from an agent with a checkpointer"
        )
    return readable(result), result


SHORTEST_CUT = 100
"""Minimum of the setting ``question_characters``."""


def _is_of(question: str, answered: str) -> bool:
    """Whether a run that answered ``answered`` was for ``question``."""
    given = valid(question).strip()
    return given == answered or (len(answered) >= SHORTEST_CUT and given.startswith(answered))


def readable(result: Mapping[str, Any]) -> str:
    """A graph's answer for a model: with citation marks, a line per cited source, and notes;
    quoted."""
    citations = result["citations"]
    marks = "".join(f" [{citation['number']}]" for citation in citations)
    answer = result.get("cited_answer") or f"{result['answer']}{marks}"
    sources = [f"[{c['number']}] {_source(c['title'], c['source'])}" for c in citations]
    cited = ["Sources:", *sources] if sources else ["Sources: none"]
    notes = [f"Note: {one_line(note)}" for note in result["notes"]]
    return quoted("\n".join([answer, "", *cited, *notes]))


def _source(given_title: str, given_source: str) -> str:
    title, source = title_line(given_title), shown_source(given_source)
    return f"{title} ({source})" if title and source else title or source or "untitled"
