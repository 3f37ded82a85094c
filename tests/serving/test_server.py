"""Every graph on the real server, through its clients: schemas, settings, streams, threads."""

import asyncio
import socket
from contextlib import nullcontext
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import httpx
import pytest
from langchain_core.messages import AIMessageChunk
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from selfcorrect_rag import CRAGSettings, InstructRAGSettings, SelfCRAGSettings, SelfRAGSettings
from selfcorrect_rag.cli import main
from selfcorrect_rag.serving.hosts import known_names
from tests.serving.conftest import TOWNS, Server

SETTINGS: dict[str, Any] = {
    "self_rag": SelfRAGSettings,
    "crag": CRAGSettings,
    "self_crag": SelfCRAGSettings,
    "instruct_rag": InstructRAGSettings,
    "chat_agent": SelfCRAGSettings,
}
GRAPHS = list(SETTINGS)
QUESTION = "Who founded Tarnholm?"
TURN = {"messages": [{"role": "user", "content": QUESTION}]}
SEARCHING = {"upper": 1.0, "lower": 1.0}
"""Thresholds under which every retrieval is incorrect, so that the web is searched."""


def new_thread(server: Server) -> str:
    thread: str = server.client.threads.create()["thread_id"]
    return thread


def parts(server: Server, thread: str, graph: str, mode: Any, given: Any, **options: Any) -> Any:
    stream = server.client.runs.stream(thread, graph, input=given, stream_mode=mode, **options)
    seen = [(part.event, part.data) for part in stream]
    assert "error" not in dict(seen), dict(seen)["error"]
    return seen


@pytest.mark.parametrize("graph", GRAPHS)
def test_schemas_show_every_knob(server: Server, graph: str) -> None:
    (assistant,) = server.client.assistants.search(graph_id=graph, limit=1)
    assert len(assistant["description"]) > 20
    schemas = server.client.assistants.get_schemas(assistant["assistant_id"])
    knobs = schemas["context_schema"]["properties"]
    assert knobs == SETTINGS[graph].model_json_schema()["properties"]
    assert all(knob["x_oap_ui_config"]["description"] for knob in knobs.values())
    inputs = schemas["input_schema"]["properties"]
    assert "messages" in inputs
    if graph != "chat_agent":  # whose input is LangChain's
        assert all(field["description"] for field in inputs.values())
    if graph != "chat_agent":
        assert {"question", "documents"} <= set(schemas["input_schema"]["properties"])
        assert {"passages", "citations", "notes"} <= set(schemas["output_schema"]["properties"])
    nodes = {
        n["id"] for n in server.client.assistants.get_graph(assistant["assistant_id"])["nodes"]
    }
    if graph != "chat_agent":
        assert {n for knob in knobs.values() for n in knob.get("langgraph_nodes", ())} <= nodes


@pytest.mark.parametrize("graph", GRAPHS)
def test_chat_mode_keeps_a_thread(server: Server, graph: str) -> None:
    thread = new_thread(server)
    first = server.client.runs.wait(thread, graph, input=TURN)
    again = {"messages": [{"role": "user", "content": "And who founded Vinter?"}]}
    second = server.client.runs.wait(thread, graph, input=again)
    kinds = [message["type"] for message in second["messages"]]
    assert kinds[0] == "human"
    assert kinds[-1] == "ai"
    assert kinds.count("human") == 2
    assert second["messages"][: len(first["messages"])] == first["messages"]
    state = server.client.threads.get_state(thread)
    assert state["next"] == []
    assert state["values"]["messages"] == second["messages"]
    assert len(server.client.threads.get_history(thread, limit=50)) > 6


STEPS = {
    "self_rag": {"retrieve": "passages", "generate_and_critique": "candidates"},
    "crag": {"retrieve": "passages", "grade_documents": "action", "web_search": "web_results"},
    "self_crag": {
        "grade_documents": "grades",
        "recompose_knowledge": "knowledge",
        "generate_and_critique": "candidates",
        "write_answer": "score",
    },
    "instruct_rag": {"retrieve": "passages", "read_rationale": "useful_documents"},
}


@pytest.mark.parametrize("graph", STEPS)
def test_streams_show_each_step(server: Server, graph: str) -> None:
    context = {"mode": "always"} if graph.startswith("self") else {}
    context |= SEARCHING if "crag" in graph else {}
    given = {"question": QUESTION}
    seen = parts(server, new_thread(server), graph, ["updates", "custom"], given, context=context)
    updates = {}
    for event, data in seen:
        if event == "updates":
            updates |= data
    for node, key in STEPS[graph].items():
        assert updates[node][key] not in (None, [])
    events = [data["event"] for event, data in seen if event == "custom"]
    assert events[-1] == "answered"
    if graph.startswith("self"):
        candidate = updates["generate_and_critique"]["candidates"][0]
        assert {"ISREL", "ISSUP", "ISUSE"} == set(candidate["critique"])
        assert "candidate_scored" in events


