"""The MCP server with real clients, over stdio and streamable HTTP, on the reader."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag.cli import main
from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.serving.parts import Parts
from tests.agents.scripted import reflecting
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.test_approval import GRAPHS as APPROVALS
from tests.test_docs import BLOCK, ROOT

pytest.importorskip("mcp.server.mcpserver")
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, ElicitResult, ErrorData, InputRequiredResult

from selfcorrect_rag.serving import mcp_server

PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
JSON = [json.loads(block.split("```")[0]) for block in PAGE.split("```json\n")[1:]]
URL = "http://127.0.0.1:8900/mcp"
QUESTION = "Who discovered penicillin?"
START = 180
"""Seconds that a server may take on a busy machine."""
ERAS = ("auto", "legacy")
"""How a client connects: by the protocol of 2026-07-28, and by `initialize`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers run, so that the demo index is made once; it has the command in bin/."""
    made = tmp_path_factory.mktemp("served")
    command = made / "bin" / "selfcorrect-rag"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from selfcorrect_rag.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return made


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in the folder, with the command on its path."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (folder / "log").open("w")
    command = [folder / "bin" / "selfcorrect-rag", "mcp", "--http", "--port", str(port)]
    command += ["--allow-host", "rag.example"]
    process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
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


def structured(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def test_the_tools_and_their_knobs(url: str) -> None:
    async with Client(url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"self_rag", "crag", "self_crag", "instruct_rag"}
    for name, knobs in {
        "self_rag": {"passages", "threshold", "depth"},
        "crag": {"passages", "strips", "web_results"},
        "self_crag": {"passages", "strips", "depth"},
        "instruct_rag": {"passages"},
    }.items():
        schema = tools[name].input_schema
        assert schema["required"] == ["question"]
        assert set(schema["properties"]) == {"question", *knobs}
        number, nothing = schema["properties"]["passages"]["anyOf"]
        assert (number["minimum"], number["maximum"], nothing["type"]) == (1, 100, "null")
        for key in (*knobs, *tools[name].output_schema["properties"]):  # type: ignore[index]
            assert f"`{key}`" in PAGE


async def test_every_tool_answers_with_its_citations_and_progress(url: str) -> None:
    async with Client(url) as client:
        for tool, (question, author, expected) in {
            "self_rag": (QUESTION, "Fleming", "retrieved"),
            "crag": (QUESTION, "Fleming", "graded: correct"),
            "self_crag": (QUESTION, "Fleming", "graded: correct"),
            "instruct_rag": ("Who painted Guernica?", "Picasso", "rationale written"),
        }.items():
            heard: list[tuple[float, str | None]] = []

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard.append((progress, message))  # noqa: B023  it is called before the next turn

            given = {"question": question, "passages": 5}
            result = await client.call_tool(tool, given, progress_callback=hear)
            text, told = result.content[0].text, structured(result)  # type: ignore[union-attr]
            assert author in told["answer"]
            assert (told["cited_answer"] or told["answer"]) in text
            assert told["citations"]
            for cited in told["citations"]:
                assert told["answer"] in cited["quote"]
                assert " ".join(cited["text"].split()).count(cited["quote"])
                assert f"[{cited['number']}] {cited['title']}" in text
                (content,) = (await client.read_resource(cited["uri"])).contents
                assert content.text == cited["text"]  # type: ignore[union-attr]
            assert [step for step, _ in heard] == list(range(len(heard)))
            assert any(str(message).startswith(expected) for _, message in heard), heard
            assert told["action"] == ("correct" if "crag" in tool else None)
            assert (told["rationale"] is not None) == (tool == "instruct_rag")
            assert (told["cited_answer"] is None) == (tool == "instruct_rag")


async def test_knobs_reach_the_run_and_calls_run_side_by_side(url: str) -> None:
    heard: dict[int, list[str | None]] = {2: [], 3: []}
    async with Client(url) as client:

        async def ask(passages: int) -> CallToolResult:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard[passages].append(message)

            given = {"question": QUESTION, "passages": passages, "depth": 1}
            return await client.call_tool("self_rag", given, progress_callback=hear)

        never, *_ = await asyncio.gather(
            client.call_tool("self_rag", {"question": QUESTION, "threshold": 1.0}), ask(2), ask(3)
        )
    assert structured(never)["citations"] == []
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
    async with Client(url) as client:
        result = await client.call_tool("self_rag", given)
    assert result.is_error
    assert reason in result.content[0].text  # type: ignore[union-attr]
    assert "Traceback" not in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.usefixtures("inside", "url")  # whose server has made the demo index
def test_the_pages_python_runs() -> None:
    (block,) = BLOCK.findall(PAGE)
    names: dict[str, Any] = {}
    exec(compile(block, "mcp.md", "exec"), names)
    assert names["answer"] == "Alexander Fleming [1]"
    assert "penicillin" in names["sources"][0]


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("mode", ERAS)
async def test_the_pages_command_is_there_before_its_models(mode: str, tmp_path: Path) -> None:
    given = JSON[0]["mcpServers"]["selfcorrect-rag"]
    assert JSON[2]["rag"]["args"] == given["args"]
    nowhere = ["--index", str(tmp_path / "none")]
    parameters = StdioServerParameters(command=given["command"], args=[*given["args"], *nowhere])
    async with Client(parameters, mode=mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "selfcorrect-rag"
        assert client.server_info.version == version("selfcorrect-rag")
        assert str(client.instructions).startswith(f"Answers come from {nowhere[1]}, by the reader")
        assert len((await client.list_tools()).tools) == 4
        result = await client.call_tool("crag", {"question": QUESTION})
    assert result.is_error
    assert "holds no index" in result.content[0].text  # type: ignore[union-attr]


def test_the_page_names_the_address_of_the_default_port() -> None:
    assert JSON[1]["rag"]["url"] == URL
    assert f"listens at `{URL}`" in PAGE


def test_what_is_missing_or_wrong_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--http", "--host", "0.0.0.0"]) == 2
    assert "--allow-host NAME" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)  # as with the SDK 1
    assert main(["mcp"]) == 2
    assert 'pip install "selfcorrect-rag[mcp]"' in capsys.readouterr().err


@pytest.mark.parametrize("mode", ERAS)
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
async def test_a_search_waits_for_the_clients_user(
    tool: str, reply: Any, sent: str | None, mode: str
) -> None:
    web, saver = PagesWebSearch(), InMemorySaver()
    build, kind = APPROVALS[tool]
    graph = build(web, settings=kind(approve_search=True), checkpointer=saver)
    heard: list[str] = []

    async def hear(context: Any, params: Any) -> Any:
        assert not web.queries
        heard.append(params.message)
        return reply

    made = mcp_server.server({tool: graph}.__getitem__)
    async with Client(made, mode=mode, elicitation_callback=hear if reply else None) as client:
        asked = client.call_tool(tool, {"question": "Who wrote Emma?"})
        if mode == "auto" and isinstance(reply, ErrorData):  # the client makes no second call
            with pytest.raises(MCPError, match="nobody to ask"):
                await asked
            assert not web.queries
            return
        told = structured(await asked)
    assert [query for query, _ in web.queries] == ([] if sent is None else [sent])
    assert heard == (["Search pages for: wrote, Emma"] if reply else [])
    notes = told["notes"]
    assert any("the search was not approved" in note for note in notes) is (sent is None)
    assert not saver.storage, "nothing of a call is left behind"


async def test_calls_that_nobody_goes_on_with_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "MOST_PAUSED", 2)
    web, saver = PagesWebSearch(), InMemorySaver()
    build, kind = APPROVALS["crag"]
    graph = build(web, settings=kind(approve_search=True), checkpointer=saver)
    given: Any = ("crag", {"question": "Who wrote Emma?"})
    yes = {"search": ElicitResult(action="accept", content={"approve": True})}

    async def ask(context: Any, params: Any) -> Any:
        raise AssertionError("this test answers by itself")

    made = mcp_server.server({"crag": graph}.__getitem__)
    async with Client(made, elicitation_callback=ask) as client:
        waiting = []
        for _ in range(3):
            paused = await client.session.call_tool(*given, allow_input_required=True)
            assert isinstance(paused, InputRequiredResult)
            waiting.append({"request_state": paused.request_state, "input_responses": yes})
        assert len(saver.storage) == 2
        late = await client.call_tool(*given, **waiting[0])
        assert late.is_error
        assert "waited for too long" in late.content[0].text  # type: ignore[union-attr]
        assert not web.queries
        structured(await client.call_tool(*given, **waiting[2]))
    assert len(web.queries) == 1


@pytest.mark.parametrize("approve", [True, False])
def test_the_option_reaches_the_graphs(approve: bool) -> None:
    web = PagesWebSearch()
    parts = Parts(ServingConfig())
    parts.retriever = lambda query: [document("Vague.")]
    parts.evaluator, parts.web = WordEvaluator(), web
    parts.llm = parts.rationale_llm = reflecting()
    thread: Any = {"configurable": {"thread_id": "1"}}
    opened = mcp_server.opening(parts, approve=approve)
    for name in ("crag", "self_crag"):
        web.queries.clear()
        opened(name).invoke({"question": "Who?"}, thread, context={"passages": 1})
        assert bool(web.queries) is not approve


async def test_graphs_are_opened_once_and_when_a_tool_is_called() -> None:
    opened: list[str] = []

    def slowly(name: str, settings: object) -> Any:
        opened.append(name)
        time.sleep(0.2)
        return APPROVALS["crag"][0](PagesWebSearch())

    parts: Any = SimpleNamespace(graph=slowly)
    async with Client(mcp_server.server(mcp_server.opening(parts))) as client:
        await client.list_tools()
        assert not opened
        calls = [client.call_tool("crag", {"question": "Who wrote Emma?"}) for _ in range(3)]
        for result in await asyncio.gather(*calls):
            structured(result)
    assert opened == ["crag"]


def test_null_is_what_is_not_there() -> None:
    cited = {"number": 1, "title": "", "source": "javascript:", "text": "t", "quote": ""}
    result = {"answer": "A", "cited_answer": "", "citations": [cited], "notes": []}
    told = mcp_server._result(result, mcp_server.Sources()).structured_content
    assert told is not None
    nulls = [told["cited_answer"], told["action"], told["rationale"]]
    nulls += [told["citations"][0][key] for key in ("title", "source", "url", "quote")]
    assert nulls == [None] * 7


def test_the_oldest_sources_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "MOST_SOURCES", 2)
    sources = mcp_server.Sources()

    def cite(text: str) -> str:
        uri = sources.add({"number": 1, "title": "", "source": "", "text": text}).uri
        return uri.removeprefix(mcp_server.SOURCE.format(digest=""))

    first, second, again, third = map(cite, ("one", "two", "one", "three"))
    assert first == again
    assert (sources.read(first), sources.read(third)) == ("one", "three")
    with pytest.raises(mcp_server.ResourceNotFoundError):
        sources.read(second)


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
        mcp_server.known_hosts("0.0.0.0", [])
    known = mcp_server.known_hosts("0.0.0.0", ["rag.example"])
    assert known.enable_dns_rebinding_protection
    assert "rag.example" in known.allowed_hosts
