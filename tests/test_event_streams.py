"""``stream_events`` in versions 2 and 3: the events and the answer that ``stream_mode`` gives."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.stream import CustomTransformer

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator
from tests.prompted_runs import opinion
from tests.providers import LOGPROBS, Streaming
from tests.scripted import ScriptedReflectionLLM, document
from tests.test_streams import ANSWER, ASKED, PLAIN, build, chat, gossip, write

GRAPHS = ["self_rag", "crag", "self_crag", "instruct_rag"]
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


def v3(graph: Any, asked: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """The events, and the messages: id, node and tokens of each."""
    events, messages = [], []
    run = graph.stream_events(asked, version="v3", **options)
    for name, item in run.interleave("custom", "messages"):
        if name == "custom":
            events.append(item)
        else:
            messages.append((item.message_id, item.node, list(item.text)))
    return events, messages


async def av3(graph: Any, asked: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    async with await graph.astream_events(asked, version="v3", **options) as run:

        async def messages() -> list[Any]:
            return [(m.message_id, m.node, [t async for t in m.text]) async for m in run.messages]

        async def events() -> list[Any]:
            return [event async for event in run.custom]

        told, said = await asyncio.gather(events(), messages())
    return told, said


def modes(graph: Any, asked: Any, **options: Any) -> tuple[list[Any], str]:
    """The events, and the answer, of ``stream``."""
    seen = list(graph.stream(asked, stream_mode=["custom", "messages"], **options))
    events = [chunk for mode, chunk in seen if mode == "custom"]
    return events, "".join(chunk[0].text for mode, chunk in seen if mode == "messages")


def said(messages: list[Any]) -> str:
    """The text of the one message."""
    ((_, _, tokens),) = messages
    return "".join(tokens)


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
@pytest.mark.parametrize("graph", GRAPHS)
async def test_version_3_has_all_events_and_the_answer(graph: str, asked: Any) -> None:
    runnable = build(graph)
    told, text = modes(runnable, asked)
    assert told[-1]["event"] == "answered"
    for events, messages in (v3(runnable, asked), await av3(runnable, asked)):
        assert events == told
        assert said(messages) == text
        assert len(messages[0][2]) > 1 or graph == "instruct_rag", "by token, or by segment"
    run = runnable.stream_events(asked, version="v3")
    kinds = [(p["params"]["data"][0]["event"]) for p in run if p["method"] == "messages"]
    assert kinds[0] == "message-start"
    assert kinds[-1] == "message-finish"
    assert {kinds.count(kind) for kind in set(kinds) - {"content-block-delta"}} == {1}


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_message_of_version_3_is_the_one_that_the_thread_keeps(graph: str) -> None:
    run = build(graph).stream_events(ASKED, version="v3")
    (message,) = [message.output for message in run.messages]
    assert run.output is not None
    kept = run.output["messages"][-1]
    assert (message.id, message.text) == (kept.id, kept.text)
    if graph in ("self_rag", "self_crag"):  # a chat model's ends before its citations are known
        (block,) = message.content_blocks
        assert [{k: v for k, v in dict(block).items() if k != "index"}] == kept.content_blocks
        assert message.usage_metadata == kept.usage_metadata
        assert message.response_metadata == kept.response_metadata


def test_segments_stream_in_version_3_when_every_beam_agrees_on_them() -> None:
    run = build("self_rag").stream_events(PLAIN, version="v3")
    seen = [part["params"]["data"] for part in run if part["method"] in ("custom", "messages")]
    kinds = [data["event"] if isinstance(data, dict) else data[0]["event"] for data in seen]
    assert [k for k in kinds if k in ("segment_chosen", "content-block-delta", "answered")] == [
        "segment_chosen",  # two beams with segments of their own
        "segment_chosen",
        "content-block-delta",
        "segment_chosen",
        "content-block-delta",
        "answered",
    ]


@pytest.mark.parametrize("graph", GRAPHS)
async def test_version_2_has_them_too(graph: str) -> None:
    runnable = build(graph)
    told, text = modes(runnable, ASKED)
    parts = [
        event["data"]["chunk"]
        async for event in runnable.astream_events(
            ASKED, version="v2", stream_mode=["custom", "messages"]
        )
        if event["event"] == "on_chain_stream" and not event["parent_ids"]
    ]
    assert [chunk for mode, chunk in parts if mode == "custom"] == told
    assert "".join(chunk[0].text for mode, chunk in parts if mode == "messages") == text


WHOLE: dict[str, Callable[[], Any]] = {
    "a function": lambda: RunnableLambda(lambda messages: ANSWER),
    "an LLM": lambda: FakeListLLM(responses=[ANSWER]),
}


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_a_model_that_does_not_stream_is_heard_once(make: Callable[[], Any], asked: Any) -> None:
    crag = create_crag(make(), gossip, ChatEvaluator(chat("no")), gossip)
    for graph in (crag, create_instruct_rag(make(), gossip)):
        assert said(v3(graph, asked)[1]) == ANSWER


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
def test_a_result_from_a_cache_is_heard_once(asked: Any) -> None:
    graph = create_instruct_rag(chat(ANSWER), gossip, cache=InMemoryCache())
    assert said(v3(graph, asked)[1]) == said(v3(graph, asked)[1]) == ANSWER


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
def test_a_closed_set_is_heard_whole(asked: Any) -> None:
    context = {"options": ["Segment 0", "Segment 1"], "depth": 1}
    _, messages = v3(build("self_rag"), asked, context=context)
    assert messages[0][2] == [modes(build("self_rag"), asked, context=context)[1]]


def test_a_turn_that_pauses_goes_on_with_the_same_message() -> None:
    graph = create_self_rag(
        ScriptedReflectionLLM(write=write),
        gossip,
        checkpointer=InMemorySaver(),
        interrupt_before=["write_answer"],
    )
    thread: Any = {"configurable": {"thread_id": "1"}}
    first = list(graph.stream_events(ASKED, thread, version="v3").messages)
    second = list(graph.stream_events(None, thread, version="v3").messages)
    reply = graph.get_state(thread).values["messages"][-1]
    assert [m.message_id for m in first + second] == [reply.id, reply.id]
    assert second[0].output.text == reply.text


@pytest.mark.parametrize("version", ["modes", "v3"])
async def test_grades_and_critiques_are_those_of_a_run_that_is_not_streamed(version: str) -> None:
    critic = Streaming(answer=opinion, **LOGPROBS)
    passages = [document("Middlemarch"), document("Other")]
    crag = create_crag(chat(ANSWER), lambda query: passages, critic)
    self_rag = create_self_rag(critic, lambda query: passages)
    read = modes if version == "modes" else v3
    for graph in (crag, self_rag):
        whole = graph.invoke(PLAIN)
        scores = [grade["score"] for grade in whole.get("grades", [])]
        scores += [candidate["score"] for candidate in whole.get("candidates", [])]
        told = read(graph, PLAIN)[0]
        streamed = [g["score"] for e in told if e["event"] == "graded" for g in e["grades"]]
        streamed += [event["score"] for event in told if event["event"] == "candidate_scored"]
        assert len(scores) == 2
        assert all(score % 1 for score in scores), "log-probabilities were read"
        assert streamed == scores


class Parent(TypedDict):
    messages: Annotated[list[Any], add_messages]


@pytest.mark.parametrize("graph", GRAPHS)
async def test_as_a_subgraph_it_has_them_under_its_own_handle(graph: str) -> None:
    parent = StateGraph(Parent)
    parent.add_node("answer", build(graph))
    parent.add_edge(START, "answer")
    parent.add_edge("answer", END)
    told, text = modes(build(graph), ASKED)
    run = parent.compile().stream_events(ASKED, version="v3", transformers=[CustomTransformer])
    names = [part["params"]["data"]["event"] for part in run if part["method"] == "custom"]
    assert names == [event["event"] for event in told]
    run = parent.compile().stream_events(ASKED, version="v3", transformers=[CustomTransformer])
    for inner in run.subgraphs:
        seen = list(inner.interleave("custom", "messages"))
        assert [item["event"] for name, item in seen if name == "custom"] == names
        assert ["".join(m.text) for name, m in seen if name == "messages"] == [text]
        break
    else:
        pytest.fail("no subgraph")


async def test_concurrent_runs_do_not_mix() -> None:
    def own(messages: Any) -> str:
        return "The answer is " + messages[0].content.rpartition("wrote book ")[2][:1]

    graph = create_instruct_rag(RunnableLambda(own), gossip)
    asked = [{"messages": [HumanMessage(f"Who wrote book {i}?")]} for i in range(8)]
    runs = await asyncio.gather(*(av3(graph, given) for given in asked))
    for i, (events, messages) in enumerate(runs):
        assert said(messages) == f"The answer is {i}"
        assert str(i) in events[-1]["answer"]
    assert len({messages[0][0] for _, messages in runs}) == 8