def streamed_text(chunks: list[Any]) -> str:
    """The text of chunks whose contents are strings or blocks."""
    return "".join(AIMessageChunk(chunk["content"]).text for chunk in chunks)


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
def test_a_chat_streams_the_reply_alone(server: Server, graph: str) -> None:
    seen = parts(server, new_thread(server), graph, "messages-tuple", {"question": QUESTION})
    plain = [data[0] for event, data in seen if event == "messages"]
    thread = new_thread(server)
    seen = parts(server, thread, graph, "messages-tuple", TURN)
    chunks = [data[0] for event, data in seen if event == "messages"]
    reply = server.client.threads.get_state(thread)["values"]["messages"][-1]
    (block,) = reply["content"]
    assert streamed_text(chunks) == block["text"] != ""
    assert {chunk["id"] for chunk in chunks} == {reply["id"]}
    assert streamed_text(plain) == block["text"]
    assert len({chunk["id"] for chunk in plain}) == 1


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
def test_version_3_has_the_events_and_the_reply(server: Server, graph: str) -> None:
    seen = parts(server, new_thread(server), graph, ["custom", "messages-tuple"], TURN)
    events = [data["event"] for event, data in seen if event == "custom"]
    text = streamed_text([data[0] for event, data in seen if event == "messages"])
    with server.client.threads.stream(assistant_id=graph) as thread:
        thread.run.start(input=TURN)
        told = list(thread.subscribe(["custom", "messages"]))
        reply = thread.output["messages"][-1]
    data: dict[str, list[Any]] = {"custom": [], "messages": []}
    for part in told:
        data[part["method"]].append(part["params"]["data"])
    assert [event["event"] for event in data["custom"]] == events
    assert "".join(event["delta"]["text"] for event in data["messages"] if "delta" in event) == text
    starts = [event for event in data["messages"] if event["event"] == "message-start"]
    assert [start["id"] for start in starts] == [reply["id"]]


def test_the_agent_calls_its_tool_and_streams_its_own_words(server: Server) -> None:
    thread = new_thread(server)
    seen = parts(server, thread, "chat_agent", "messages-tuple", TURN)
    nodes = {data[1]["langgraph_node"] for event, data in seen if event == "messages"}
    assert nodes == {"model", "tools"}
    _, called, answer, reply = server.client.threads.get_state(thread)["values"]["messages"]
    assert called["tool_calls"][0]["args"] == {"question": QUESTION}
    assert answer["artifact"]["action"] in ("correct", "incorrect", "ambiguous")
    assert any(candidate["chosen"] for candidate in answer["artifact"]["candidates"])
    (block,) = reply["content"]
    assert answer["content"] in block["text"]
    assert "Sources:" in block["text"]
    cited = answer["artifact"]["citations"]
    assert {note["title"] for note in block["annotations"]} == {c["title"] for c in cited} != set()


def test_the_agent_asks_self_crag_for_a_follow_up(server: Server) -> None:
    thread = new_thread(server)
    server.client.runs.wait(thread, "chat_agent", input=TURN)
    further = {"messages": [{"role": "user", "content": "And Vinter?"}]}
    messages = server.client.runs.wait(thread, "chat_agent", input=further)["messages"]
    _, answer, reply = messages[-3:]
    assert answer["artifact"]["question"] == "Who founded Vinter?"
    assert any(candidate["chosen"] for candidate in answer["artifact"]["candidates"])
    (block,) = reply["content"]
    assert {note["title"] for note in block["annotations"]} == {"Vinter"}


def test_deleting_a_thread_deletes_its_checkpoints(server: Server) -> None:
    thread = new_thread(server)
    server.client.runs.wait(thread, "crag", input=TURN)
    assert server.client.threads.get_history(thread)
    server.client.threads.delete(thread)
    server.client.threads.create(thread_id=thread)
    assert server.client.threads.get_history(thread) == []


def test_an_assistants_settings_hold(server: Server) -> None:
    made = server.client.assistants.create(
        "self_rag", context={"passages": 1, "mode": "always"}, name="one passage"
    )
    result = server.client.runs.wait(None, made["assistant_id"], input={"question": QUESTION})
    assert len(result["passages"]) == 1
    answer = server.client.runs.wait(
        None, "chat_agent", input=TURN, context={**SEARCHING, "passages": 2}
    )["messages"][2]
    assert answer["artifact"]["action"] == "incorrect"
    assert len(answer["artifact"]["passages"]) == 2


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_setting_out_of_bounds_is_told(server: Server, graph: str) -> None:
    with pytest.raises(Exception, match=r"BadSettings.*passages: Input should be"):
        server.client.runs.wait(None, graph, input=TURN, context={"passages": 0})


