"""The reply of every graph as a standard message: citations, usage, the model's name."""

import json
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.evaluation.plain_rag import create_plain_rag
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.models.chat_model import model_name
from selfcorrect_rag.state import known_tokens, total
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.providers import Provider
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
)

GRAPHS = ["self_rag", "crag", "self_crag", "instruct_rag", "rag"]
ASKED: Any = {"messages": [HumanMessage("Who wrote Emma, and when?", id="asked")]}
THREAD: Any = {"configurable": {"thread_id": "1"}}
WRITER = "Gold: Jane Austen wrote it."
YEAR = "Gold: It appeared in 1815."
SAID = "Jane Austen wrote it [1]. It appeared in 1815 [2]. The rest is a guess."
RATIONALE = "Document [2] says so: Jane Austen. Document [1] is irrelevant."
REFUSAL = "The documents do not say."


def found(query: str) -> list[Document]:
    return [
        document("Emma", WRITER, source="https://a.org/emma"),
        document("Hostile\n[9] title", YEAR, source="javascript:alert(1)"),
    ]


def chat(text: str) -> Provider:
    usage: Any = {"input_tokens": 30, "output_tokens": 5, "total_tokens": 35}
    told = {"model_name": "gpt-x", "model_provider": "openai"}
    said = AIMessage(text, usage_metadata=usage, response_metadata=told)
    return Provider(answer=lambda prompt: said.model_copy())


def write(prompt: str) -> Any:
    """Two segments: both sentences of the first from Emma, the other from the hostile page."""
    first = prompt.count("<paragraph>") < 2
    text = "Jane Austen wrote it. She did." if first else "It appeared in 1815."
    meant = "Emma" if first else "Hostile"
    isrel = RELEVANT if passage_of(prompt).startswith(meant) else {"[Irrelevant]": 1.0}
    going = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}
    return segment(text, isrel, FULL, next=going) if first else segment(text, isrel, FULL, USEFUL)


def build(graph: str, refuses: bool = False, **options: Any) -> Any:
    said = REFUSAL if refuses else RATIONALE if graph == "instruct_rag" else SAID
    writes = (lambda prompt: segment(REFUSAL, RELEVANT, FULL, USEFUL)) if refuses else write
    llm = ScriptedReflectionLLM(write=writes)
    match graph:
        case "self_rag":
            return create_self_rag(llm, found, settings={"depth": 2}, **options)
        case "crag":
            return create_crag(chat(said), found, WordEvaluator(), PagesWebSearch(), **options)
        case "self_crag":
            parts = (found, WordEvaluator(), PagesWebSearch())
            return create_self_crag(llm, *parts, settings={"depth": 2}, **options)
        case "instruct_rag":
            return create_instruct_rag(chat(said), found, **options)
        case _:
            return create_plain_rag(chat(said), found, **options)


def notes(message: Any) -> list[dict[str, Any]]:
    """The annotations of a message of one block."""
    (block,) = message.content_blocks
    assert block["text"] == message.text
    return list(block.get("annotations", []))


def cut(message: Any) -> list[tuple[str, str]]:
    """The piece of the text that cites, and the title, of each annotation."""
    return [(message.text[n["start_index"] : n["end_index"]], n["title"]) for n in notes(message)]


BOTH = [("[1]", "Emma"), ("[2]", "Hostile [9] title")]
CITED = dict.fromkeys(GRAPHS, BOTH) | {"instruct_rag": [("[2]", "Emma")]}


@pytest.mark.parametrize("graph", GRAPHS)
async def test_the_reply_cites_in_standard_annotations(graph: str) -> None:
    result = build(graph).invoke(ASKED)
    reply = result["messages"][-1]
    assert cut(reply) == CITED[graph]
    assert reply.text == result.get("cited_answer", RATIONALE)
    emma, *others = notes(reply)
    mark = reply.text.find(CITED[graph][0][0])
    assert emma == {
        "type": "citation",
        "title": "Emma",
        "url": "https://a.org/emma",
        "cited_text": WRITER,
        "start_index": mark,
        "end_index": mark + 3,
    }
    assert [(n["url"], n["cited_text"]) for n in others] == [("", YEAR)] * len(others)
    again = (await build(graph).ainvoke(ASKED))["messages"][-1]
    assert notes(again) == notes(reply)


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_refusal_has_no_annotations(graph: str) -> None:
    reply = build(graph, refuses=True).invoke(ASKED)["messages"][-1]
    assert reply.content == [{"type": "text", "text": REFUSAL}]


@pytest.mark.parametrize("graph", GRAPHS)
def test_usage_is_the_sum_of_the_costs(graph: str) -> None:
    result = build(graph).invoke(ASKED)
    untold = [step for step, cost in result["costs"].items() if cost["prompt_tokens"] is None]
    assert set(untold) <= {"grade_documents", "refine_strips", "select_web_strips"}
    spent = total({k: cost for k, cost in result["costs"].items() if k not in untold})
    read, written = spent["prompt_tokens"], spent["generated_tokens"]
    assert read
    assert written
    assert result["messages"][-1].usage_metadata == {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
    }


def test_unknown_usage_is_none() -> None:
    for llm in (RunnableLambda(lambda messages: SAID), FakeListChatModel(responses=[SAID])):
        untold = create_plain_rag(llm, found).invoke(ASKED)["messages"][-1]
        assert untold.usage_metadata is None


