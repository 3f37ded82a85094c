"""The MCP server with real clients, over stdio and streamable HTTP, on the reader."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.serving.parts import Parts
from tests.agents.scripted import reflecting
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.test_approval import GRAPHS as APPROVALS
from tests.test_docs import BLOCK, ROOT

pytest.importorskip("mcp")
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CallToolResult, ElicitResult, ErrorData

from integrations.mcp import serve

SERVE = ROOT / "integrations" / "mcp" / "serve.py"
README = (SERVE.parent / "README.md").read_text(encoding="utf-8")
PORT = 8900
QUESTION = "Who discovered penicillin?"
START = 180
"""Seconds that a server may take on a busy machine."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers run, so that the demo index is made once."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (folder / "log").open("w")
    command = [sys.executable, str(SERVE), "--http", "--port", str(port)]
    command += ["--allow-host", "rag.example"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + START
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait()


@asynccontextmanager
async def over_http(url: str) -> AsyncIterator[ClientSession]:
    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def test_the_tools_and_their_knobs(url: str) -> None:
    async with over_http(url) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert set(tools) == {"self_rag", "crag", "self_crag", "instruct_rag"}
    for name, knobs in {
        "self_rag": {"passages", "threshold", "depth"},
        "crag": {"passages", "strips", "web_results"},
        "self_crag": {"passages", "strips", "depth"},
        "instruct_rag": {"passages"},
    }.items():
        schema = tools[name].inputSchema
        assert schema["required"] == ["question"]
        assert set(schema["properties"]) == {"question", *knobs}
        number, nothing = schema["properties"]["passages"]["anyOf"]
        assert (number["minimum"], number["maximum"], nothing["type"]) == (1, 100, "null")
        assert set(tools[name].outputSchema["properties"]) >= {"answer", "citations", "notes"}  # type: ignore[index]
        for knob in knobs:
            assert f"`{knob}`" in README


async def test_every_tool_answers_with_its_citations_and_progress(url: str) -> None:
    async with over_http(url) as session:
        for tool, (question, author, expected) in {
            "self_rag": (QUESTION, "Fleming", "retrieved"),
            "crag": (QUESTION, "Fleming", "graded: correct"),
            "self_crag": (QUESTION, "Fleming", "graded: correct"),
            "instruct_rag": ("Who painted Guernica?", "Picasso", "rationale written"),
        }.items():
            heard: list[tuple[float, str | None]] = []

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard.append((progress, message))  # noqa: B023  it is called before the next turn

            result = await session.call_tool(
                tool, {"question": question, "passages": 5}, progress_callback=hear
            )
            text, structured = result.content[0].text, result.structuredContent  # type: ignore[union-attr]
            assert not result.isError, text
            assert structured is not None
            assert author in structured["answer"]
            assert structured["cited_answer"] in text
            assert structured["citations"]
            for cited in structured["citations"]:
                assert structured["answer"] in cited["quote"]
                assert " ".join(cited["text"].split()).count(cited["quote"])
                assert f"[{cited['number']}] {cited['title']}" in text
            assert [step for step, _ in heard] == list(range(1, len(heard) + 1))
            assert any(str(message).startswith(expected) for _, message in heard), heard
            assert (structured["action"] == "correct") == ("crag" in tool)
            assert bool(structured["rationale"]) == (tool == "instruct_rag")


async def test_knobs_reach_the_run_and_calls_run_side_by_side(url: str) -> None:
    heard: dict[int, list[str | None]] = {2: [], 3: []}
    async with over_http(url) as session:

        async def ask(passages: int) -> CallToolResult:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard[passages].append(message)

            given = {"question": QUESTION, "passages": passages, "depth": 1}
            return await session.call_tool("self_rag", given, progress_callback=hear)

        never, *_ = await asyncio.gather(
            session.call_tool("self_rag", {"question": QUESTION, "threshold": 1.0}), ask(2), ask(3)
        )
    assert never.structuredContent["citations"] == []  # type: ignore[index]
    for passages, messages in heard.items():
        assert sum(str(m).startswith("candidate scored") for m in messages) == passages


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"question": "  "}, "the question is empty"),
        ({"question": QUESTION, "passages": 0}, "greater than or equal to 1"),
        ({}, "Field required"),
    ],
)
async def test_errors_can_be_read(url: str, given: dict[str, Any], reason: str) -> None:
    async with over_http(url) as session:
        result = await session.call_tool("self_rag", given)
    assert result.isError
    assert reason in result.content[0].text  # type: ignore[union-attr]
    assert "Traceback" not in result.content[0].text  # type: ignore[union-attr]


