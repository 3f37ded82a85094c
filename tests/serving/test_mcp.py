"""The MCP server with real clients, over stdio and streamable HTTP, on the reader."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from selfcorrect_rag import CRAGSettings, create_crag
from tests.crag_runs import PagesSearch, WordEvaluator, document
from tests.serving.conftest import ROOT, environment, started

pytest.importorskip("mcp.server.mcpserver")
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from mcp import Client, StdioServerParameters

from selfcorrect_rag.serving import mcp_server

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").split("\n## MCP\n")[1]
QUESTION = "Who founded Tarnholm?"


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    given = ["--http", "--index", "notes-index", "--allow-host", "rag.example"]
    with started(folder, "mcp", *given) as (address, _):
        yield f"{address}/mcp"


@pytest.mark.slow
async def test_the_page_names_every_input(url: str) -> None:
    async with Client(url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"self_rag", "crag", "self_crag", "instruct_rag"}
    for tool in tools.values():
        assert tool.input_schema["required"] == ["question"]
        for key in tool.input_schema["properties"]:
            assert f"`{key}`" in PAGE


@pytest.mark.slow
async def test_every_tool_answers_with_citations_and_progress(url: str) -> None:
    async with Client(url) as client:
        for tool in ("self_rag", "crag", "self_crag", "instruct_rag"):
            heard: list[float] = []

            async def hear(progress: float, *rest: object, heard: Any = heard) -> None:
                heard.append(progress)

            given = {"question": QUESTION, "passages": 2}
            result = await client.call_tool(tool, given, progress_callback=hear)
            assert not result.is_error, result.content
            told = result.structured_content or {}
            assert all(f"`{key}`" in PAGE for key in told)
            assert "Oskar Lind" in told["answer"]
            for cited in told["citations"]:
                (content,) = (await client.read_resource(cited["uri"])).contents
                assert content.text == cited["text"]  # type: ignore[union-attr]
            assert told["citations"]
            assert heard == list(range(len(heard)))
            assert len(heard) > 2


@pytest.mark.slow
async def test_errors_can_be_read(url: str) -> None:
    mistakes = {"question": {"question": "  "}, "than or equal to 1": {"passages": 0}}
    async with Client(url) as client:
        for reason, given in mistakes.items():
            result = await client.call_tool("self_rag", {"question": QUESTION, **given})
            assert result.is_error
            assert reason in result.content[0].text  # type: ignore[union-attr]
            assert "Traceback" not in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])  # the protocol of 2026-07-28; `initialize`
async def test_it_starts_before_its_index_is_opened(mode: str, folder: Path) -> None:
    config = json.loads(PAGE.split("```json\n")[1].split("```")[0])
    arguments = config["mcpServers"]["selfcorrect-rag"]["args"]
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "selfcorrect_rag.cli.main", *arguments, "--index", str(folder / "none")],
        env=environment(folder),
    )
    async with Client(parameters, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 4
        result = await client.call_tool("crag", {"question": QUESTION})
    assert result.is_error
    assert "none" in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_pages_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    command = f'command={sys.executable!r}, args=["-m", "selfcorrect_rag.cli.main", "mcp"]'
    block = block.replace('command="selfcorrect-rag", args=["mcp"]', command)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", environment(folder)["PYTHONPATH"])
    names: dict[str, Any] = {}
    exec(compile(block, "serving.md", "exec"), names)
    assert "Fleming" in names["cited_answer"]
    assert names["sources"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "rag.example", "Origin": "https://rag.example"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
def test_only_known_names_may_call(url: str, headers: dict[str, str], status: int) -> None:
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    params = {"protocolVersion": "2025-06-18", **client}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accepted = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(url, json=hello, headers={**accepted, **headers}).status_code == status


async def test_a_search_that_needs_approval_is_not_made() -> None:
    web, opened = PagesSearch(), list[str]()
    llm = FakeListChatModel(responses=["Jane Austen."] * 9)
    given: Any = {"settings": CRAGSettings(approve_search=True)}
    careful = create_crag(llm, lambda query: [document("Vague.")], WordEvaluator(), web, **given)

    def opening(name: str) -> Any:
        opened.append(name)
        return careful

    async with Client(mcp_server.server(opening)) as client:
        await client.list_tools()
        assert not opened
        result = await client.call_tool("crag", {"question": "Who wrote Emma?"})
    assert result.is_error
    assert "checkpointer" in result.content[0].text  # type: ignore[union-attr]
    assert (opened, web.queries) == (["crag"], [])


def test_sources_are_bounded_and_safe_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "MAX_SOURCES", 2)
    texts: dict[str, str] = {}

    def cite(text: str) -> str:
        citation = {"number": 1, "title": "", "source": "javascript:", "text": text, "quote": ""}
        source = mcp_server._source(citation, texts)
        assert {source[key] for key in ("title", "source", "url", "quote")} == {None}
        return str(source["uri"]).removeprefix(mcp_server.SOURCE.format(digest=""))

    first, second, again, third = map(cite, ("one", "two", "one", "three"))
    assert first == again != second
    assert texts == {first: "one", third: "three"}
