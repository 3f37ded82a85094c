"""Faults of servers: a provider's, vLLM's, and the process that the graph runs in."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from langchain_openai import ChatOpenAI
from langgraph_sdk import get_sync_client

from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.prompts import prompt_of
from selfcorrect_rag.reflection import RETRIEVAL
from tests.durability.test_resume import ROOT, check, killed
from tests.faults import served_graph
from tests.faults.cases import Seen, fault
from tests.faults.graphs import QUESTION, Parts, hangs, seen
from tests.test_vllm_server import TOKENIZER, Loopback, completion, connect

CHATTING = ("crag", "instruct_rag")
REFLECTING = ("self_rag", "self_crag")
GRADED = ("crag", "self_crag")
ANSWER = {"role": "assistant", "content": "Austen."}
GOOD = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}


class Provider:
    """A server that speaks OpenAI's protocol, until a test breaks it."""

    def __init__(self) -> None:
        self.broken: Callable[[BaseHTTPRequestHandler], None] | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if provider.broken is not None:
                    provider.broken(self)
                elif body.get("stream"):
                    chunks = [_chunk("Austen."), _chunk(None), "[DONE]"]
                    send(self, 200, "".join(f"data: {c}\n\n" for c in chunks), "text/event-stream")
                else:
                    choice = {"index": 0, "message": ANSWER, "finish_reason": "stop"}
                    send(self, 200, json.dumps({**GOOD, "choices": [choice]}))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def mend(self) -> None:
        self.broken = None

    def model(self, **options: Any) -> ChatOpenAI:
        return ChatOpenAI(base_url=self.url, api_key="sk-none", model="m", max_retries=0, **options)


def _chunk(text: str | None) -> str:
    delta = {"content": text} if text else {}
    choice = {"index": 0, "delta": delta, "finish_reason": None if text else "stop"}
    return json.dumps({**GOOD, "object": "chat.completion.chunk", "choices": [choice]})


def send(handler: BaseHTTPRequestHandler, status: int, text: str, kind: str = "") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind or "application/json")
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text.encode())


