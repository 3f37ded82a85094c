"""Long texts are read off the event loop, and short ones on it."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.heartbeat import RATIONALE, Heartbeat, Relevant
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel

from benchmarks.graph import FreeReflectionLLM
from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models.off_loop import off_loop
from selfcorrect_rag.search import RetrieverWebSearch

LONG = 5 * [Document("The harbour has ten ships. " * 4_000, metadata={"title": "A town"})]
CHAT = FakeListChatModel(responses=[RATIONALE])
WEB = RetrieverWebSearch(lambda query: LONG)
GRAPHS: dict[str, Any] = {
    "self_rag": create_self_rag(FreeReflectionLLM(), lambda query: LONG),
    "crag": create_crag(CHAT, lambda query: LONG, Relevant(), WEB),
    "self_crag": create_self_crag(FreeReflectionLLM(), lambda query: LONG, Relevant(), WEB),
    "instruct_rag": create_instruct_rag(CHAT, lambda query: LONG),
}


@contextmanager
def who_reads(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[dict[str, set[int]]]:
    """The threads that call these functions meanwhile."""
    called: dict[str, set[int]] = {name: set() for name in names}
    for name in names:
        module, function = name.rsplit(".", 1)
        real = getattr(__import__(module, fromlist=[function]), function)

        def noted(*args: Any, name: str = name, real: Any = real, **kwargs: Any) -> Any:
            called[name].add(threading.get_ident())
            return real(*args, **kwargs)

        monkeypatch.setattr(name, noted)
    yield called


NODES = "selfcorrect_rag.nodes"
READ: dict[str, list[str]] = {
    "self_rag": ["selfcorrect_rag.prompts.parts._visible"],
    "crag": [
        f"{NODES}.grade_documents.titled",
        f"{NODES}.refine_strips.decompose",
        f"{NODES}.refine_strips.keep",
        f"{NODES}.recompose_knowledge.recompose",
        f"{NODES}.generate.knowledge_prompt",
        f"{NODES}.generate.read_marks",
    ],
    "self_crag": [f"{NODES}.refine_strips.decompose", f"{NODES}.recompose_knowledge.recompose"],
    "instruct_rag": [
        f"{NODES}.write_rationale.inference_prompt",
        f"{NODES}.read_rationale.read_documents",
        f"{NODES}.read_rationale.final_answer",
    ],
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_long_texts_are_read_off_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context: dict[str, Any] = {"document_characters": 200_000}
    if name == "self_rag":
        context["mode"] = "always"  # else the question alone is read too
    with who_reads(monkeypatch, *READ[name]) as called:
        result = await GRAPHS[name].ainvoke({"question": "How many ships?"}, context=context)
    assert result["answer"]
    for reader in READ[name]:
        assert called[reader], reader
        assert threading.get_ident() not in called[reader], reader


async def test_short_texts_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = f"{NODES}.refine_strips.decompose"
    with who_reads(monkeypatch, reader) as called:
        short = [Document("It has ten. It is old.")]
        web = RetrieverWebSearch(lambda query: short)
        graph: Any = create_crag(CHAT, lambda query: short, Relevant(), web)
        await graph.ainvoke({"question": "How many ships?"})
    assert called[reader] == {threading.get_ident()}


async def test_what_is_cancelled_before_its_turn_is_not_begun() -> None:
    begun, free = list[int](), threading.Event()
    first = asyncio.ensure_future(off_loop(free.wait))
    others = [asyncio.ensure_future(off_loop(begun.append, i)) for i in range(3)]
    await asyncio.sleep(0.05)
    others[1].cancel()
    await asyncio.wait([others[1]])
    free.set()
    await asyncio.gather(first, others[0], others[2])
    assert begun == [0, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    assert asyncio.run(off_loop(str, 1)) == "1"
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(off_loop(str, 2)) == "2" else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_the_heartbeat_finds_who_holds_the_loop() -> None:
    def hold() -> int:
        return sum(i * i for i in range(2_000_000))

    heartbeat = Heartbeat()
    with heartbeat.measured():
        await asyncio.sleep(0)
        hold()
        await asyncio.sleep(0)
        await asyncio.to_thread(hold)
        await asyncio.sleep(0)
    first, second = sorted(heartbeat.turns)[-1:-3:-1]
    assert "hold" in heartbeat.figures()["where"]
    assert first.seconds > 5 * second.seconds  # the thread's work is not the loop's
