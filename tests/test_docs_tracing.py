"""The variables in docs/serving.md send a run to LangSmith, or to an OpenTelemetry collector."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.snippets import ROOT

TRACING = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").split("\n## Tracing\n")[1]
LANGSMITH, OTEL, *_ = re.findall(r"```bash\n(.*?)```", TRACING, re.DOTALL)
PROGRAM = """
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.langchain import wait_for_all_tracers
from selfcorrect_rag import create_crag
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.scripted import echo

crag = create_crag(echo(), lambda _: [document("Vague.")], WordEvaluator(), PagesWebSearch())
crag.invoke({"question": "Who wrote Emma?"}, RunnableConfig(run_name="one question"))
wait_for_all_tracers()
"""
INGEST = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "size_limit_bytes": 20_000_000,
    "scale_up_nthreads_limit": 1,
    "scale_up_qsize_trigger": 1000,
    "scale_down_nempty_trigger": 4,
}
"""Makes LangSmith's client post runs as JSON, many at a time."""
STEPS = {"one question", "retrieve", "grade_documents", "web_search", "WordEvaluator"}
Posted = list[tuple[str, dict[str, str], bytes]]


@pytest.fixture
def collector() -> Iterator[tuple[str, Posted]]:
    """The address of a server on this machine, and what is posted to it."""
    posted: Posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # LangSmith's client asks how to post
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    server.server_close()


def trace(variables: str, url: str, folder: Path) -> None:
    given = dict(re.findall(r"^export (\w+)=(\S+)$", variables, re.MULTILINE))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANG")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    more = {"LANGSMITH_ENDPOINT": url, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    given = {name: value.replace("http://localhost:4318", url) for name, value in given.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env={**kept, **given, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_langsmith(collector: tuple[str, Posted], tmp_path: Path) -> None:
    url, posted = collector
    trace(LANGSMITH, url, tmp_path)
    runs: dict[str, dict[str, Any]] = {}
    for path, _, body in posted:
        assert path.endswith("/runs/batch")
        batch = json.loads(body)
        for run in [*(batch.get("post") or ()), *(batch.get("patch") or ())]:
            runs.setdefault(run["id"], {}).update({k: v for k, v in run.items() if v is not None})
    named = {run["name"]: run for run in runs.values()}
    assert named.keys() >= STEPS
    assert named["one question"]["session_name"] == "selfcorrect-rag"
    assert named["WordEvaluator"]["outputs"]["scores"]


@pytest.mark.slow
def test_any_collector(collector: tuple[str, Posted], tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    url, posted = collector
    trace(OTEL, url, tmp_path)
    names = set()
    for path, headers, body in posted:
        assert path.endswith("/v1/traces")
        assert headers["x-team"] == "search"
        assert "x-api-key" not in {name.lower() for name in headers}
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names |= {span.name for scope in resource.scope_spans for span in scope.spans}
    assert names >= STEPS