def refuses(status: int, message: str, code: str = "") -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer as a provider that does not answer the question."""
    error = json.dumps({"error": {"message": message, "code": code, "type": "error"}})
    return lambda handler: send(handler, status, error)


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection in the middle of a stream."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(f"data: {_chunk('Aus')}\n\n".encode())


def provided(
    graph: str, form: str, broken: Callable[[Any], None], context: Any = None, **options: Any
) -> Seen:
    """A run whose model is behind a provider that does this."""
    provider = Provider()
    provider.broken = broken

    def behind(parts: Parts) -> None:
        parts.llm = provider.model(**options)
        parts.repairs.append(provider.mend)

    try:
        return seen(graph, form, behind, context)
    finally:
        provider.close()


@fault("Servers", "provider asks for patience (429)")
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, refuses(429, "Rate limit reached", "rate_limit_exceeded"))


@fault("Servers", "provider refuses the key (401)")
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, refuses(401, "Incorrect API key provided", "invalid_api_key"))


@fault("Servers", "prompt is longer than the provider's model reads (400)")
def _(graph: str, form: str) -> Seen:
    said = "This model's maximum context length is 10 tokens. Please shorten it."
    return provided(graph, form, refuses(400, said, "context_length_exceeded"))


@fault("Servers", "provider is broken (500)")
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, refuses(500, "The server had an error"))


@fault("Servers", "provider answers with a page in place of JSON", CHATTING)
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, lambda handler: send(handler, 200, "<html>", "text/html"))


@fault("Servers", "connection breaks off in the middle of a stream", CHATTING)
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, breaks_off, streaming=True)


@fault("Servers", "provider hangs")
def _(graph: str, form: str) -> Seen:
    return provided(graph, form, hangs, {"step_timeout": 1.0})


@fault("Servers", "provider of the chat model that grades asks for patience (429)", GRADED)
def _(graph: str, form: str) -> Seen:
    provider = Provider()
    provider.broken = refuses(429, "Rate limit reached", "rate_limit_exceeded")

    def behind(parts: Parts) -> None:
        parts.judge = ChatEvaluator(provider.model())
        parts.repairs.append(provider.mend)

    try:
        return seen(graph, form, behind)
    finally:
        provider.close()


class VLLM(Loopback):
    """A server that speaks vLLM's protocol and writes two segments; ``between`` comes between."""

    def __init__(self, between: Callable[["VLLM"], None]) -> None:
        super().__init__()
        self._between = between
        self.answers["/v1/completions"] = self._written

    def _written(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["max_tokens"] == 1:
            return 200, completion(body)
        goes_on = any(TOKENIZER.text(prompt).count("Austen") for prompt in body["prompt"])
        if not goes_on:
            threading.Timer(0.01, self._between, [self]).start()
            time.sleep(0.05)
        text = "In 1815." if goes_on else "Austen."
        ids = TOKENIZER.encode([prompt_of(text)])[0].ids
        if not goes_on:
            ids = [*ids, TOKENIZER.control_ids[RETRIEVAL]]
        steps = [
            {
                f"token_id:{i}": -0.1 if i == chosen else -9.0
                for i in {*body["logprob_token_ids"], chosen}
            }
            for chosen in ids
        ]
        choice = {
            "text": text,
            "finish_reason": "stop",
            "stop_reason": None if goes_on else ids[-1],
            "token_ids": ids,
            "logprobs": {"top_logprobs": steps},
        }
        return 200, {"choices": [{**choice, "index": i} for i in range(len(body["prompt"]))]}

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def start(self) -> None:
        handler = self.server.RequestHandlerClass
        self.server = ThreadingHTTPServer(("127.0.0.1", self.server.server_port), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def _on_vllm(graph: str, form: str, between: Callable[[VLLM], None]) -> Seen:
    server = VLLM(between)
    with connect(server, retry_seconds=1) as llm:

        def served(parts: Parts) -> None:
            parts.llm = llm

        try:
            return seen(graph, form, served)
        finally:
            server.stop()


@fault("Servers", "vLLM's server restarts between two segments", REFLECTING)
def _(graph: str, form: str) -> Seen:
    def restarts(server: VLLM) -> None:
        server.stop()
        time.sleep(0.2)
        server.start()

    return _on_vllm(graph, form, restarts)


@fault("Servers", "vLLM's server goes away between two segments", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return _on_vllm(graph, form, VLLM.stop)


@fault("Servers", "process of the run is killed (kill -9)")
def _(tmp_path: Path) -> Seen:
    # One of each graph, the shortest.
    runs = ["without evidence", "correct", "correct and again", "no retrieval"]
    lines = killed("sqlite", str(tmp_path / "threads"), tmp_path, runs)
    for line in lines:
        check(line)
    status = {status for line in lines for status in line["statuses"][:-1]}
    again = [what for line in lines for what in line["calls"][1] if what not in line["calls"][0]]
    return Seen(None, [signal.Signals(-s).name for s in status], "from its thread", None, again)


class Dev:
    """LangGraph's development server, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        graph = Path(served_graph.__file__)
        config = {"dependencies": ["."], "graphs": {"self_rag": f"{graph}:graph"}}
        (folder / "langgraph.json").write_text(json.dumps(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        self._folder, self.url = folder, f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--port", self._port],
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
        try:
            return bool(httpx.get(f"{self.url}/ok").is_success)
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@fault("Servers", "LangGraph's development server restarts between two segments")
def _(tmp_path: Path) -> Seen:
    server = Dev(tmp_path)
    client = get_sync_client(url=server.url)
    server.start()
    try:
        thread = client.threads.create()["thread_id"]
        client.runs.create(thread, "self_rag", input=QUESTION, durability="sync")

        def state() -> Any:
            return client.threads.get_state(thread)

        def writes_the_second() -> bool:
            now = state()
            return bool(now["next"] == ["generate_and_critique"] and now["values"]["depth"] == 1)

        wait_until(writes_the_second)
        server.stop()
        (tmp_path / served_graph.GO).touch()
        server.start()
        wait_until(lambda: not state()["next"])
        result = state()["values"]
        return Seen(None, [result["answer"]], "yes", result["stopped"])
    finally:
        server.stop()
