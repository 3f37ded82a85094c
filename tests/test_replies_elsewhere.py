"""Replies survive what comes after a run: other chat models, threads in files, JSON."""

import json
import threading
from collections.abc import Iterator
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import add
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, messages_from_dict, messages_to_dict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import TypeAdapter

from selfcorrect_rag import create_crag
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.test_replies import ASKED, CITED, GRAPHS, SAID, THREAD, build, cut, found, notes

ChatOpenAI = pytest.importorskip("langchain_openai").ChatOpenAI
responses = pytest.importorskip("openai.types.responses")
USAGE = {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}


def send(handler: BaseHTTPRequestHandler, status: int, text: str, kind: str = "") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind or "application/json")
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text.encode())


class Server:
    """OpenAI's Chat Completions and Responses, which answer the same to all, and keep requests."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.sent.append(body)
                if "input" in body:
                    send(self, 200, json.dumps(RESPONSE))
                elif body.get("stream"):
                    deltas = [choices(delta={"content": f"{word} "}) for word in SAID.split()]
                    usage = {**choices(), "choices": [], "usage": USAGE}
                    chunks = [*deltas, choices(finish_reason="stop"), usage]
                    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
                    send(self, 200, f"{lines}data: [DONE]\n\n", "text/event-stream")
                else:
                    message = {"role": "assistant", "content": SAID}
                    send(self, 200, json.dumps({**choices(message=message), "usage": USAGE}))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def model(self, **options: Any) -> Any:
        address = f"http://127.0.0.1:{self._server.server_port}/v1"
        return ChatOpenAI(base_url=address, api_key="sk-none", model="m", **options)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def choices(**choice: Any) -> dict[str, Any]:
    made = {"index": 0, "finish_reason": None, "delta": {}, **choice}
    return {"id": "1", "object": "chat", "created": 0, "model": "m-2026", "choices": [made]}


RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 0, "model": "m-2026",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": [{
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": SAID, "annotations": []}],
    }],
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_later_turn_sends_the_reply_to_another_chat_model(server: Server, graph: str) -> None:
    reply = build(graph).invoke(ASKED)["messages"][-1]
    turn = [*ASKED["messages"], reply, HumanMessage("And then?")]
    assert server.model().invoke(turn).text == SAID
    sent = server.sent[-1]["messages"][1]
    assert sent == {"role": "assistant", "content": [{"type": "text", "text": reply.text}]}
    assert server.model(use_responses_api=True).invoke(turn).text == SAID
    sent = server.sent[-1]["input"][1]
    (content,) = sent["content"]
    TypeAdapter(responses.ResponseOutputTextParam).validate_python(content)
    known = responses.response_output_text_param.AnnotationURLCitation.__annotations__
    for annotation in content["annotations"]:
        assert annotation.keys() == known.keys()
    assert len(content["annotations"]) == len(notes(reply))
    assert content["text"] == reply.text


async def test_a_chat_models_own_stream_ends_with_the_citations(server: Server) -> None:
    llm = server.model(stream_usage=True)
    graph = create_crag(llm, found, WordEvaluator(), PagesWebSearch())
    sync = [part[0] for part in graph.stream(ASKED, stream_mode="messages")]
    later = [part[0] async for part in graph.astream(ASKED, stream_mode="messages")]
    reply = graph.invoke(ASKED)["messages"][-1]
    assert reply.response_metadata["model_name"] == "m-2026"
    for chunks in (sync, later):
        whole: Any = reduce(add, chunks)
        assert whole.text.strip() == reply.text
        assert chunks[-1].content[0]["annotations"] == notes(reply)
        assert whole.usage_metadata["total_tokens"] == reply.usage_metadata["total_tokens"] == 35
        assert whole.response_metadata["model_name"] == "m-2026"


@pytest.mark.parametrize("graph", GRAPHS[:-1])
async def test_a_thread_in_a_file_reads_back(graph: str, tmp_path: Path) -> None:
    path = str(tmp_path / "threads.db")
    with SqliteSaver.from_conn_string(path) as saver:
        reply = build(graph, checkpointer=saver).invoke(ASKED, THREAD)["messages"][-1]
    with SqliteSaver.from_conn_string(path) as saver:
        kept = build(graph, checkpointer=saver).get_state(THREAD).values["messages"][-1]
    assert kept == reply
    assert cut(kept) == CITED[graph]
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        runnable = build(graph, checkpointer=saver)
        turn: Any = {"messages": [HumanMessage("And then?")]}
        messages = (await runnable.ainvoke(turn, THREAD))["messages"]
    assert (messages[1], len(messages)) == (reply, 4)


@pytest.mark.parametrize("graph", GRAPHS)
def test_json_reads_back(graph: str) -> None:
    reply = build(graph).invoke(ASKED)["messages"][-1]
    (read,) = messages_from_dict(json.loads(json.dumps(messages_to_dict([reply]))))
    assert read == reply
    assert cut(read) == CITED[graph]