def test_the_server_drops_what_is_no_knob(server: Server) -> None:
    given = {"passages": 1, "pasages": 2}
    result = server.client.runs.wait(None, "crag", input={"question": QUESTION}, context=given)
    assert len(result["passages"]) == 1


def before(server: Server, thread: str, node: str) -> dict[str, Any]:
    """The checkpoint of a thread at which ``node`` comes next."""
    history = server.client.threads.get_history(thread, limit=50)
    return next(state["checkpoint"] for state in history if state["next"] == [node])


def test_a_fork_with_other_thresholds(server: Server) -> None:
    thread = new_thread(server)
    context = {"upper": 0.9999, "lower": -0.9999}
    given = {"question": QUESTION}
    first = server.client.runs.wait(thread, "crag", input=given, context=context)
    assert first["action"] == "ambiguous"
    fork = before(server, thread, "grade_documents")
    second = server.client.runs.wait(thread, "crag", input=None, checkpoint=fork, context=SEARCHING)
    assert second["action"] == "incorrect"
    assert second["grades"] == first["grades"]
    assert first["strips"]
    assert not second["strips"]


NODES = {
    "self_rag": "generate_and_critique",
    "crag": "grade_documents",
    "self_crag": "grade_documents",
    "instruct_rag": "write_rationale",
}


@pytest.mark.parametrize("graph", NODES)
def test_a_fork_with_edited_documents(server: Server, graph: str) -> None:
    thread = new_thread(server)
    context = {"mode": "always"} if graph.startswith("self") else {}
    server.client.runs.wait(thread, graph, input={"question": QUESTION}, context=context)
    point = before(server, thread, NODES[graph])
    text = "Tarnholm was founded by Ada Berg."
    edited = [{"page_content": text, "metadata": {"title": "Tarnholm"}}]
    values: dict[str, Any] = {"passages": edited}
    if graph == "self_rag":
        beams = server.client.threads.get_state(thread, point)["values"]["beams"]
        values["beams"] = [{**beam, "retrieved": [0]} for beam in beams]
    made = server.client.threads.update_state(thread, values, checkpoint=point, as_node="retrieve")
    result = server.client.runs.wait(
        thread, graph, input=None, checkpoint=made["checkpoint"], context=context
    )
    assert [passage["page_content"] for passage in result["passages"]] == [text]
    assert result["answer"]
    assert all("Lind" not in citation["text"] for citation in result["citations"])


@pytest.mark.parametrize("graph", ["crag", "self_crag", "chat_agent"])
@pytest.mark.parametrize("again", ["the same context", "none", "another"])
@pytest.mark.parametrize(
    ("answer", "query"),
    [("yes", ""), ("no", None), ({"query": "Vinter"}, "Vinter")],
    ids=str,
)
def test_a_search_waits_for_approval(
    server: Server, graph: str, again: str, answer: Any, query: str | None
) -> None:
    thread = new_thread(server)
    context = {**SEARCHING, "approve_search": True}
    context |= {"mode": "always"} if graph == "self_crag" else {}
    paused = server.client.runs.wait(thread, graph, input=TURN, context=context)
    value = paused["__interrupt__"][0]["value"]
    assert value["ask"] == "search the web?"
    assert set(value["choices"]) == {"yes", "no", "query"}
    assert server.client.threads.get(thread)["status"] == "interrupted"
    contexts = {"the same context": {"context": context}, "none": {}}
    further = contexts.get(again, {"context": {"approve_search": False}})
    done = server.client.runs.wait(thread, graph, command={"resume": answer}, **further)
    result = done["messages"][-2]["artifact"] if graph == "chat_agent" else done
    assert bool(result["web_results"]) == (query is not None)
    assert ("not approved" in result["web_failure"]) == (query is None)
    assert result["web_query"] == (query or value["query"])


