"""Every graph on the real LangGraph server that ``selfcorrect-rag studio`` starts."""

import asyncio
import json
import re
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from selfcorrect_rag.settings import GRAPHS
from tests.serving.conftest import ROOT, START, TOWNS, started
from tests.snippets import BLOCK

pytest.importorskip("langgraph_api")
from langgraph_sdk import get_client, get_sync_client

pytestmark = pytest.mark.slow
QUESTION = "Who founded Tarnholm?"
TURN = {"messages": [{"role": "user", "content": QUESTION}]}
SEARCHING = {"upper": 1.0, "lower": 1.0}
"""Thresholds under which every retrieval is incorrect, so that the web is searched."""


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[Any, str, Path]]:
    given = ["--no-browser", "--index", "notes-index", "--web", "pages-index"]
    with started(folder, "studio", *given) as (url, log):
        yield get_sync_client(url=url), url, log


def new_thread(client: Any) -> str:
    return str(client.threads.create()["thread_id"])


@pytest.mark.parametrize("graph", [*GRAPHS, "chat_agent"])
def test_schemas_show_every_setting(served: Any, graph: str) -> None:
    client, _, _ = served
    (assistant,) = client.assistants.search(graph_id=graph, limit=1)
    schemas = client.assistants.get_schemas(assistant["assistant_id"])
    settings = schemas["context_schema"]["properties"]
    kind = GRAPHS["self_crag" if graph == "chat_agent" else graph]
    assert set(settings) == set(kind.model_fields)
    assert all(setting["description"] for setting in settings.values())
    assert "messages" in schemas["input_schema"]["properties"]
    nodes = {n["id"] for n in client.assistants.get_graph(assistant["assistant_id"])["nodes"]}
    if graph != "chat_agent":
        named = {n for setting in settings.values() for n in setting.get("langgraph_nodes", ())}
        assert named <= nodes


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_thread_streams_its_steps_and_its_reply(served: Any, graph: str) -> None:
    client, _, _ = served
    thread = new_thread(client)
    modes = ["custom", "messages-tuple"]
    seen = list(client.runs.stream(thread, graph, input=TURN, stream_mode=modes))
    events = [part.data["event"] for part in seen if part.event == "custom"]
    assert events[-1] == "answered"
    state = client.threads.get_state(thread)
    reply = state["values"]["messages"][-1]
    assert "Oskar Lind" in str(reply["content"])
    assert reply["id"] in {part.data[0]["id"] for part in seen if part.event == "messages"}
    again = {"messages": [{"role": "user", "content": "Who founded Vinter?"}]}
    second = client.runs.wait(thread, graph, input=again)
    assert [message["type"] for message in second["messages"]] == ["human", "ai"] * 2


def test_the_agent_cites_what_its_tool_found(served: Any) -> None:
    client, _, _ = served
    result = client.runs.wait(None, "chat_agent", input=TURN, context={"passages": 2})
    _, called, answer, reply = result["messages"]
    assert called["tool_calls"][0]["args"] == {"question": QUESTION}
    assert len(answer["artifact"]["passages"]) == 2
    (block,) = reply["content"]
    assert {note["title"] for note in block["annotations"]} == {"Tarnholm"}


