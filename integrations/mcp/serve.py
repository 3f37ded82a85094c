"""Serve the graphs as MCP tools, over stdio or streamable HTTP.

    python integrations/mcp/serve.py [--http] [options of the generator, the index and the web]

Without options it runs on the reader and the demo corpus, offline. Ctrl-C ends it.
"""

import argparse
import inspect
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.errors.messages import one_line
from selfcorrect_rag.models.off_loop import spare_from_collection
from selfcorrect_rag.serving.hosts import known_names
from selfcorrect_rag.serving.options import add_host_options, add_options, config_from
from selfcorrect_rag.serving.parts import GRAPHS, Parts
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.sources import place, shown_source, title_line

MOST_PASSAGES = 20
"""Passages that the index is asked for; the setting ``passages`` takes the best of them."""

TOOLS = {
    "self_rag": (
        "Answer a question from the indexed documents with Self-RAG: it decides whether evidence "
        "is needed, writes a candidate for each passage, and keeps what its passages support.",
        ("passages", "threshold", "depth"),
    ),
    "crag": (
        "Answer a question with Corrective RAG: retrieved documents are graded, and where they do "
        "not do, the web is searched too.",
        ("passages", "strips", "web_results"),
    ),
    "self_crag": (
        "Answer a question with Self-RAG on passages that Corrective RAG has graded, refined and "
        "completed from the web: the slowest of the tools, and the most careful.",
        ("passages", "strips", "depth"),
    ),
    "instruct_rag": (
        "Answer a question with InstructRAG: a rationale says which documents are of use, and "
        "ends in the answer.",
        ("passages",),
    ),
}
"""Each graph's description as a tool, and the settings that it takes."""


class Source(BaseModel):
    """A text that the answer points at."""

    number: int
    title: str
    source: str
    text: str
    quote: str = Field(description="Its sentence that says so word for word, if there is one.")


class Answer(BaseModel):
    """The structured content of a tool's result."""

    answer: str
    cited_answer: str = Field(description="The answer with [n] where it points at a citation.")
    citations: list[Source]
    action: str | None = Field(None, description="CRAG's: correct, incorrect or ambiguous.")
    rationale: str | None = Field(None, description="InstructRAG's: what led to the answer.")
    notes: list[str] = Field(description="What a reader should know, such as a failed search.")


class Approval(BaseModel):
    """A person's reply to a web search."""

    approve: bool = Field(description="Search the web?")
    query: str = Field("", description="Another query to search for; this one where left empty.")


def server(runnables: dict[str, Any], **options: Any) -> FastMCP:
    """An MCP server with a tool for each graph.

    ``runnables`` are graphs by name; ``options`` are FastMCP's.
    """
    made = FastMCP("selfcorrect-rag", log_level="WARNING", **options)
    for name, runnable in runnables.items():
        description, knobs = TOOLS[name]
        made.add_tool(
            _tool(made, name, runnable, knobs),
            name=name,
            description=description,
            annotations=ToolAnnotations(readOnlyHint=True, openWorldHint="crag" in name),
        )
    return made


def _tool(made: FastMCP, name: str, runnable: Any, knobs: tuple[str, ...]) -> Any:
    """The function of a tool: its parameters are the question and the settings ``knobs``."""

    async def run(question: str, **settings: Any) -> CallToolResult:
        context, step, result = made.get_context(), 0, {}
        settings = {name: value for name, value in settings.items() if value is not None}
        thread = RunnableConfig(configurable={"thread_id": str(uuid4())})
        turn: Any = {"question": question}
        try:
            while turn is not None:
                async for mode, part in runnable.astream(
                    turn, thread, context=settings, stream_mode=["custom", "values"]
                ):
                    if mode == "values":
                        result = part
                        continue
                    step += 1
                    await context.report_progress(step, message=_line(part))
                turn = await _approval(context, runnable, thread)
        finally:
            if runnable.checkpointer:
                runnable.checkpointer.delete_thread(thread["configurable"]["thread_id"])
        return _result(result)

    question = Annotated[str, Field(description="The question, which must stand alone.")]
    parameters = {"question": _parameter("question", question)}
    for knob in knobs:
        field = GRAPHS[name].model_fields[knob]
        meaning = Field(description=f"{field.description} The server's default where left out.")
        bounded = Annotated[(field.annotation, *field.metadata)]  # type: ignore[valid-type]
        parameters[knob] = _parameter(knob, Annotated[bounded | None, meaning], None)
    # The SDK reads a tool's inputs off its signature.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        list(parameters.values()), return_annotation=Annotated[CallToolResult, Answer]
    )
    return run


