"""What SECURITY.md says: its tests exist, hashes are of tested versions, nothing is fetched."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.scripted import document
from tests.test_intake import GRAPHS, made

ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost:8080/admin",
    "https://example.org/page",
    "file:///etc/passwd",
)


@pytest.mark.parametrize("graph", GRAPHS)
def test_no_address_in_a_text_is_opened(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def refuse(*given: Any, **named: Any) -> Any:
        opened.append(given)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = "Vague words. See " + " and ".join(ADDRESSES)
    page = document(text, text, source=ADDRESSES[0], url=ADDRESSES[1], images=list(ADDRESSES))
    result = made(graph, page).invoke({"question": f"What is at {ADDRESSES[0]}?"})
    assert result["answer"]
    assert opened == []


ROOT = Path(__file__).parents[1]


def test_every_test_that_security_names_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) >= 12
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_hashes_are_of_the_tested_versions() -> None:
    tested = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    hashed = re.findall(
        r"^([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$",
        (ROOT / "requirements-hashes.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    plain = {re.sub(r"[-_.]+", "-", name): version for name, version in tested.items()}
    named = {re.sub(r"[-_.]+", "-", name): version for name, version in hashed}
    assert {"langgraph", "langchain-core", "torch", "chromadb", "mcp"} <= named.keys()
    assert {name: plain.get(name) for name in named} == named
