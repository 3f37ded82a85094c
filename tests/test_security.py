"""What SECURITY.md says: its tests exist, and no address in a text is opened."""

import re
import socket
from typing import Any

import pytest

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from tests.agents.scripted import reflecting
from tests.crag_runs import WordEvaluator
from tests.scripted import document, echo
from tests.snippets import ROOT

ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost:8080/admin",
    "https://example.org/page",
    "file:///etc/passwd",
)


GRAPHS: Any = {
    "self_rag": lambda find: create_self_rag(reflecting(), find),
    "crag": lambda find: create_crag(echo(), find, WordEvaluator()),
    "self_crag": lambda find: create_self_crag(reflecting(), find, WordEvaluator()),
    "instruct_rag": lambda find: create_instruct_rag(echo(), find),
}


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
    made = GRAPHS[graph](lambda query: [page])
    assert made.invoke({"question": f"What is at {ADDRESSES[0]}?"})["answer"]
    assert opened == []


def test_every_test_that_security_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 12
    assert [path for path in named if not (ROOT / path).exists()] == []