async def _approval(context: Any, runnable: Any, thread: RunnableConfig) -> Command[Any] | None:
    """Ask the client's user about the web search that a run paused before; None where it did not.

    Where a client cannot ask its user, the search is not approved.
    """
    paused = (await runnable.aget_state(thread)).interrupts if runnable.checkpointer else ()
    if not paused:
        return None
    (pause,) = paused
    message = f"Search {pause.value['source']} for: {pause.value['query']}"
    try:
        reply = await context.elicit(message, Approval)
    except McpError:
        return Command(resume=False)
    accepted = isinstance(reply, AcceptedElicitation)
    return Command(resume=reply.data.model_dump() if accepted else False)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _line(event: dict[str, Any]) -> str:
    """An event as a line of progress: what happened, and the most telling of its data."""
    name: str = event["event"].replace("_", " ")
    for key in ("query", "action", "reason", "text", "answer"):
        if event.get(key):
            return f"{name}: {one_line(event[key])}"
    return name


def _source(citation: dict[str, Any]) -> Source:
    """A citation with its title on one line and an address that may be shown."""
    title, source = title_line(citation["title"]), shown_source(citation["source"])
    return Source(
        number=citation["number"],
        title=title,
        source=source,
        text=citation["text"],
        quote=citation.get("quote", ""),
    )


def _result(result: dict[str, Any]) -> CallToolResult:
    answer = Answer(
        answer=result["answer"],
        cited_answer=result.get("cited_answer", result["answer"]),
        citations=[_source(citation) for citation in result["citations"]],
        action=result.get("action"),
        rationale=result.get("rationale"),
        notes=[one_line(note) for note in result["notes"]],
    )
    cited = [f"[{c.number}] {place(c.title, c.source) or 'untitled'}" for c in answer.citations]
    parts = [answer.rationale or "", answer.cited_answer, "\n".join(cited), "\n".join(answer.notes)]
    return CallToolResult(
        content=[TextContent(type="text", text="\n\n".join(part for part in parts if part))],
        structuredContent=answer.model_dump(),
    )


def graphs(parts: Parts, *, approve: bool = False) -> dict[str, Any]:
    """The graphs of the tools; with ``approve`` they pause before they search the web."""
    kept = {"checkpointer": InMemorySaver()} if approve else {}
    made = {}
    for name in TOOLS:
        corrects = issubclass(GRAPHS[name], CRAGSettings)
        settings = GRAPHS[name](approve_search=approve) if corrects else None
        made[name] = parts.graph(name, settings, **kept)
    return made


def known_hosts(host: str, allowed: Sequence[str]) -> TransportSecuritySettings:
    """The hosts that requests may name, and the pages that may call the server.

    Raises:
        BadOption: it would listen to other machines, and by no name, or a name is none.
    """
    names = [f"[{name}]" if ":" in name else name for name in known_names(host, allowed)]
    every = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=every,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in every],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--http", action="store_true", help="streamable HTTP instead of stdio. Default: off."
    )
    add_host_options(parser, port=8900)
    parser.add_argument(
        "--approve",
        action="store_true",
        help="Ask the client's user before each web search. Default: off.",
    )
    add_options(parser)
    args = parser.parse_args()
    try:
        config = config_from(args)
        known = known_hosts(args.host, args.allow_host)
        with Parts(config, passages=MOST_PASSAGES, pages=MOST_PASSAGES) as parts:
            made = server(
                graphs(parts, approve=args.approve),
                instructions=f"Answers come from {parts.source}, by {parts.answers}.",
                host=args.host,
                port=args.port,
                transport_security=known,
            )
            spare_from_collection()
            made.run("streamable-http" if args.http else "stdio")
    except SelfCorrectError as error:
        raise SystemExit(f"{error}") from error
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
