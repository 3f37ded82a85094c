"""The graphs as tools of an MCP server, for clients of its protocol of 2026-07-28 and before.

A client starts its servers to list their tools: nothing is opened before a tool is called.
"""

import asyncio
import hashlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

from selfcorrect_rag.agents.tool import readable
from selfcorrect_rag.errors import SelfCorrectError, one_line
from selfcorrect_rag.intake import shown_source, title_line, web_address
from selfcorrect_rag.serving.hosts import host_names
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import GRAPHS, CRAGSettings

TOOLS = {
    "self_rag": (
        "Answer a question from the indexed documents with Self-RAG: it decides whether evidence "
        "is needed, writes a candidate for each passage, and keeps the best supported one.",
        ("passages", "threshold", "depth"),
    ),
    "crag": (
        "Answer a question with Corrective RAG: it grades the retrieved documents, and searches "
        "the web when they are insufficient.",
        ("passages", "strips", "web_results"),
    ),
    "self_crag": (
        "Answer a question with Self-RAG on passages that Corrective RAG has graded, refined and "
        "completed from the web: the slowest and most careful tool.",
        ("passages", "strips", "depth"),
    ),
    "instruct_rag": (
        "Answer a question with InstructRAG: a rationale says which documents are useful, and "
        "ends in the answer.",
        ("passages",),
    ),
}
"""Each graph's description as a tool, and the settings that the tool takes."""
SOURCE = "selfcorrect-rag://sources/{digest}"
"""The address of a resource: a text that an answer cites."""
MAX_SOURCES, MAX_PAUSED = 1_000, 100
"""Texts that can be read as resources, and calls that may wait for a client's user."""
SEARCH = "search"
"""The name of the only input that a call asks its client for."""
ASKS_BY_RESULT = "2026-07-28"
"""The first protocol in which a call that needs input ends, and is made again with it."""
APPROVAL = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "description": "Search the web?"},
        "query": {"type": "string", "description": "Another query to search for."},
    },
    "required": ["approve"],
}
"""The form of a user's reply to a web search."""


class Source(BaseModel):
    """A text that the answer cites."""

    number: int = Field(description="The n of its mark [n] in the answer.")
    title: str | None
    source: str | None = Field(description="Its web addresses or files, joined by commas.")
    url: str | None = Field(description="The first web address among them.")
    page: int | None = Field(description="Its page in a PDF, from 1.")
    heading: str | None = Field(description="The headings above it, outermost first.")
    uri: str = Field(description="The resource of this server that has its text.")
    text: str
    quote: str | None = Field(description="Its sentence that states the answer word for word.")


class Answer(BaseModel):
    """The structured content of a tool's result."""

    answer: str
    cited_answer: str | None = Field(description="The answer with marks [n], if it has any.")
    citations: list[Source]
    action: str | None = Field(description="CRAG's: correct, incorrect or ambiguous.")
    rationale: str | None = Field(description="InstructRAG's: what led to the answer.")
    notes: list[str] = Field(description="What a reader should know, such as a failed search.")


class Sources:
    """The texts that answers have cited, as resources; the oldest are dropped first."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, citation: dict[str, Any]) -> Source:
        """Add a citation, and return it with a title and a source that are safe to show."""
        source, text = shown_source(citation["source"]) or None, citation["text"]
        digest = hashlib.sha256(f"{source}\n{text}".encode()).hexdigest()[:32]
        self._texts.pop(digest, None)  # it becomes the newest
        self._texts[digest] = text
        if len(self._texts) > MAX_SOURCES:
            del self._texts[next(iter(self._texts))]
        return Source(
            number=citation["number"],
            title=title_line(citation["title"]) or None,
            source=source,
            url=web_address(citation["source"]) or None,
            page=citation.get("page"),
            heading=citation.get("heading"),
            uri=SOURCE.format(digest=digest),
            text=text,
            quote=citation.get("quote") or None,
        )

    def read(self, digest: str) -> str:
        """Return the text of a source."""
        if digest not in self._texts:
            raise ResourceNotFoundError("no recent answer cites this source: ask again")
        return self._texts[digest]


def server(open_graph: Callable[[str], Any], instructions: str | None = None) -> MCPServer:
    """Make an MCP server with a tool for each graph.

    Args:
        open_graph: returns the graph of a name in ``TOOLS``; called in a thread, at every call of a
            tool. An error of ours that it raises is the call's error.
        instructions: what clients tell their model about the server.
    """
    made = MCPServer(
        "selfcorrect-rag",
        title="Self-RAG, CRAG and InstructRAG",
        version=version("selfcorrect-rag"),
        instructions=instructions,
        log_level="WARNING",
    )
    sources, paused = Sources(), deque[str]()
    made.resource(SOURCE, name="source", title="A text that an answer cites")(sources.read)
    for name, (description, knobs) in TOOLS.items():
        made.add_tool(
            _tool(open_graph, name, knobs, sources, paused),
            name=name,
            description=description,
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint="crag" in name),
        )
    return made


def _tool(
    open_graph: Callable[[str], Any],
    name: str,
    knobs: Sequence[str],
    sources: Sources,
    paused: deque[str],
) -> Any:
    """Make the function of a tool: its parameters are the question and the settings ``knobs``."""

    async def run(
        context: Context[Any, Any], question: str, **settings: Any
    ) -> CallToolResult | InputRequiredResult:
        await context.report_progress(0, message="started")
        settings = {name: value for name, value in settings.items() if value is not None}
        try:
            graph = await asyncio.to_thread(open_graph, name)
            return await _call(context, graph, question, settings, sources, paused)
        except SelfCorrectError as error:
            raise ToolError(str(error)) from error

    def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, kind, default=default, annotation=annotation)

    asked = Annotated[str, Field(description="The question, which must stand alone.")]
    parameters = [parameter("question", asked)]
    for knob in knobs:
        field = GRAPHS[name].model_fields[knob]
        meaning = Field(description=f"{field.description} The server's default if left out.")
        bounded: Any = Annotated[(field.annotation, *field.metadata)]
        parameters.append(parameter(knob, Annotated[bounded | None, meaning], None))
    # The SDK reads a tool's inputs off its signature.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=Annotated[CallToolResult, Answer]
    )
    return run


async def _call(
    context: Context[Any, Any],
    graph: Any,
    question: str,
    settings: dict[str, Any],
    sources: Sources,
    paused: deque[str],
) -> CallToolResult | InputRequiredResult:
    """Run a graph to its end, or to a web search that the client's user must approve."""
    thread_id = context.request_state or str(uuid4())
    thread = RunnableConfig(configurable={"thread_id": thread_id})
    turn: Any = {"question": question}
    if context.request_state is not None:
        if not (await graph.aget_state(thread)).interrupts:
            raise ToolError("this call has waited for too long: ask again")
        turn = _resumed((context.input_responses or {}).get(SEARCH))
    step, result, waits = 0, {}, False
    try:
        while True:
            async for mode, part in graph.astream(
                turn, thread, context=settings, stream_mode=["custom", "values"]
            ):
                if mode == "values":
                    result = part
                    continue
                step += 1
                await context.report_progress(step, message=_progress_line(part))
            form = await _form(graph, thread)
            if form is None:
                return _result(result, sources)
            client = context.client_capabilities or ClientCapabilities()
            by_result = (context.protocol_version or "") >= ASKS_BY_RESULT
            if waits := by_result and client.elicitation is not None:
                asks: Any = {SEARCH: ElicitRequest(params=form)}
                return InputRequiredResult(input_requests=asks, request_state=thread_id)
            turn = _resumed(await _ask_client(context, form))
    finally:
        over: str | None = thread_id
        if waits:
            paused.append(thread_id)
            over = paused.popleft() if len(paused) > MAX_PAUSED else None
        if graph.checkpointer and over:
            graph.checkpointer.delete_thread(over)