@pytest.mark.parametrize("graph", ["crag", "self_crag"])
def test_a_turn_answers_its_own_question_after_one_that_was_left(
    server: Server, graph: str
) -> None:
    thread = new_thread(server)
    context = {**SEARCHING, "approve_search": True}
    context |= {"mode": "always"} if graph == "self_crag" else {}
    assert "__interrupt__" in server.client.runs.wait(thread, graph, input=TURN, context=context)
    second = server.client.runs.wait(thread, graph, input={"question": "What is Vinter?"})
    assert second["original_question"] == "What is Vinter?"
    third = server.client.runs.wait(thread, graph, input=TURN)
    assert third["original_question"] == QUESTION
    assert third["messages"][-1]["type"] == "ai"


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "nothing is asked: give"),
        ({"question": 3}, "question is no text but int"),
        ({"qestion": QUESTION}, "the input has no 'qestion': it takes question, messages"),
    ],
    ids=str,
)
def test_an_input_that_asks_nothing_is_told(
    server: Server, graph: str, given: Any, reason: str
) -> None:
    thread = new_thread(server)
    server.client.runs.wait(thread, graph, input={"question": QUESTION})
    with pytest.raises(Exception, match=reason):
        server.client.runs.wait(thread, graph, input=given)


async def test_parallel_runs_do_not_mix(server: Server) -> None:
    client = get_client(url=server.url)

    async def run(town: str) -> Any:
        text = f"{town} was founded by {town} Berg."
        given = {
            "question": f"Who founded {town}?",
            "documents": [{"page_content": text, "metadata": {"title": town}}],
        }
        graph = "self_rag" if town < "T" else "crag"
        return await client.runs.wait(None, graph, input=given)

    towns = TOWNS * 3
    for town, result in zip(towns, await asyncio.gather(*map(run, towns)), strict=True):
        assert result["question"] == f"Who founded {town}?"
        assert [p["metadata"]["title"] for p in result["passages"]] == [town]


class Parent(TypedDict):
    messages: Annotated[list[Any], add_messages]


def test_a_remote_graph_as_a_subgraph(server: Server) -> None:
    graph = StateGraph(Parent)
    graph.add_node("answer", RemoteGraph("crag", url=server.url))
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    result = graph.compile().invoke(TURN)  # type: ignore[arg-type]
    assert [message.type for message in result["messages"]] == ["human", "ai"]


def test_nothing_blocked_the_event_loop(server: Server) -> None:
    """The last test: the server's log of all the others."""
    assert "BlockingError" not in server.log
    assert "Blocking call" not in server.log
    assert "Failed to get" not in server.log
    assert "Slow graph load" not in server.log, "models are opened before the first run"
    assert "has no effect" not in server.log, "runs without a thread warned of durability"


ORIGINS = {
    "https://smith.langchain.com": 200,
    "http://localhost:3000": 200,
    "https://evil.example": 403,
    "https://smith.langchain.com.evil.example": 403,
    "null": 403,
}


@pytest.mark.parametrize(("origin", "status"), ORIGINS.items())
def test_pages_of_others_may_not_call(server: Server, origin: str, status: int) -> None:
    search = httpx.post(f"{server.url}/threads/search", json={}, headers={"Origin": origin})
    assert search.status_code == status
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert httpx.options(f"{server.url}/threads", headers=headers).status_code == status


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:2024", "127.0.0.1.evil.example", "["]
)
def test_a_name_that_points_here_is_refused(server: Server, host: str) -> None:
    for path in ("/threads/search", "/runs/wait"):
        answer = httpx.post(f"{server.url}{path}", json={}, headers={"Host": host})
        assert answer.status_code == 403
        assert "--allow-host" in answer.text
    assert httpx.get(f"{server.url}/info", headers={"Host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "is_let_in"),
    [
        ("localhost", "https://smith.langchain.com", True),
        ("localhost", None, True),
        ("evil.example", None, False),
        ("localhost", "https://evil.example", False),
    ],
)
def test_sockets_are_refused_alike(server: Server, host: str, origin: Any, is_let_in: bool) -> None:
    address = server.url.replace("http://", "ws://") + f"/threads/{uuid4()}/stream/events"
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as wire:
        # The connection goes to this machine, whatever the address is called.
        called = address.replace("127.0.0.1", host)
        refused = nullcontext() if is_let_in else pytest.raises(InvalidStatus)
        with refused, connect(called, sock=wire, origin=origin):
            pass


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--host", "0.0.0.0"], "--allow-host NAME"),
        (["--allow-host", "http://rag.example"], "without scheme and port"),
        (["--", "--host", "0.0.0.0"], "--host stands before --"),
        (["--", "--tunnel"], "name its address by --allow-host"),
    ],
)
def test_a_server_for_other_machines_needs_a_name(
    capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    assert main(["studio", *given]) == 2
    assert says in capsys.readouterr().err


def test_names_have_no_case() -> None:
    assert known_names("0.0.0.0", ["RAG.Example", "[::2]"])[-2:] == ["rag.example", "::2"]
    assert known_names("127.0.0.2", [])
