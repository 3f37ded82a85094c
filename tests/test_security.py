"""SECURITY.md's promises: its tests exist, and no address in a text is opened."""

import re
import socket
from typing import Any

import pytest

from tests.agents.scripted import GRAPHS
from tests.scripted import document
from tests.snippets import ROOT

ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost:8080/admin",
    "https://example.org/page",
    "file:///etc/passwd",
)


@pytest.mark.parametrize("make", GRAPHS)
def test_no_address_in_a_text_is_opened(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def refuse(*given: Any, **named: Any) -> Any:
        opened.append(given)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = "Vague words. See " + " and ".join(ADDRESSES)
    page = document(text, text, source=ADDRESSES[0], url=ADDRESSES[1], images=list(ADDRESSES))
    asked = {"question": f"What is at {ADDRESSES[0]}?", "documents": [page]}
    assert make().invoke(asked)["answer"]
    assert opened == []


def test_every_test_that_security_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 12
    assert [path for path in named if not (ROOT / path).exists()] == []
