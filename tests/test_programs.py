"""The five programs that an application developer writes first, from the docs, do what they say."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.models.rule_chat_model import RuleChatModel
from selfcorrect_rag.reader import ReaderEmbeddings
from tests.test_examples import GUERNICA, example, small_demo  # noqa: F401
from tests.test_vllm_server import Loopback, loopback  # noqa: F401


def test_self_rag_over_an_own_chroma_collection(tmp_path: Path, capsys: Any) -> None:
    chroma = pytest.importorskip("langchain_chroma", reason="langchain-chroma is not installed")
    store = chroma.Chroma("notes", ReaderEmbeddings(), persist_directory=str(tmp_path / "store"))
    written = "Deployments happen every Tuesday, and Priya Raman approves them."
    store.add_texts(
        [written, "Tom waters the plants on Mondays."],
        [{"title": "Staging", "source": "staging.md"}, {"title": "Office"}],
    )
    question = "Who approves the deployments?"
    example("self_rag_over_chroma").main(
        str(tmp_path / "store"), "notes", ReaderEmbeddings(), question
    )
    answer, cited = capsys.readouterr().out.splitlines()
    assert answer == "Priya Raman [1]"
    assert cited == f"[1] Staging: {written}"


def chat(body: dict[str, Any]) -> tuple[int, Any]:
    """An OpenAI-compatible server's answer: it grades the page alone as right, and cites it."""
    prompt = str(body["messages"][-1]["content"])
    asked = prompt.rpartition("Question:")[2]
    if "exact information" in prompt:
        numbers = range(1, asked.count("<document number") + 1)
        verdict = "yes" if "Monroeville" in asked else "no"
        said = "\n".join(f"{number}: {verdict}" for number in numbers) or verdict
        if schema := body.get("response_format", {}).get("json_schema", {}).get("schema"):
            said = json.dumps(dict.fromkeys(schema["required"], verdict))
    elif "keywords" in prompt:
        said = "Harper Lee, born"
    else:
        said = "In Monroeville [1]." if "Monroeville" in prompt else "I do not know."
    message = {"role": "assistant", "content": said}
    about = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return 200, {**about, "choices": choices, "usage": usage}


async def test_crag_with_an_own_server(loopback: Loopback, capsys: Any) -> None:  # noqa: F811
    loopback.answers["/v1/chat/completions"] = chat
    question = "Where was Harper Lee born?"
    await example("crag_with_own_server_and_search").main(f"{loopback.url}/v1", "mine", question)
    answer, cited = capsys.readouterr().out.splitlines()
    assert answer == "incorrect: In Monroeville [1]."
    assert cited == "[1] Harper Lee (https://example.org/harper-lee)"
    assert {body["model"] for _, body, _ in loopback.asked} == {"mine"}


def test_an_agent_with_threads_streams_over_sse(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    module, threads = example("agent_over_sse"), str(tmp_path / "threads.sqlite")

    def asked(question: str) -> list[tuple[str, Any]]:
        with TestClient(module.server(RuleChatModel(), threads)) as client:
            reply = client.post("/threads/1", content=question)
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [part.split("\n") for part in reply.text.strip().split("\n\n")]
        return [
            (e.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for e, d in events
        ]

    first = asked(GUERNICA)
    kinds = [kind for kind, _ in first]
    assert kinds == ["retrieved", "graded", "strips", "knowledge", "answered", "token"]
    assert "Pablo Picasso [1]" in "".join(data for kind, data in first if kind == "token")
    asked("Where was the poet T. S. Eliot born?")  # by another server, on the same thread

    async def kept() -> list[str]:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(threads) as saver:
            saved = await saver.aget({"configurable": {"thread_id": "1"}})
        assert saved is not None
        return [m.text for m in saved["channel_values"]["messages"] if m.type == "human"]

    assert asyncio.run(kept()) == [GUERNICA, "Where was the poet T. S. Eliot born?"]


def test_crag_in_an_own_graph_and_a_node_alone(capsys: pytest.CaptureFixture[str]) -> None:
    example("crag_in_own_graph").main(GUERNICA)
    replied, graded = capsys.readouterr().out.splitlines()
    assert replied == "Pablo Picasso ['Guernica']"
    assert re.match(r"correct \[0\.[45]", graded)  # by the type that the processor multiplies in
