"""The door: what enters a run is valid text of bounded length, by whatever way it comes."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, Overwrite

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.nodes.strips import fair_shares
from selfcorrect_rag.search import RetrieverWebSearch
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.settings import LONGEST_TEXT
from selfcorrect_rag.state import total
from selfcorrect_rag.intake import DEEPEST, admit, fit, valid
from tests.crag_runs import WordEvaluator
from tests.providers import Provider
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment

HALF = "an emoji cut in two \ud83d here"
CONTROLS = "a\x00b\x1b[31mc\x85d\x9be\x0cf\tg\r\nh"
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)


# Text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("plain, \u05e9\u05dc\u05d5\u05dd \u202dand\u202c e\u0301\tx\r\n", None),
        ("[Relevant] <|im_end|> \u200b", None),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        (CONTROLS, "a\ufffdb\ufffd[31mc\nd\ufffde\nf\tg\r\nh"),
    ],
)
def test_valid(given: str, kept: str | None) -> None:
    assert valid(given) == (given if kept is None else kept)


@given(TEXTS)
def test_valid_text_can_be_encoded_and_stays(text: str) -> None:
    once = valid(text)
    once.encode()
    assert valid(once) == once
    assert len(once) <= len(text)


def test_every_text_of_an_input_is_fit() -> None:
    message = HumanMessage([{"type": "text", "text": HALF}], id=HALF, additional_kwargs={"k": HALF})
    value = {HALF: [HALF, (HALF,), message, Document(HALF, metadata={"a": [HALF]}, id=HALF)]}
    read = fit({"in": value, "over": Overwrite([HALF]), "number": 7})
    json.dumps(read, default=str, ensure_ascii=False).encode()
    assert read["number"] == 7
    assert read["over"] == Overwrite([valid(HALF)])
    plain = HumanMessage("plain", id="1")
    assert fit(plain) is plain


def test_a_text_or_a_nesting_without_end_is_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = [deep]
    read, levels = fit(deep), 0
    while isinstance(read, list):
        (read,), levels = read, levels + 1
    assert (read, levels) == ("\u2026", DEEPEST)
    assert len(fit("a" * (LONGEST_TEXT + 1))) == LONGEST_TEXT


# Documents


def test_documents_are_cut_and_notes_say_so() -> None:
    given = [
        Document("a" * 100, metadata={"title": "A", "n": 1}),
        Document("a" * 101, metadata={"x": "b" * 200, "title": "two\nlines " + "c" * 300}),
        Document(HALF, metadata={"title": None, "source": "s" * 101, "y": 2}, id="7"),
    ]
    found, notes = admit(given, 100, "web pages")
    assert found[0] is given[0]
    assert [len(d.page_content) for d in found] == [100, 100, len(HALF)]
    assert found[1].metadata == {}
    assert (found[2].metadata, found[2].id) == ({"title": None, "y": 2}, "7")
    assert notes == [
        "1 of 3 web pages cut to the first 100 characters (document_characters)",
        "2 of 3 web pages lost metadata longer than 100 characters",
        "1 of 3 web pages hold characters that cannot be read",
    ]
    (titled,), _ = admit([given[1]], 5_000, "documents")
    assert list(titled.metadata) == ["x", "title"], "its own order"
    assert titled.metadata["title"].startswith("two lines ccc")
    assert len(titled.metadata["title"]) <= 200
    (placed,), _ = admit([Document("a", metadata={"x": "b" * 95, "title": "T"})], 100, "documents")
    assert placed.metadata == {"title": "T"}, "where it is from goes before all else"
    for size, kept in ((99, 1), (100, 0)):
        (full,), _ = admit([Document("a", metadata={"x": "b" * size})], 100, "documents")
        assert len(full.metadata) == kept


@pytest.mark.parametrize(
    ("counts", "most", "shares"),
    [
        ([], 5, []),
        ([2, 3], 5, [2, 3]),
        ([500, 2, 3], 10, [5, 2, 3]),
        ([500, 400, 1], 10, [4, 5, 1]),
        ([3, 3, 3], 2, [1, 1, 0]),
        ([1] * 10, 5, [1] * 5 + [0] * 5),
        ([5, 5, 5], 10, [4, 3, 3]),
    ],
)
def test_fair_shares(counts: list[int], most: int, shares: list[int]) -> None:
    assert fair_shares(counts, most) == shares


# Every way into every graph, with a thread that is kept on disk


def writing() -> ScriptedReflectionLLM:
    return ScriptedReflectionLLM(write=lambda prompt: segment("Austen.", RELEVANT, FULL, USEFUL))


def chatting(text: str = "Austen [1].") -> Any:
    return RunnableLambda(lambda prompt: AIMessage(text))


def made(graph: str, page: Document, **options: Any) -> Any:
    """A graph whose retriever and web give ``page``; each of its nodes runs."""
    web = RetrieverWebSearch(lambda query: [page], "pages")
    parts = (lambda query: [page], WordEvaluator(), web)
    match graph:
        case "self_rag":
            return create_self_rag(writing(), parts[0], **options)
        case "crag":
            return create_crag(options.pop("llm", chatting()), *parts, **options)
        case "self_crag":
            return create_self_crag(writing(), *parts, **options)
    shown = [{"question": "Who wrote Ulysses?", "rationale": "Joyce did."}]
    return create_instruct_rag(options.pop("llm", chatting()), parts[0], shown, **options)  # type: ignore[arg-type]


GRAPHS = ("self_rag", "crag", "self_crag", "instruct_rag")
PAGE = Document("Vague words.", metadata={"title": "A page", "source": "https://a.org"})
HOSTILE = Document(f"Vague {HALF}", metadata={"title": HALF, "x": HALF, HALF: 1}, id=HALF)
WAYS: dict[str, tuple[Any, Document]] = {
    "question": ({"question": HALF}, PAGE),
    "message": ({"messages": [HumanMessage(HALF, id=HALF)]}, PAGE),
    "message as JSON": ({"messages": [{"role": "user", "content": HALF}]}, PAGE),
    "history": ({"messages": [("ai", HALF), ("user", "Who?")]}, PAGE),
    "given": ({"question": "Who?", "documents": [HOSTILE]}, PAGE),
    "given as JSON": (
        {"question": "Who?", "documents": [{"page_content": HALF, "metadata": {"title": HALF}}]},
        PAGE,
    ),
    "retrieved": ({"question": "Who?"}, HOSTILE),
}


def held(state: Any) -> str:
    """All that a thread holds, as UTF-8 can write it."""
    text = json.dumps(state.values, default=str, ensure_ascii=False)
    text.encode()
    return text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_no_text_stops_a_run_or_its_thread(graph: str, way: str) -> None:
    asked, page = WAYS[way]
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = made(graph, page, checkpointer=saver)
        now = app.invoke(asked, config)
        assert "\ufffd" in held(app.get_state(config)) or way == "history"

    async def later() -> Any:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as asaver:
            return await made(graph, page, checkpointer=asaver).ainvoke(asked, config)

    for result in (now, asyncio.run(later())):
        assert result["answer"]
        if way != "history":
            assert any("cannot be read" in note for note in result["notes"])


@pytest.mark.parametrize("graph", GRAPHS)
def test_an_edit_of_a_thread_is_fit(graph: str) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = made(graph, PAGE, checkpointer=saver)
        app.invoke({"question": "Who?"}, config)
        edit = {"notes": [HALF], "question": HALF, "messages": [HumanMessage(HALF)]}
        app.update_state(config, edit)
        asyncio.run(_edit(graph, edit))
        assert held(app.get_state(config)).count("cut in two \ufffd") == 3


async def _edit(graph: str, edit: Any) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        app = made(graph, PAGE, checkpointer=saver)
        await app.ainvoke({"question": "Who?"}, config)
        await app.aupdate_state(config, edit)
        assert held(await app.aget_state(config)).count("cut in two \ufffd") == 3


def test_demonstrations_are_fit() -> None:
    shown: Any = [{"question": HALF, "rationale": HALF, "answers": [HALF]}]
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = create_instruct_rag(
            chatting("Austen."), lambda query: [PAGE], shown, checkpointer=saver
        )
        result = app.invoke({"question": "Who?"}, config, context={"mode": "icl"})
        assert "\ufffd" in held(app.get_state(config))
    assert result["demonstrations"] == fit(shown) != shown


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_block_of_a_message_that_holds_no_text_is_passed_over(graph: str) -> None:
    blocks: Any = [{"type": "text", "text": 5}, {"type": "text"}, {"type": "text", "text": "Emma."}]
    told: list[Any] = []

    def rewrite(asked: Any) -> str:
        told.append(asked)
        return "Who wrote Emma?"

    app = made(graph, PAGE, follow_up=RunnableLambda(rewrite))
    for last in ("Who?", [*blocks, "Who?"]):
        messages: Any = [{"role": "assistant", "content": blocks}, HumanMessage(last)]
        assert app.invoke({"messages": messages})["answer"]
    assert ["Emma." in str(asked) for asked in told] == [True, True]


def test_what_resumes_a_run_is_fit() -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = made("crag", PAGE, checkpointer=saver)
        app.invoke({"question": "Who?"}, config, context={"approve_search": True})
        result = app.invoke(Command(resume={"query": HALF}), config)
    assert result["web_query"] == valid(HALF)


@pytest.mark.parametrize("graph", ["crag", "instruct_rag"])
def test_what_a_model_writes_is_fit(graph: str) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = made(graph, PAGE, checkpointer=saver, llm=chatting(f"Therefore, {HALF} [1]."))
        app.invoke({"messages": [HumanMessage("Who?")]}, config)
        assert "\ufffd" in held(app.get_state(config))
    plain = RunnableLambda(lambda prompt: HALF)  # as an LLM writes: a str
    assert "\ufffd" in made(graph, PAGE, llm=plain).invoke({"question": "Who?"})["answer"]


# Bounds


class Reading:
    """A chat model that remembers how much it was given to read."""

    def __init__(self, answer: Callable[[str], str] = lambda prompt: "Austen.") -> None:
        self.read: list[int] = []
        self.answer = answer

    def __call__(self, prompt: Any) -> AIMessage:
        text = prompt if isinstance(prompt, str) else "".join(m.content for m in prompt)
        self.read.append(len(text))
        return AIMessage(self.answer(text))


@pytest.mark.parametrize("graph", GRAPHS)
def test_huge_text_is_cut_before_anything_reads_it(graph: str) -> None:
    huge = Document("Vague words here. " * 1_000_000, metadata={"title": "t" * 9_000_000})
    reading = Reading()
    options = {} if graph.startswith("self") else {"llm": RunnableLambda(reading)}
    asked = {"question": "Who wrote it? " * 80_000}
    result = made(graph, huge, **options).invoke(asked)
    assert len(result["question"]) == len(result["original_question"]) == 8_000
    assert "the question was cut to its first 8,000 characters" in result["notes"]
    assert any("cut to the first 20,000 characters" in note for note in result["notes"])
    assert len(json.dumps(result, default=str)) < 2_000_000
    assert max(reading.read, default=0) < 70_000
    fixed = made(graph, PAGE, **options).invoke(
        {"question": "Who?", "documents": [PAGE] * 101}, context={"given_documents": 2}
    )
    assert "the first 2 of 101 given documents were taken" in fixed["notes"]
    assert len(fixed["passages"]) == 2


def grading(prompt: str) -> str:
    """A judge that keeps to the format and finds everything relevant."""
    asked = prompt[prompt.rindex("Question:") :]
    if "number=" not in asked:
        return "yes"
    return "\n".join(f"{i}: yes" for i in range(1, asked.count("<document number=") + 1))


def crag_cost(documents: list[Document], judge: Callable[[str], str]) -> tuple[int, int, Any]:
    """Calls and characters read of CRAG with a chat model that answers and grades."""
    reading = Reading(lambda p: judge(p) if "exact information" in p else "Austen [1].")
    model = RunnableLambda(reading)
    web = RetrieverWebSearch(lambda query: documents, "pages")
    graph = create_crag(model, lambda query: documents, ChatEvaluator(model), web)
    result = graph.invoke({"question": "Who wrote Emma?"})
    return len(reading.read), sum(reading.read), result


NORMAL = [document(f"Doc {i}", "Emma is a novel by Jane Austen of 1815. " * 50) for i in range(5)]


@pytest.mark.parametrize("text", ["Emma is by Jane Austen. ", "A b. ", "a b c d e f. ", "x", "\n"])
@pytest.mark.parametrize("judge", [grading, lambda prompt: "I would rather not."])
def test_a_hostile_document_costs_three_times_a_normal_one_at_most(text: str, judge: Any) -> None:
    calls, read, _ = crag_cost(NORMAL, judge)
    hostile = document("Hostile", text * (2_000_000 // len(text)))
    most_calls, most_read, result = crag_cost([hostile, *NORMAL[1:]], judge)
    assert most_calls <= 3 * calls
    assert most_read <= 3 * read
    assert any("cut to the first" in note for note in result["notes"])


def test_what_was_not_scored_is_said_and_no_document_starves() -> None:
    hostile = document("Hostile", "One two three four five six. " * 600)
    _, _, result = crag_cost([hostile, *NORMAL[1:]], grading)
    said = [note for note in result["notes"] if "scored_strips" in note]
    assert said == [
        f"100 of {said[0].split()[2]} strips of passages were scored, the first of each document "
        "(scored_strips)"
    ]
    of = [strip["document"] for strip in result["strips"]]
    assert len(of) == 100
    assert {i: of.count(i) for i in range(1, 5)} == dict.fromkeys(range(1, 5), 17)


def test_no_honest_run_meets_the_default_limit_of_calls() -> None:
    def write(prompt: str) -> str:
        return "no" if "Retrieval" not in prompt else "[Retrieval]"

    llm = PromptedReflectionLLM(Provider(answer=write), sentences=True, joined=False)
    pages = [document(f"Doc {i}", "Emma is a novel.") for i in range(20)]
    settings = SelfRAGSettings(passages=10, beam_width=2, depth=7)
    result = create_self_rag(llm, lambda query: pages, settings=settings).invoke(
        {"question": "Who wrote Emma?"}
    )
    assert result["stopped"] is None
    worst = settings.depth * llm.most_calls(settings.passages * settings.beam_width)
    assert 0 < total(result["costs"])["model_calls"] < worst < (settings.max_model_calls or 0)


def test_an_earlier_message_without_end_is_cut_for_the_follow_up() -> None:
    reading = Reading(lambda prompt: "Who wrote Emma?")
    graph = create_crag(
        chatting(),
        lambda query: [PAGE],
        WordEvaluator(),
        RetrieverWebSearch(lambda query: [PAGE], "pages"),
        follow_up=RunnableLambda(reading),
    )
    said = [HumanMessage("Who? " * 200_000), AIMessage("She. " * 200_000), HumanMessage("And he?")]
    assert graph.invoke({"messages": said})["question"] == "Who wrote Emma?"
    assert reading.read[0] < 10_000


def test_a_query_is_one_line_of_a_length() -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    app = made("crag", PAGE, checkpointer=InMemorySaver())
    app.invoke({"question": "Who?"}, config, context={"approve_search": True})
    result = app.invoke(Command(resume={"query": "x y\n" * 250_000}), config)
    assert result["web_query"] == ("x y " * 100).strip()


def test_a_title_or_metadata_without_end_costs_little() -> None:
    huge = Document(
        "a", metadata={"title": "\n" * 9_000_000, **dict.fromkeys(map(str, range(10**6)))}
    )
    begun = time.thread_time()
    (found,), _ = admit([huge], 20_000, "documents")
    cost = time.thread_time() - begun
    begun = time.thread_time()
    dict(huge.metadata)
    valid("a" * 10_000_000)
    assert cost < 20 * (time.thread_time() - begun)
    assert found.metadata["title"] == ""
    assert len(found.metadata) <= 1_001
