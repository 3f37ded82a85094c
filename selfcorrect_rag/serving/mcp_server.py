"""The graphs as tools of an MCP server, for clients of its protocol of 2026-07-28 and before.

A client starts its servers to list their tools: nothing is opened before a tool is called.
"""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from selfcorrect_rag.agents.tool import readable
from selfcorrect_rag.errors import SelfCorrectError, one_line
from selfcorrect_rag.intake import shown_source, title_line, web_address
from selfcorrect_rag.journal import digest
from selfcorrect_rag.serving.hosts import host_names

TOOLS = {
    "self_rag": "Answer a question from the indexed documents with Self-RAG: it decides whether "
    "evidence is needed, writes a candidate for each passage, and keeps the best supported one.",
    "crag": "Answer a question with Corrective RAG: it grades the retrieved documents, and "
    "searches the web when they are insufficient.",
    "self_crag": "Answer a question with Self-RAG on passages that Corrective RAG has graded, "
    "refined and completed from the web: the slowest and most careful tool.",
    "instruct_rag": "Answer a question with InstructRAG: a rationale says which documents are "
    "useful, and ends in the answer.",
}
"""Each graph's description as a tool."""
SOURCE = "selfcorrect-rag://sources/{digest}"
"""The address of a resource: a text that an answer cites."""
MAX_SOURCES = 1_000
"""Texts that can be read as resources; the oldest are dropped first."""


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
    texts: dict[str, str] = {}

    @made.resource(SOURCE, name="source", title="A text that an answer cites")
    def read(digest: str) -> str:
        if digest not in texts:
            raise ResourceNotFoundError("no recent answer cites this source: ask again")
        return texts[digest]

    for name, description in TOOLS.items():
        made.add_tool(
            _tool(open_graph, name, texts),
            name=name,
            description=description,
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint="crag" in name),
        )
    return made


def _tool(open_graph: Callable[[str], Any], name: str, texts: dict[str, str]) -> Any:
    async def ask(
        context: Context[Any, Any],
        question: Annotated[str, Field(description="The question, which must stand alone.")],
        passages: Annotated[
            int | None, Field(description="How many are read, if not as configured.")
        ] = None,
    ) -> CallToolResult:
        await context.report_progress(0, message="started")
        settings = {} if passages is None else {"passages": passages}
        step, result = 0, {}
        try:
            graph = await asyncio.to_thread(open_graph, name)
            async for mode, part in graph.astream(
                {"question": question}, context=settings, stream_mode=["custom", "values"]
            ):
                if mode == "values":
                    result = part
                    continue
                step += 1
                told = ("query", "action", "reason", "text", "answer")
                words = [part["event"].replace("_", " "), *(part.get(key) for key in told)]
                line = ": ".join(one_line(each) for each in [*filter(None, words)][:2])
                await context.report_progress(step, message=line)
        except SelfCorrectError as error:
            raise ToolError(str(error)) from error
        # Texts are not resource links: LangChain's adapters make file blocks of those, which
        # OpenAI's chat completions refuse.
        optional = {key: result.get(key) or None for key in ("cited_answer", "action", "rationale")}
        shown = [optional["rationale"], readable(result)]
        structured = {
            "answer": result["answer"],
            **optional,
            "citations": [_source(citation, texts) for citation in result["citations"]],
            "notes": [one_line(note) for note in result["notes"]],
        }
        text = TextContent(text="\n\n".join(filter(None, shown)))
        return CallToolResult(content=[text], structured_content=structured)

    return ask


def _source(citation: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """Return a citation with a title and a source that are safe to show, and keep its text."""
    source, text = shown_source(citation["source"]) or None, citation["text"]
    key = digest([source, text])
    texts.pop(key, None)  # it becomes the newest
    texts[key] = text
    if len(texts) > MAX_SOURCES:
        del texts[next(iter(texts))]
    return {
        **{name: citation.get(name) for name in ("number", "page", "heading", "text")},
        "title": title_line(citation["title"]) or None,
        "source": source,
        "url": web_address(citation["source"]) or None,
        "uri": SOURCE.format(digest=key),
        "quote": citation.get("quote") or None,
    }


def transport_security(host: str, allowed: Sequence[str]) -> TransportSecuritySettings:
    """Return the hosts that requests may name, and the pages that may call the server; BadOption
    if it would listen to other machines without a name."""
    every = [form for name in host_names(host, allowed) for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=every,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in every],
    )
