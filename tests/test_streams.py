"""What a chat sees while a run goes on: the answer, once, and nothing that only graders say."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.events import Event
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.search import RetrieverWebSearch
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
)

ASKED: Any = {"messages": [HumanMessage("Who wrote Emma, and when?")]}
PLAIN: Any = {"question": "Who wrote Emma, and when?"}
ANSWER = "Jane Austen wrote it."
GOING = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}


def chat(text: str) -> FakeListChatModel:
    """A chat model that streams by the character."""
    return FakeListChatModel(responses=[text])


def gossip(query: str) -> list[Document]:
    """A retriever that asks a chat model on the way, as those that rewrite queries do."""
    chat("LEAK of the retriever").invoke(query)
    return [document("Emma"), document("Other")]


def write(prompt: str) -> Any:
    """Three segments from the passage Emma, worse ones from others."""
    done = prompt.count("<paragraph>") - 1
    text = f"Segment {done} from {passage_of(prompt)}."
    certain = RELEVANT if passage_of(prompt) == "Emma" else {"[Relevant]": 0.6, "[Irrelevant]": 0.4}
    if done == 2:
        return segment(text, certain, FULL, USEFUL)
    return segment(text, certain, FULL, next=GOING)


def build(graph: str) -> Any:
    evaluator = ChatEvaluator(chat("LEAK no"), passages_per_call=1)
    web = RetrieverWebSearch(gossip, "pages")
    rewriter = chat("LEAK, keywords")
    match graph:
        case "self_rag":
            return create_self_rag(ScriptedReflectionLLM(write=write), gossip)
        case "crag":
            return create_crag(chat(ANSWER), gossip, evaluator, web, rewriter=rewriter)
        case "self_crag":
            llm = ScriptedReflectionLLM(write=write)
            return create_self_crag(llm, gossip, evaluator, web, rewriter=rewriter)
        case _:
            return create_instruct_rag(chat(ANSWER), gossip)


def texts(stream: list[Any]) -> str:
    """What a chat shows: chunks of one message joined; it must be one message."""
    assert len({message.id for message, _ in stream}) == 1
    return "".join(message.text for message, _ in stream)


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
async def test_a_chat_streams_the_answer_once_and_nothing_else(graph: str) -> None:
    runnable = build(graph)
    result = runnable.invoke(ASKED)
    reply = result["messages"][-1].text
    assert reply
    streamed = list(runnable.stream(ASKED, stream_mode="messages"))
    assert texts(streamed) == reply
    assert len(streamed) > 1
    again = [chunk async for chunk in runnable.astream(ASKED, stream_mode="messages")]
    assert texts(again) == reply
    values = list(runnable.stream(ASKED, stream_mode=["messages", "values"]))
    last = [chunk for mode, chunk in values if mode == "values"][-1]["messages"][-1]
    assert {message.id for mode, (message, *_) in _messages(values)} == {last.id}


def _messages(seen: list[Any]) -> list[Any]:
    return [(mode, chunk) for mode, chunk in seen if mode == "messages"]


FINAL = {"self_rag": "cited_answer", "crag": "cited_answer", "self_crag": "cited_answer"}
"""What a graph streams, where ``question`` asks; of InstructRAG the rationale."""


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
async def test_a_question_streams_the_answer_too_and_keeps_no_message(graph: str) -> None:
    runnable = build(graph)
    result = runnable.invoke(PLAIN)
    assert not result.get("messages")
    reply = result[FINAL.get(graph, "rationale")]
    assert reply
    streamed = list(runnable.stream(PLAIN, stream_mode="messages"))
    assert texts(streamed) == reply
    assert len(streamed) > 1
    again = [chunk async for chunk in runnable.astream(PLAIN, stream_mode="messages")]
    assert texts(again) == reply
    assert len(again) == len(streamed)
    assert {m.id for m, _ in streamed}.isdisjoint({m.id for m, _ in again}), "turns are apart"


WHOLE: list[Callable[[], Any]] = [
    lambda: RunnableLambda(lambda messages: f" {ANSWER}\n"),
    lambda: RunnableLambda(lambda messages: AIMessage(ANSWER, id="own")),
    lambda: chat(ANSWER) | StrOutputParser(),
    lambda: ScriptedReflectionLLM(write=lambda prompt: segment(ANSWER)),
]


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
@pytest.mark.parametrize("make", WHOLE, ids=["text", "message", "chain", "reflecting"])
@pytest.mark.parametrize("graph", ["crag", "instruct_rag"])
async def test_a_model_that_does_not_stream_is_heard_once(
    graph: str, make: Callable[[], Any], asked: Any
) -> None:
    def made(**options: Any) -> Any:
        if graph == "instruct_rag":
            return create_instruct_rag(make(), gossip, **options)
        parts = (ChatEvaluator(chat("no")), RetrieverWebSearch(gossip, "pages"))
        return create_crag(make(), gossip, *parts, **options)

    assert texts(list(made().stream(asked, stream_mode="messages"))) == ANSWER
    again = [chunk async for chunk in made().astream(asked, stream_mode="messages")]
    assert texts(again) == ANSWER


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
@pytest.mark.parametrize("graph", ["crag", "instruct_rag"])
def test_a_result_from_a_cache_is_heard_once(graph: str, asked: Any) -> None:
    cache: Any = InMemoryCache()
    evaluator, web = ChatEvaluator(chat("no")), RetrieverWebSearch(gossip, "pages")
    runnable: Any = (
        create_crag(chat(ANSWER), gossip, evaluator, web, cache=cache)
        if graph == "crag"
        else create_instruct_rag(chat(ANSWER), gossip, cache=cache)
    )
    for length in (len(ANSWER), 1):
        seen = list(runnable.stream(asked, stream_mode="messages"))
        assert texts(seen) == ANSWER
        assert len([m for m, _ in seen if m.text]) == length


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
def test_a_closed_set_is_heard_whole(asked: Any) -> None:
    for graph in ("self_rag", "self_crag"):
        runnable = build(graph)
        context: Any = {"options": ["Segment 0", "Segment 1"], "depth": 1}
        result = runnable.invoke(asked, context=context)
        seen = list(runnable.stream(asked, context=context, stream_mode="messages"))
        assert texts(seen) == result["cited_answer"]
        assert len([m for m, _ in seen if m.text]) == 1


@pytest.mark.parametrize("asked", [ASKED, PLAIN], ids=["messages", "question"])
def test_segments_stream_when_every_beam_agrees_on_them(asked: Any) -> None:
    seen = list(build("self_rag").stream(asked, stream_mode=["messages", "custom"]))
    kinds = [
        chunk[0].text if mode == "messages" else chunk["event"]
        for mode, chunk in seen
        if (chunk[0].text if mode == "messages" else chunk["event"] == "segment_chosen")
    ]
    chosen = [chunk for mode, chunk in seen if mode == "custom"]
    chosen = [event for event in chosen if event["event"] == "segment_chosen"]
    assert [event["settled"] for event in chosen] == [0, 1, 3], "one finished path is left"
    assert [event["answer"].count("Segment") for event in chosen] == [1, 2, 3]
    assert kinds == [
        "segment_chosen",  # two beams with segments of their own
        "segment_chosen",
        "Segment 0 from Emma. [1]",
        "segment_chosen",
        " Segment 1 from Emma. [1] Segment 2 from Emma. [1]",
    ]


def test_a_second_turn_has_a_message_of_its_own() -> None:
    first = build("self_rag").invoke(ASKED)["messages"]
    second = build("self_rag").invoke({"messages": [*first, HumanMessage("And Ulysses?")]})
    assert len({message.id for message in second["messages"]}) == 4


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
def test_every_event_is_of_its_type(graph: str) -> None:
    types = {
        name: kind for kind in get_args(Event) for name in get_args(kind.__annotations__["event"])
    }
    events = list(build(graph).stream(ASKED, stream_mode="custom"))
    assert events[-1]["event"] == "answered"
    for event in events:
        assert set(event) == set(types[event["event"]].__annotations__)


def test_a_failed_search_says_why() -> None:
    def down(query: str) -> list[Document]:
        raise ConnectionError("no route")

    web = RetrieverWebSearch(RunnableLambda(down), "pages")
    graph = create_crag(chat(ANSWER), gossip, ChatEvaluator(chat("no")), web)
    events = {e["event"]: e for e in graph.stream(ASKED, stream_mode="custom")}
    assert events["web_search_failed"]["reason"].endswith("raised ConnectionError: no route")
    assert events["web_search_failed"]["source"] == "pages"