async def test_langchain_takes_the_tools_as_the_readme_says(url: str) -> None:
    pytest.importorskip("langchain_mcp_adapters")
    (block,) = BLOCK.findall(README)
    assert f":{PORT}/mcp" in block
    source = block.replace(f"http://127.0.0.1:{PORT}/mcp", url)
    names: dict[str, Any] = {}
    body = "\n    ".join(source.splitlines())
    exec(compile(f"async def shown():\n    {body}\n    return tools", "README.md", "exec"), names)
    tools = {tool.name: tool for tool in await names["shown"]()}
    call = {"name": "self_rag", "args": {"question": QUESTION}, "id": "1", "type": "tool_call"}
    message = await tools["self_rag"].ainvoke(call)
    assert "[1]" in json.dumps(message.content)
    assert "Fleming" in message.artifact["structured_content"]["answer"]


async def test_stdio_as_the_readme_says(folder: Path, url: str) -> None:
    # After the server of the other tests: the demo index is there by now.
    configured = json.loads(README.split("```json\n")[1].split("```")[0])
    given = configured["mcpServers"]["selfcorrect-rag"]
    assert given["command"] == "python"
    parameters = StdioServerParameters(
        command=sys.executable,
        args=[str(ROOT / given["args"][0])],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
    )
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write) as session,
    ):
        told = await session.initialize()
        result = await session.call_tool("self_rag", {"question": QUESTION})
    assert told.instructions == "Answers come from the demo corpus, by the reader."
    assert "Fleming" in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("tool", ["crag", "self_crag"])
@pytest.mark.parametrize(
    ("reply", "sent"),
    [
        (ElicitResult(action="accept", content={"approve": True}), "wrote, Emma"),
        (ElicitResult(action="accept", content={"approve": True, "query": "Emma"}), "Emma"),
        (ElicitResult(action="accept", content={"approve": False, "query": "Emma"}), None),
        (ElicitResult(action="decline"), None),
        (ElicitResult(action="cancel"), None),
        (ErrorData(code=-32600, message="there is nobody to ask"), None),
        (None, None),
    ],
    ids=["yes", "another", "no", "declined", "cancelled", "failed", "not supported"],
)
async def test_a_search_waits_for_the_clients_user(tool: str, reply: Any, sent: str | None) -> None:
    web, saver = PagesWebSearch(), InMemorySaver()
    build, kind = APPROVALS[tool]
    graph = build(web, settings=kind(approve_search=True), checkpointer=saver)
    heard: list[str] = []

    async def hear(context: Any, params: Any) -> Any:
        assert not web.queries
        heard.append(params.message)
        return reply

    async with create_connected_server_and_client_session(
        serve.server({tool: graph}), elicitation_callback=hear if reply else None
    ) as session:
        result = await session.call_tool(tool, {"question": "Who wrote Emma?"})
    assert not result.isError, result.content
    assert [query for query, _ in web.queries] == ([] if sent is None else [sent])
    assert heard == (["Search pages for: wrote, Emma"] if reply else [])
    notes = result.structuredContent["notes"]  # type: ignore[index]
    assert any("the search was not approved" in note for note in notes) is (sent is None)
    assert not saver.storage, "nothing of a call is left behind"


@pytest.mark.parametrize("approve", [True, False])
def test_the_option_reaches_the_graphs(approve: bool) -> None:
    web = PagesWebSearch()
    parts = Parts(ServingConfig())
    parts.retriever = lambda query: [document("Vague.")]
    parts.evaluator, parts.web = WordEvaluator(), web
    parts.llm = parts.rationale_llm = reflecting()
    thread: Any = {"configurable": {"thread_id": "1"}}
    made = serve.graphs(parts, approve=approve)
    for name in ("crag", "self_crag"):
        web.queries.clear()
        made[name].invoke({"question": "Who?"}, thread, context={"passages": 1})
        assert bool(web.queries) is not approve


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, SERVE, "--index", tmp_path / "none"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )
    assert run.returncode == 1
    assert "holds no index" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "rag.example"}, 200),
        ({"Host": "rag.example:80", "Origin": "https://rag.example"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
def test_only_known_names_and_their_pages_may_call(
    url: str, headers: dict[str, str], status: int
) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    taken = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(url, json=hello, headers={**taken, **headers}).status_code == status


def test_a_server_for_other_machines_needs_a_name() -> None:
    with pytest.raises(BadOption, match="--allow-host NAME"):
        serve.known_hosts("0.0.0.0", [])
    known = serve.known_hosts("0.0.0.0", ["rag.example"])
    assert known.enable_dns_rebinding_protection
    assert "rag.example" in known.allowed_hosts
