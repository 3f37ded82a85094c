"""The folder of the production server: its compose file, and the graphs on what it is made of."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml

from integrations.langgraph_server.services import NotInstalled, postgres, redis
from selfcorrect_rag.commands.studio import CONFIG
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
    (models,) = server["env_file"]
    assert models == {"path": "models.env", "required": False}


def test_docker_reads_the_compose_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], check=False).returncode:
        pytest.skip("there is no docker compose here")
    command = [docker, "compose", "-f", COMPOSE, "config", "--quiet"]
    environment = {**os.environ, "POSTGRES_PASSWORD": "secret"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_image_has_the_graphs_of_studio() -> None:
    """The same modules that tests/serving loads into a real server, and their index's folder."""
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    found = re.search(r"^ENV LANGSERVE_GRAPHS='(.*)'$", dockerfile, re.MULTILINE)
    assert found
    configured = json.loads(CONFIG.read_text(encoding="utf-8"))["graphs"]
    assert json.loads(found[1]) == {name: graph["path"] for name, graph in configured.items()}
    for source in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()), source
    (folder,) = re.findall(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)
    assert dockerfile.index(f"WORKDIR {folder}") < dockerfile.index("demo_index()")


def test_the_image_installs_what_its_graphs_import() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r'"/deps/selfcorrect-rag\[(.*)\]"', dockerfile)
    assert found
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(found[1].split(","))
    assert {"demo", "agents"} <= extras <= set(project["optional-dependencies"])


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
    assert "Fleming" in lines["self_rag"]
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
