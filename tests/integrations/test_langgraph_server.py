"""The folder of the production server: its compose file, and the graphs on what it is made of."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml

from integrations.langgraph_server.services import NotInstalled, postgres, redis
from tests.test_docs import BLOCK, ROOT

FOLDER = ROOT / "integrations" / "langgraph_server"
COMPOSE = FOLDER / "compose.yaml"
NAMES = {"self_rag", "crag", "self_crag", "instruct_rag"}


def test_the_compose_file_holds_together() -> None:
    text = re.sub(r"\$\{(\w+)[^}]*\}", r"\1", COMPOSE.read_text(encoding="utf-8"))
    compose: dict[str, Any] = yaml.safe_load(text)
    services = compose["services"]
    server = services["server"]
    assert set(services) == {"server", "postgres", "redis"}
    for name, how in server["depends_on"].items():
        assert how["condition"] == "service_healthy"
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    given = server["environment"]
    database, queue = urlparse(given["DATABASE_URI"]), urlparse(given["REDIS_URI"])
    own = services["postgres"]["environment"]
    assert (database.hostname, queue.hostname) == ("postgres", "redis")
    assert database.username == own["POSTGRES_USER"]
    assert database.path == f"/{own['POSTGRES_DB']}"
    assert database.password == own["POSTGRES_PASSWORD"]
    assert (COMPOSE.parent / server["build"]["context"]).resolve() == ROOT
    assert (ROOT / server["build"]["dockerfile"]).exists()
    volumes = {volume.split(":")[0] for volume in services["postgres"]["volumes"]}
    assert volumes == set(compose["volumes"])
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_docker_reads_the_compose_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], check=False).returncode:
        pytest.skip("there is no docker compose here")
    command = [docker, "compose", "-f", COMPOSE, "config", "--quiet"]
    environment = {**os.environ, "POSTGRES_PASSWORD": "secret"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_image_and_development_server_have_the_same_graphs() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"LANGSERVE_GRAPHS='(.*)'", dockerfile)
    assert found
    served = json.loads(found[1])
    configured = json.loads((FOLDER / "langgraph.json").read_text(encoding="utf-8"))["graphs"]
    assert set(served) == set(configured) == NAMES
    for name in NAMES:
        assert served[name] == f"/deps/served.py:{name}"
        assert configured[name]["path"] == f"./served.py:{name}"
        assert configured[name]["description"]
    for source in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()), source


def test_the_graphs_on_postgres_and_redis(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, FOLDER / "check.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if "not installed" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stderr
    lines = dict(line.split(": ", 1) for line in run.stdout.splitlines())
    assert set(lines) == NAMES
    assert "Eliot" in lines["self_rag"]
    for line in lines.values():
        numbers = re.search(r"\((\d+) checkpoints, (\d+) results from Redis\)$", line)
        assert numbers
        assert int(numbers[1]) > 3
        assert int(numbers[2]) >= 1


def test_the_readmes_python_runs() -> None:
    from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment

    (block,) = BLOCK.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    try:
        with postgres("-F") as address, redis() as url:
            port = urlparse(url).port
            source = block.replace("postgresql://...", address)
            source = source.replace("redis.Redis()", f"redis.Redis(port={port})")
            # The with block ends the connection, so that the graph is asked inside it.
            source += "    result = graph.invoke({'question': 'Who?'}, config)\n"
            names: dict[str, Any] = {
                "config": {"configurable": {"thread_id": "1"}},
                "llm": ScriptedReflectionLLM(
                    write=lambda prompt: segment("Eliot.", RELEVANT, FULL, USEFUL)
                ),
                "retriever": lambda query: [document("Gold")],
            }
            code = "from selfcorrect_rag import create_self_rag\n" + source
            exec(compile(code, "README.md", "exec"), names)
    except NotInstalled as error:
        pytest.skip(str(error))
    assert names["result"]["answer"] == "Eliot."