def call(address: str, method: str, params: Any) -> Any:
    """The result of a JSON-RPC call."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"A2A-Version": "1.0", "Accept": "application/json"}
    return httpx.post(address, json=body, headers=headers, timeout=START).json()["result"]


def test_every_graph_is_a_tool_of_mcp(served: Any) -> None:
    address = f"{served[1]}/mcp"
    tools = {tool["name"]: tool for tool in call(address, "tools/list", {})["tools"]}
    assert set(tools) == {*GRAPHS, "chat_agent"}
    for name, tool in tools.items():
        assert list(tool["inputSchema"]["properties"]) == ["question"]
        assert len(json.dumps(tool)) < 1_000
        given = {"name": name, "arguments": {"question": QUESTION}}
        (content,) = call(address, "tools/call", given)["content"]
        (said,) = literal_eval(content["text"]).values()
        assert "Oskar Lind" in said
        assert re.search(r"Sources:\n\[\d\] Tarnholm \(.*Tarnholm\.md\)", said)


@pytest.mark.parametrize("graph", [*GRAPHS, "chat_agent"])
def test_every_graph_is_an_agent_of_a2a(served: Any, graph: str) -> None:
    client, url, _ = served
    (assistant,) = client.assistants.search(graph_id=graph, limit=1)
    named = {"assistant_id": assistant["assistant_id"]}
    card = httpx.get(f"{url}/.well-known/agent-card.json", params=named).json()
    assert card["description"] == assistant["description"]
    context: dict[str, str] = {}
    for town in TOWNS[:2]:
        message = {"messageId": town, "role": "ROLE_USER", **context}
        message["parts"] = [{"text": f"Who founded {town}?"}]
        task = call(card["url"], "SendMessage", {"message": message})["task"]
        (part,) = task["artifacts"][0]["parts"]
        assert "Oskar Lind" in part["text"]
        assert re.search(rf"Sources:\n\[\d\] {town} \(.*{town}\.md\)", part["text"])
        context = {"contextId": task["contextId"]}
    assert [said["role"] for said in task["history"]].count("ROLE_USER") == 2


def test_the_pages_python_runs(served: Any) -> None:
    page = (ROOT / "docs" / "studio.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        code = block.replace("http://127.0.0.1:2024", served[1])
        exec(compile(code, "studio.md", "exec"), names)
    assert names["again"]["passages"][0]["metadata"]["title"] == "Novels"
    assert names["refused"]["web_results"] == []
    assert "Sources:" in names["said"]
    assert "Sources:" in names["reply"]


def test_a_setting_out_of_bounds_is_told(served: Any) -> None:
    client, _, _ = served
    with pytest.raises(Exception, match="passages"):
        client.runs.wait(None, "crag", input=TURN, context={"passages": 0})


def test_a_fork_runs_with_other_thresholds(served: Any) -> None:
    client, _, _ = served
    thread = new_thread(client)
    context = {"upper": 0.9999, "lower": -0.9999}
    first = client.runs.wait(thread, "crag", input={"question": QUESTION}, context=context)
    history = client.threads.get_history(thread, limit=50)
    point = next(s["checkpoint"] for s in history if s["next"] == ["grade_documents"])
    # A turn keeps the settings that it began with: they are in its state.
    values = {"settings": SEARCHING}
    fork = client.threads.update_state(thread, values, checkpoint=point, as_node="retrieve")
    second = client.runs.wait(thread, "crag", input=None, checkpoint=fork["checkpoint"])
    assert (first["action"], second["action"]) == ("ambiguous", "incorrect")
    assert second["grades"] == first["grades"]


@pytest.mark.parametrize(
    ("reply", "query"), [(True, ""), (False, None), ("town Vinter", "town Vinter")], ids=str
)
def test_a_search_waits_for_approval(served: Any, reply: Any, query: str | None) -> None:
    client, _, _ = served
    thread = new_thread(client)
    context = {**SEARCHING, "approve_search": True}
    paused = client.runs.wait(thread, "crag", input=TURN, context=context)
    asked = paused["__interrupt__"][0]["value"]
    assert client.threads.get(thread)["status"] == "interrupted"
    result = client.runs.wait(thread, "crag", command={"resume": reply}, context=context)
    assert bool(result["web_results"]) == (query is not None)
    assert result["web_query"] == (query or asked["query"])


async def test_parallel_runs_do_not_mix(served: Any) -> None:
    client = get_client(url=served[1])

    async def run(town: str) -> Any:
        text = f"{town} was founded by {town} Berg."
        documents = [{"page_content": text, "metadata": {"title": town}}]
        given = {"question": f"Who founded {town}?", "documents": documents}
        return await client.runs.wait(
            None, "crag", input=given, context={"upper": -1.0, "lower": -1.0}
        )

    towns = TOWNS * 3
    for town, result in zip(towns, await asyncio.gather(*map(run, towns)), strict=True):
        assert [p["metadata"]["title"] for p in result["passages"]] == [town]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://smith.langchain.com"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://smith.langchain.com.evil.example"}, 403),
        ({"Host": "evil.example"}, 400),
    ],
)
def test_others_may_not_call(served: Any, headers: dict[str, str], status: int) -> None:
    answer = httpx.post(f"{served[1]}/threads/search", json={}, headers=headers)
    assert answer.status_code == status


def test_nothing_blocks_and_nothing_is_left_in_the_users_folder(served: Any, folder: Path) -> None:
    log = served[2].read_text(encoding="utf-8")
    assert "BlockingError" not in log
    assert "Blocking call" not in log
    assert not (folder / ".langgraph_api").exists()
    private = folder / "state" / "selfcorrect-rag" / "studio"
    assert private.stat().st_mode & 0o077 == 0
    assert (private / "graphs" / "crag.py").exists()
