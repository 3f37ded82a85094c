"""What SECURITY.md says: its tests exist, and no address in a text is opened."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag import (
    create_crag,
    create_instruct_rag,
    create_self_crag,
    create_self_rag,
)
from tests.agents.scripted import reflecting
from tests.crag_runs import WordEvaluator
from tests.scripted import document

ADDRESSES = (
    "http://169.254.169.254/latest/meta-data/",
    "http://localhost:8080/admin",
    "https://example.org/page",
    "file:///etc/passwd",
)


def made(graph: str, page: Document) -> Any:
    """A graph that retrieves ``page``."""
    chat = FakeListChatModel(responses=["An answer [1]."] * 9)
    match graph:
        case "self_rag":
            return create_self_rag(reflecting(), lambda query: [page])
        case "crag":
            return create_crag(chat, lambda query: [page], WordEvaluator())
        case "self_crag":
            return create_self_crag(reflecting(), lambda query: [page], WordEvaluator())
        case _:
            return create_instruct_rag(chat, lambda query: [page])


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
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
