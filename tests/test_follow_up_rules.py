"""Follow-up questions by rule: as people type them, hostile ones, and through the graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.follow_up.standalone import LONGEST, MOST_TURNS, standalone_question
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.reader.scripted_reader import reader_llm

CONVERSATIONS = Path(__file__).parent / "data" / "follow_ups.txt"
REFUSAL = "The documents do not say."


def conversations() -> list[tuple[str, str]]:
    """Each conversation, and its last question as it stands alone."""
    lines = CONVERSATIONS.read_text(encoding="utf-8").splitlines()
    rows = [line.partition(" => ") for line in lines if line and not line.startswith("#")]
    return [(talk, alone or talk.split(" | ")[-1]) for talk, _, alone in rows]


def alone(talk: str) -> str:
    """What the rule makes of a conversation's last question."""
    *said, question = talk.split(" | ")
    earlier = [("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
    return standalone_question(earlier, question)


@pytest.mark.parametrize(("talk", "standalone"), conversations())
def test_conversations(talk: str, standalone: str) -> None:
    assert alone(talk) == standalone


def test_there_are_enough_of_both_kinds() -> None:
    kept = [talk for talk, standalone in conversations() if talk.endswith(standalone)]
    assert len(kept) > 80
    assert len(conversations()) - len(kept) > 180


def test_a_question_that_stays_keeps_its_spaces() -> None:
    question = "  Who  wrote\nUlysses?  "
    assert standalone_question([("user", "Who wrote Emma?")], question) == question


def test_citation_marks_are_no_part_of_a_name() -> None:
    for answer in (
        "Jane Austen [1][12].",
        "Jane Austen [1], [2?]",
        "Jane Austen [3]\n\nSources: A",
    ):
        earlier = [("user", "Who wrote Emma?"), ("assistant", answer)]
        assert standalone_question(earlier, "When did she die?") == "When did Jane Austen die?"


@pytest.mark.parametrize("refusal", [REFUSAL, "I don't know.", "", "yes", "It is Not Known"])
def test_who_was_not_named_is_nobody(refusal: str) -> None:
    earlier = [("user", "Who wrote Emma?"), ("assistant", refusal)]
    assert standalone_question(earlier, "When did she die?") == "When did she die?"


def test_several_messages_of_one_side() -> None:
    earlier = [
        ("assistant", "Hello!"),
        ("user", "Who wrote Emma?"),
        ("user", "Who wrote Ulysses?"),
        ("assistant", "James Joyce"),
        ("assistant", "Jane Austen"),
    ]
    assert standalone_question(earlier, "Where was he born?") == "Where was James Joyce born?"


def test_a_chain_keeps_its_topic_for_as_many_turns_as_are_read() -> None:
    chain = [("user", "Who wrote Emma?"), ("assistant", "Jane Austen")]
    chain += [("user", "When was it printed?"), ("assistant", "1815")] * (MOST_TURNS - 1)
    assert standalone_question(chain, "And where?") == "And where was Emma printed?"
    assert standalone_question(chain, "How old was she?") == "How old was Jane Austen?"
    longer = [*chain, ("user", "When was it printed?"), ("assistant", "1815")]
    assert standalone_question(longer, "And where?") == "And where?"


def test_what_is_too_long_is_neither_rewritten_nor_referred_to() -> None:
    filled = "Who wrote Emma " + "and so on " * LONGEST + "?"
    assert alone(f"{filled} | Jane Austen | When was it printed?") == "When was it printed?"
    question = "When was it printed " + "and so on " * LONGEST + "?"
    assert alone(f"Who wrote Emma? | Jane Austen | {question}") == question


@pytest.mark.parametrize(
    "hostile",
    [
        "A " * 150,
        "Ab of the " * 30,
        "the " * 75,
        "is the in the " * 20,
        "it's " * 60,
        "'" * 300,
        "((((" * 75,
        "emma( wrote()( f(x",
        "[1]" * 100,
        "\ud800?",
        "\x00\u202e?",
        "?",
        " ",
        "",
    ],
)
def test_hostile_texts_are_read(hostile: str) -> None:
    """Anywhere in the conversation: nothing raises, and what is written stays bounded."""
    for talk in (
        [hostile, "Jane Austen", "When was it printed?"],
        ["Who wrote Emma?", hostile, "When did she die?"],
        ["Who wrote Emma?", "Jane Austen", hostile],
        ["Who wrote Emma?", "Jane Austen", f"And {hostile}?", "", "Why?"],
        [f"Which port does the {hostile} use?", "1", "Why?", "2", "Since when?"],
    ):
        said = [("assistant" if i % 2 else "user", text) for i, text in enumerate(talk[:-1])]
        assert len(standalone_question(said, talk[-1])) < 10 * LONGEST


PAGES = [document("A gold coin. Emma was written by Jane Austen.", "Emma")]
MAKES: dict[str, Callable[..., Any]] = {
    "self_rag": lambda llm, find, **kept: create_self_rag(llm, find, **kept),
    "crag": lambda llm, find, **kept: create_crag(
        llm, find, WordEvaluator(), PagesWebSearch(), **kept
    ),
    "self_crag": lambda llm, find, **kept: create_self_crag(
        llm, find, WordEvaluator(), PagesWebSearch(), **kept
    ),
    "instruct_rag": lambda llm, find, **kept: create_instruct_rag(llm, find, **kept),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", MAKES)
async def test_the_reader_is_asked_what_stands_alone(name: str, asynchronous: bool) -> None:
    queries: list[str] = []

    def find(query: str) -> Any:
        queries.append(query)
        return PAGES

    llm, scripted = reader_llm({"Jane Austen": 0.9})
    graph = MAKES[name](llm, find, follow_up=standalone_question, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}

    async def ask(text: str) -> Any:
        given = {"messages": [HumanMessage(text)]}
        if asynchronous:
            return await graph.ainvoke(given, thread)
        return graph.invoke(given, thread)

    first = await ask("Who wrote Emma?")
    assert first["answer"] == "Jane Austen"
    before = len(scripted.calls)
    second = await ask("When was it printed?")
    assert second["question"] == "When was Emma printed?"
    assert second["original_question"] == "When was it printed?"
    assert queries == ["Who wrote Emma?", "When was Emma printed?"]
    asked = {question for call in scripted.calls[before:] for question, _ in call}
    assert asked == {"When was Emma printed?"}
    assert second["costs"]["rewrite_follow_up"]["model_calls"] == 0
    assert second["notes"] == first["notes"]
    third = await ask("Who was her sister?")
    assert third["question"] == "Who was Jane Austen's sister?"
