"""docs/serving.md works as written, on a real worker and a real PostgreSQL."""

import asyncio
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from langchain_core.documents import Document

from benchmarks.serving_load import Process
from integrations.langgraph_server.services import _postgres_programs
from selfcorrect_rag.search import BM25Index
from tests.scripted import ScriptedReflectionLLM, segment
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SQL = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
COMPOSE = ROOT / "integrations" / "workers" / "compose.yaml"


def test_the_page_on_a_worker(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = Process(database, tmp_path, slots=2)
    try:
        worker.wait_until_ready()
        ask, own = BLOCK.findall(PAGE)
        ask = ask.replace("http://127.0.0.1:8000", worker.url).replace(
            "Who discovered penicillin?", "Question 7?"
        )
        exec(compile(ask, "serving.md", "exec"), {})
        assert capsys.readouterr().out == "done Answer 7. Answer 7.\n"
        health = yaml.safe_load(COMPOSE.read_text())["services"]["worker"]["healthcheck"]["test"]
        checked = subprocess.run(
            [part.replace("http://127.0.0.1:8000", worker.url) for part in health[1:]], check=False
        )
        assert checked.returncode == 0
    finally:
        worker.process.kill()
        worker.process.wait()
    names: dict[str, Any] = {
        "llm": ScriptedReflectionLLM(write=lambda prompt: segment("")),
        "retriever": lambda query: [],
    }
    exec(
        compile("from selfcorrect_rag import create_self_rag\n" + own, "serving.md", "exec"), names
    )
    assert list(names["served"]()) == ["self_rag"]

    queued, cleaning = SQL
    dumped = restored(database, tmp_path)
    with psycopg.connect(database, autocommit=True) as session:
        assert session.execute(queued).fetchone() == (0,)
        session.execute(
            "INSERT INTO runs (id, graph, thread, request) VALUES ('b', 'g', 't', '{}')"
        )
        assert session.execute(queued).fetchone() == (1,)
        session.execute("DELETE FROM runs WHERE id = 'b'")
        kept = counted(session)
        assert all(kept.values())
        session.execute(cleaning)
        assert counted(session) == kept  # nothing is that old
        session.execute("UPDATE runs SET ended_at = now() - interval '31 days'")
        session.execute(cleaning)
        assert set(counted(session).values()) == {0}
    assert dumped == kept


def counted(session: "psycopg.Connection[Any]") -> dict[str, int]:
    """The rows of each table with runs or threads."""
    tables = ("runs", "checkpoints", "checkpoint_blobs", "checkpoint_writes")
    rows = {table: session.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables}
    return {table: row[0] if row else 0 for table, row in rows.items()}


def restored(database: str, folder: Path) -> dict[str, int]:
    """What is in a database that the page's dump was restored to."""
    programs = _postgres_programs()
    if not (programs / "pg_dump").exists() and not shutil.which("pg_dump"):
        pytest.skip("PostgreSQL's pg_dump is not installed")
    other = f"{database}_restored"
    (block,) = re.findall(r"```bash\n(pg_dump.*?)```", PAGE, re.DOTALL)
    with psycopg.connect(database, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {other.rsplit('/', 1)[1]}")
        try:
            subprocess.run(
                ["bash", "-ec", block],
                env={"PATH": f"{programs}:/usr/bin:/bin", "POSTGRES_URI": database}
                | {"OTHER_URI": other},
                cwd=folder,
                check=True,
            )
            with psycopg.connect(other) as restored_session:
                return counted(restored_session)
        finally:
            session.execute(f"DROP DATABASE {other.rsplit('/', 1)[1]} WITH (FORCE)")


async def test_the_graphs_of_studio_go_on_without_redis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It takes connections and answers nothing, and then it is gone; the event loop turns."""
    from integrations.workers import graphs as ours

    monkeypatch.setattr(ours, "REDIS_SECONDS", 0.2)
    with BM25Index(tmp_path / "index") as index:
        index.add([Document("Tarnholm was founded by Oskar Lind.", metadata={"source": "notes"})])
    monkeypatch.setenv("SELFCORRECT_INDEX", str(tmp_path / "index"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("REDIS_URI", f"redis://127.0.0.1:{silent.getsockname()[1]}")
        graphs = ours.served()
        assert set(graphs) == {"self_rag", "crag", "self_crag", "instruct_rag"}
        for asking in (
            graphs["self_rag"].cache.aget([(("a",), "b")]),
            graphs["self_rag"].cache.aset({(("a",), "b"): (1, None)}),
        ):
            asked = asyncio.create_task(asking)
            await asyncio.sleep(0.01)
            assert not asked.done()
            await asked
        answers = [await graphs["self_rag"].ainvoke({"question": "Who founded Tarnholm?"})]
    answers += [graphs["self_rag"].invoke({"question": "Who founded Tarnholm?"})]
    assert all("Oskar Lind" in result["answer"] for result in answers)


def test_every_request_and_option_is_on_the_page() -> None:
    from integrations.workers.server import application
    from integrations.workers.worker import Worker

    for route in application("postgresql://", Worker("", dict, slots=0), hosts=[]).routes:
        path = route.path.replace("{id}", "ID")  # type: ignore[attr-defined]
        assert path in PAGE
    usage = (ROOT / "integrations" / "workers" / "__main__.py").read_text(encoding="utf-8")
    for option in re.findall(r'"(--[a-z]+)"', usage):
        assert option in PAGE or option in ("--host", "--port")