@pytest.mark.parametrize("graph", ["crag", "instruct_rag", "rag"])
def test_the_reply_names_the_model_that_wrote_it(graph: str) -> None:
    reply = build(graph).invoke(ASKED)["messages"][-1]
    assert reply.response_metadata == {
        "model_name": "gpt-x",
        "output_version": "v1",
    }


def test_models_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("langchain_openai").ChatOpenAI(api_key="sk-x", model="gpt-y")
    assert model_name(openai.bind(stop=["."]).with_retry()) == "gpt-y"
    assert model_name(PromptedReflectionLLM(openai)) == "gpt-y"
    assert model_name(ScriptedReflectionLLM(write=write)) == "scripted"
    assert model_name(found) == model_name(RunnableLambda(found)) == ""
    (tmp_path / "llama").mkdir()
    local = ScriptedReflectionLLM(write=write)
    identity = {"model": str(tmp_path / "llama")}
    monkeypatch.setattr(type(local), "_identifying_params", identity)
    assert model_name(local) == "llama"


@pytest.mark.parametrize("graph", GRAPHS)
async def test_streams_of_messages_carry_the_same(graph: str) -> None:
    seen = list(build(graph).stream(ASKED, stream_mode=["messages", "values"]))
    reply = seen[-1][1]["messages"][-1]
    chunks: list[Any] = [part[0] for mode, part in seen if mode == "messages"]
    assert {chunk.id for chunk in chunks} == {reply.id}
    text, *ends = chunks
    if isinstance(text, AIMessageChunk):
        whole = reduce(add, chunks)
        assert whole.text == reply.text
        assert notes(whole) == notes(reply)
        assert whole.usage_metadata == reply.usage_metadata
        assert whole.response_metadata == reply.response_metadata
    else:  # a chat model's own message, which was whole
        ended = reduce(add, ends)
        assert (text.text, ended.text) == (reply.text, "")
        assert ended.content[0]["annotations"] == notes(reply)
        assert text.usage_metadata == reply.usage_metadata
        assert ended.usage_metadata["total_tokens"] == 0, "the model has told it already"
        assert ended.response_metadata == {"output_version": "v1"}
    events = [e async for e in build(graph).astream_events(ASKED, version="v2")]
    last = events[-1]["data"]["output"]["messages"][-1]
    assert (cut(last), last.usage_metadata) == (cut(reply), reply.usage_metadata)


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
@pytest.mark.parametrize("graph", GRAPHS[:-1])
def test_checkpoints_keep_the_reply_and_a_second_turn_has_its_own(graph: str) -> None:
    kept = build(graph, checkpointer=InMemorySaver())
    first = kept.invoke(ASKED, THREAD)["messages"][-1]
    assert kept.get_state(THREAD).values["messages"][-1] == first
    assert loads(dumps(first), allowed_objects="core") == first
    serde = JsonPlusSerializer()
    assert serde.loads_typed(serde.dumps_typed(first)) == first
    json.dumps(first.model_dump())
    told = build(graph, refuses=True, checkpointer=kept.checkpointer)
    messages = told.invoke({"messages": [HumanMessage("And Ulysses?")]}, THREAD)["messages"]
    assert (messages[1], len(messages)) == (first, 4)
    assert notes(messages[-1]) == []
    spent = known_tokens(told.get_state(THREAD).values["costs"])
    assert messages[-1].usage_metadata["total_tokens"] == spent


@pytest.mark.parametrize("graph", ["self_rag", "self_crag"])
def test_a_reply_that_was_streamed_before_a_pause_is_streamed_whole_after_it(graph: str) -> None:
    pausing = build(graph, checkpointer=InMemorySaver(), interrupt_before=["write_answer"])
    assert [part[0].text for part in pausing.stream(ASKED, THREAD, stream_mode="messages")]
    (after,) = [part[0] for part in pausing.stream(None, THREAD, stream_mode="messages")]
    assert after == pausing.get_state(THREAD).values["messages"][-1]
    assert cut(after) == CITED[graph]


@pytest.mark.parametrize("graph", ["crag", "instruct_rag"])
def test_a_reply_from_a_cache_cites_and_has_no_usage(graph: str) -> None:
    runnable = build(graph, cache=InMemoryCache())
    runnable.invoke({"question": ASKED["messages"][0].content})
    reply = runnable.invoke(ASKED)["messages"][-1]
    assert cut(reply) == CITED[graph]
    assert reply.usage_metadata is None


def test_a_step_of_ones_own_has_a_standard_reply() -> None:
    citation = {
        "number": 1, "passage": 0, "title": "T\n[2] U", "source": "notes, https://b.org",
        "text": "x" * 500, "quote": "", "segments": [0],
    }  # fmt: skip
    quoting = {**citation, "number": 2, "title": "", "source": "javascript:x", "quote": "xx"}
    given = {"answer": "So", "cited_answer": "So [1][2].", "citations": [citation, quoting]}
    graph = create_crag(
        chat(SAID), found, WordEvaluator(), PagesWebSearch(), nodes={"generate": lambda s: given}
    )
    reply = graph.invoke(ASKED)["messages"][-1]
    assert cut(reply) == [("[1]", "T [2] U"), ("[2]", "untitled")]
    shown = [(note["url"], note["cited_text"]) for note in notes(reply)]
    assert shown == [("https://b.org", "x" * 400), ("", "xx")]
    mine = {"answer": "So", "citations": [citation]}
    read = create_instruct_rag(chat("Surely."), found, nodes={"read_rationale": lambda s: mine})
    (note,) = notes(read.invoke(ASKED)["messages"][-1])
    assert (note["start_index"], note["end_index"]) == (0, len("Surely.")), "it has no mark"
