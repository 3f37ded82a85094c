"""What the page on tracing shows reaches a collector: LangSmith's protocol, or OpenTelemetry's."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PROGRAM = BLOCK.findall(SECTIONS["What a trace has"])[0]
STEPS = ["read_question", "retrieve", "grade_documents", "recompose_knowledge", "generate"]
INGEST = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "size_limit_bytes": 20_000_000,
    "scale_up_nthreads_limit": 1,
    "scale_up_qsize_trigger": 1000,
    "scale_down_nempty_trigger": 4,
}
"""How LangSmith's client is told to post: runs as JSON, many at a time."""
LOCAL = re.compile(r"https?://(localhost:\d+|cloud\.langfuse\.com)")


class Collector:
    """A loopback server that keeps what is posted to it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Mapping[str, str], bytes]] = []
        posted = self.posted

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # LangSmith's client asks for /info
                self._answer({"batch_ingest_config": INGEST})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                posted.append((self.path, dict(self.headers), body))
                self._answer({})

            def _answer(self, given: Any) -> None:
                body = json.dumps(given).encode() if given else b""
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[dict[str, Any]]:
        """OpenTelemetry's: name and attributes of each."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        found = []
        for path, _, body in self.posted:
            assert path.endswith("/v1/traces")
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    found += [_span(span) for span in scope.spans]
        return found

    def runs(self) -> list[dict[str, Any]]:
        """LangSmith's: each with what it began and ended with."""
        found: dict[str, dict[str, Any]] = {}
        for path, _, body in self.posted:
            assert path.endswith("/runs/batch")
            batch = json.loads(body)
            for run in [*(batch.get("post") or ()), *(batch.get("patch") or ())]:
                told = {key: value for key, value in run.items() if value is not None}
                found.setdefault(run["id"], {}).update(told)
        return list(found.values())


def _span(span: Any) -> dict[str, Any]:
    values = {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }
    return {"name": span.name, "id": span.span_id, "parent": span.parent_span_id, **values}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def trace(section: str, collector: Collector, folder: Path, **more: str) -> None:
    """Run the page's program with a section's variables and code, the address replaced."""
    text = LOCAL.sub(collector.url, SECTIONS[section])
    given = dict(re.findall(r"^export (\w+)=(\S+)$", text, re.MULTILINE))
    code = "\n".join([PROGRAM, *(BLOCK.findall(text) or ["crag.invoke(question, about)\n"])])
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LANG", "OTEL"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**kept, "OMP_NUM_THREADS": "1", **given, **more, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_langsmith(collector: Collector, tmp_path: Path) -> None:
    trace("LangSmith", collector, tmp_path, LANGSMITH_ENDPOINT=collector.url)
    runs = collector.runs()
    (root,) = [run for run in runs if not run.get("parent_run_id")]
    assert (root["name"], root["run_type"], root["tags"]) == ("one question", "chain", ["demo"])
    assert root["session_name"] == "selfcorrect-rag"
    assert root["extra"]["metadata"]["session_id"] == "thread-1"
    named = {run["name"]: run for run in runs}
    assert set(STEPS) <= named.keys()
    parents = {run["id"]: run["name"] for run in runs}
    graded = [run for run in runs if run["name"] == "ReaderEvaluator"]
    assert len(graded) == len([run for run in graded if len(run["outputs"]["scores"])]) >= 2
    for run in graded:
        assert run["run_type"] == "chain"
        assert len(run["inputs"]["passages"]) == len(run["outputs"]["scores"])
        assert run["inputs"]["question"] == "Where was Harper Lee born?"
    assert parents[graded[0]["parent_run_id"]] == "grade_documents"
    found = [run for run in runs if run["run_type"] == "retriever"]
    assert [parents[run["parent_run_id"]] for run in found] == ["retrieve", "web_search"]
    assert all(run["inputs"]["query"] and run["outputs"]["documents"] for run in found)
    models = [run for run in runs if run["run_type"] == "llm"]
    assert models
    for run in models:
        about = run["extra"]["metadata"]
        assert (about["ls_provider"], about["ls_model_type"]) == ("reader", "llm")
        assert about["ls_model_name"]
        assert about["usage_metadata"]["total_tokens"] > 0
    assert all(run.get("end_time") for run in runs)


def test_any_collector(collector: Collector, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    trace("Any OpenTelemetry collector", collector, tmp_path, LANGSMITH_ENDPOINT=collector.url)
    assert {headers["x-team"] for _, headers, _ in collector.posted} == {"search"}
    assert not any("x-api-key" in map(str.lower, headers) for _, headers, _ in collector.posted)
    spans = collector.spans()
    named = {span["name"]: span for span in spans}
    assert {*STEPS, "one question", "ReaderEvaluator", "ReaderLLM"} <= named.keys()
    assert [span["name"] for span in spans if not span["parent"]] == ["one question"]
    assert '"scores"' in named["ReaderEvaluator"]["gen_ai.completion"]
    model = named["ReaderLLM"]
    assert model["gen_ai.request.model"] == "reader"
    assert model["gen_ai.usage.input_tokens"] > 0
    kinds = [span["langsmith.span.kind"] for span in spans]
    assert kinds.count("retriever") == 2


def test_phoenix(collector: Collector, tmp_path: Path) -> None:
    pytest.importorskip("openinference.instrumentation.langchain")
    trace("Phoenix", collector, tmp_path)
    spans = collector.spans()
    named = {span["name"]: span for span in spans}
    assert {*STEPS, "one question", "ReaderEvaluator", "ReaderLLM"} <= named.keys()
    assert {span["session.id"] for span in spans} == {"thread-1"}
    found = [span for span in spans if span["openinference.span.kind"] == "RETRIEVER"]
    assert len(found) == 2
    assert all(span["retrieval.documents.0.document.content"] for span in found)
    model = named["ReaderLLM"]
    assert (model["openinference.span.kind"], model["llm.model_name"]) == ("LLM", "reader")
    assert model["llm.token_count.prompt"] > 0
    assert "scores" in named["ReaderEvaluator"]["output.value"]


def test_langfuse(collector: Collector, tmp_path: Path) -> None:
    pytest.importorskip("langfuse.langchain")
    trace("Langfuse", collector, tmp_path)
    spans = collector.spans()
    named = {span["name"]: span for span in spans}
    assert {*STEPS, "one question", "ReaderEvaluator", "ReaderLLM"} <= named.keys()
    kinds = [span["langfuse.observation.type"] for span in spans]
    assert kinds.count("retriever") == 2
    model = named["ReaderLLM"]
    assert model["langfuse.observation.type"] == "generation"
    assert model["langfuse.observation.model.name"] == "reader"
    assert json.loads(model["langfuse.observation.usage_details"])["input"] > 0
    assert "scores" in named["ReaderEvaluator"]["langfuse.observation.output"]