async def _form(graph: Any, thread: RunnableConfig) -> ElicitRequestFormParams | None:
    """Return the form for the web search before which a run paused, if it did."""
    pauses = (await graph.aget_state(thread)).interrupts if graph.checkpointer else ()
    if not pauses:
        return None
    (pause,) = pauses
    message = f"Search {pause.value['source']} for: {pause.value['query']}"
    return ElicitRequestFormParams(message=message, requested_schema=APPROVAL)


async def _ask_client(context: Context[Any, Any], form: ElicitRequestFormParams) -> Any:
    """Return the reply of the client's user; None if the client could not ask them."""
    try:
        return await context.session.elicit_form(
            form.message, form.requested_schema, context.request_id
        )
    except MCPError:
        return None


def _resumed(reply: Any) -> Command[Any]:
    """Resume a run with a user's reply: yes, another query, or no, which is anything else."""
    content = reply.content if getattr(reply, "action", "") == "accept" else {}
    approved = bool(content.get("approve"))
    return Command(resume=approved and (content.get("query") or True))


def _progress_line(event: dict[str, Any]) -> str:
    """Describe an event in one line: its name, and the most telling of its data."""
    name: str = event["event"].replace("_", " ")
    for key in ("query", "action", "reason", "text", "answer"):
        if event.get(key):
            return f"{name}: {one_line(event[key])}"
    return name


def _result(result: dict[str, Any], sources: Sources) -> CallToolResult:
    # Texts are not resource links: LangChain's adapters make file blocks of those, which OpenAI's
    # chat completions refuse.
    answer = Answer(
        answer=result["answer"],
        cited_answer=result.get("cited_answer") or None,
        citations=[sources.add(citation) for citation in result["citations"]],
        action=result.get("action"),
        rationale=result.get("rationale") or None,
        notes=[one_line(note) for note in result["notes"]],
    )
    parts = [answer.rationale, readable(result)] if answer.rationale else [readable(result)]
    text = TextContent(text="\n\n".join(map(str, parts)))
    return CallToolResult(content=[text], structured_content=answer.model_dump())


def graph_opener(parts: Parts, *, approve: bool = False) -> Callable[[str], Graph]:
    """Return a function that opens the graph of a tool, each once, whichever threads call.

    Args:
        approve: pause before each web search.
    """
    options = {"checkpointer": InMemorySaver()} if approve else {}
    lock = threading.Lock()

    @cache
    def made(name: str) -> Graph:
        corrects = approve and issubclass(GRAPHS[name], CRAGSettings)
        settings = parts.settings(name, **({"approve_search": True} if corrects else {}))
        return parts.graph(name, settings, **options)

    def opened(name: str) -> Graph:
        with lock:
            return made(name)

    return opened


def transport_security(host: str, allowed: Sequence[str]) -> TransportSecuritySettings:
    """Return the hosts that requests may name, and the pages that may call the server.

    Raises:
        BadOption: it would listen to other machines without a name.
    """
    every = [form for name in host_names(host, allowed) for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=every,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in every],
    )
