"""Nothing is searched for without the consent that is asked for: every way to ask and to reply."""

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag import CRAGSettings, SelfCRAGSettings, as_tool, create_crag, create_self_crag
from selfcorrect_rag.errors import NoCheckpointer
from selfcorrect_rag.prompts.approval import (
    CARRIERS,
    CONSENTS,
    REFUSALS,
    VERDICTS,
    approval_request,
    approved,
)
from tests.agents.scripted import asking, reflecting, tool_messages
from tests.crag_runs import AMBIGUOUS, INCORRECT, PagesWebSearch, WordEvaluator, document
from tests.scripted import echo
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "crag.md").read_text(encoding="utf-8")
QUERY = "wrote, Emma"
ASKED: Any = {"question": "Who wrote Emma?"}
THREAD: Any = {"configurable": {"thread_id": "1"}}
APPROVE = {"approve_search": True}
MEANS = {
    "search for the query": QUERY,
    "search for this instead": "Jane Austen novels",
    "do not search": None,
    "do not search: it is not clear": None,
}


def documented() -> list[tuple[Any, str | None]]:
    """Every reply in the table of the docs, with the query that is then searched for."""
    table = PAGE.split("| reply | means |")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if "`" in line]
    return [
        (ast.literal_eval(reply), MEANS[means.strip()])
        for replies, means in rows
        for reply in re.findall(r"`(.+?)`", replies)
    ]


SAY_YES: list[Any] = [
    True,
    "yes",
    "Yes.",
    " YES! ",
    "y",
    "ok",
    "OK",
    "sure",
    "approve",
    "Approved.",
    "yes please",
]
SAY_YES += ["go ahead", "of course", "true", "ja", {"approve": True}, {"approve": "yes"}]
SAY_YES += [{"action": "approve"}, {"decisions": [{"type": "approve"}]}, {"type": "accept"}]
SAY_YES += [[{"type": "accept", "args": None}], {"approve": True, "query": ""}]
SAY_NO: list[Any] = [
    False,
    None,
    "",
    "  \n",
    "no",
    "No.",
    "NO!",
    "nope",
    "n",
    "cancel",
    "Cancel it",
    "stop",
]
SAY_NO += [
    "no thanks, don't",
    "please don’t",
    "thanks, but no",
    "I'd rather not",
    "do not search",
]
SAY_NO += [
    "not now",
    "never",
    "Reject",
    "skip",
    "false",
    "none",
    "nein",
    "non, merci",
    "不要搜索",
]
SAY_NO += ["absolutely not", "under no circumstances may this leave my machine", "can't"]
SAY_NO += [
    "yes, but only about Emma",
    "yes no",
    "yes?",
    "?",
    "...",
    "👍",
    "x",
    "please",
    "x" * 201,
]
SAY_NO += [0, 1, 1.0, [], ["yes", "no"], {}, {"approve": False}, {"approve": None}]
SAY_NO += [{"approve": False, "query": "Jane Austen"}, {"approve": "Jane Austen"}]
SAY_NO += [{"action": "reject"}, {"type": "ignore", "args": None}, {"query": ""}, {"query": "no"}]
SAY_NO += [
    {"query": 3},
    {"query": None},
    {"feedback": "fine"},
    {"action": QUERY},
    {"type": "edit"},
]
SAY_NO += [
    {"decisions": [{"type": "reject", "message": "no"}]},
    [{"type": "response", "args": "no"}],
]
SAY_NO += [{"decisions": [{"type": "approve"}, {"type": "reject"}]}, {"decisions": []}]
SAY_NO += [
    "don´t",
    "don`t search",
    "do_not_search",
    "no_thanks",
    "ｎｏ",
    "ｎｏ ｔｈａｎｋｓ",
    "nooo thanks",
]
SAY_NO += ["I want to cancel", "I'd like to cancel", "please do cancel", "can we stop", "forget it"]
SAY_NO += ["negative", "pass", "nevermind", "disagree", "maybe later", "give me a second"]
SAY_NO += [
    "لا",
    "לא שכרה",
    "hayır teşekkürler",
    "όχι ευχαριστώ",
    "नहीं चाहिए",
    "검색하지 마세요",
    "ei kiitos",
]
SAY_NO += ["why?", "what is this?", "who is Jane Austen?", "what is this", "who are you"]
SAY_NO += [
    "search ❌",
    "👎 ok",
    "yes 🙅",
    "is that ok",
    "you agree",
    "do you approve",
    "do it",
    "good",
]
SAY_NO += [
    "sounds good",
    "it's ok",
    "Emma",
    "Jane Austen 👎",
    {"query": "do not"},
    {"query": "don´t"},
]
SAY_NO += [{"query": "please do not search"}, {"approve": True, "query": "stop it"}]
SAY_NO += [{"approve": True, "reject": True}, {"approve": True, "message": "no, wait"}]
SAY_NO += [{"decisions": [{"type": "approve"}], "approve": False}, {"args": {"query": "Emma"}}]
SAY_NO += [{"type": "edit", "args": {"query": "Emma", "search": False}}, {"choice": "query"}]
SAY_NO += [{"type": "edit", "query": "Emma", "args": {"query": "Ulysses"}}]
SAY_YES += ["yes, thank you", "ＹＥＳ", "yesss", {"choice": "yes"}]
OTHERS: list[tuple[Any, str]] = [
    ("Jane Austen novels", "Jane Austen novels"),
    (" Emma, author ", "Emma, author"),
    ("Émile Zola: novels & plays", "Émile Zola: novels & plays"),
    ({"query": "The Who"}, "The Who"),
    ({"query": "Never Let Me Go"}, "Never Let Me Go"),
    ({"choice": "query", "query": "Emma"}, "Emma"),
    ({"query": "No Country for Old Men"}, "No Country for Old Men"),
    ({"approve": True, "query": "Emma"}, "Emma"),
    (
        [{"type": "edit", "args": {"action": "web_search", "args": {"query": "Emma"}}}],
        "Emma",
    ),
    (
        {
            "decisions": [
                {"type": "edit", "edited_action": {"name": "w", "args": {"query": "Emma"}}}
            ]
        },
        "Emma",
    ),
    ([{"type": "response", "args": "Emma novel"}], "Emma novel"),
]
REPLIES: list[tuple[Any, str | None]] = [
    *documented(),
    *((reply, QUERY) for reply in SAY_YES),
    *((reply, None) for reply in SAY_NO),
    *OTHERS,
]


@pytest.mark.parametrize(("reply", "query"), REPLIES, ids=str)
def test_a_reply_means_what_it_says(reply: Any, query: str | None) -> None:
    assert approved(reply, QUERY) == query


WORDS = st.text("abcdefghij ,.?!’'", max_size=30)


APOSTROPHES = st.sampled_from("'’‘´`ʼ＇")


@given(before=WORDS, after=WORDS, word=st.sampled_from([*sorted(REFUSALS), "do_not", "isn't"]))
def test_a_word_of_refusal_anywhere_refuses(before: str, after: str, word: str) -> None:
    for said in (f"{before} {word} {after}", f"{before}, {word.upper()}. {after}"):
        assert approved(said, QUERY) is None
        assert approved([{"type": "response", "args": said}], QUERY) is None


@given(mark=APOSTROPHES, verb=st.sampled_from(["do", "wo", "should", "ai"]))
def test_every_apostrophe_negates(mark: str, verb: str) -> None:
    for said in (f"please {verb}n{mark}t search the web", f"Jane Austen, {verb}n{mark}t"):
        assert approved(said, QUERY) is None
    assert approved({"query": f"please {verb}n{mark}t"}, QUERY) is None


@given(reply=st.text(max_size=30), mark=st.characters(exclude_categories=["L", "Z", "Cc"]))
def test_what_is_no_plain_text_is_no_consent(reply: str, mark: str) -> None:
    """Such as an emoji, which may deny what the words say."""
    if not mark.isascii():
        for said in (f"yes {mark}", f"{mark} ok", f"{reply} {mark} yes"):
            assert approved(said, QUERY) is None, said


@given(text=st.text("abcdeéß 019.,-?أлか❌", max_size=40), word=st.sampled_from(sorted(CONSENTS)))
def test_a_bare_text_is_a_query_only_where_it_can_be_nothing_else(text: str, word: str) -> None:
    query = approved(text, QUERY)
    if query is not None and query != QUERY:  # a consent, such as "da"
        assert query == text.strip()
        assert len(query.split()) > 1 or re.search(r"\w\W+\w", query)
        assert not set("?أлか❌") & set(query)
    assert approved(f"{word} {text} x", QUERY) is None, "half a consent"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(rest=st.dictionaries(st.text(max_size=8), JSON, max_size=3), key=st.sampled_from(VERDICTS))
def test_a_verdict_of_no_stands_whatever_is_beside_it(rest: dict[str, Any], key: str) -> None:
    for no in (False, "no", "reject", "", None, 0):
        assert approved({**rest, key: no, "query": "Jane Austen"}, QUERY) is None


@given(key=st.text(max_size=8) | st.integers(), value=JSON, verdict=st.sampled_from(VERDICTS))
def test_a_key_that_is_not_known_may_say_no(key: Any, value: Any, verdict: str) -> None:
    if key in {*VERDICTS, *CARRIERS, "decisions"}:
        return
    for reply in ({"query": "Emma"}, {verdict: True}, {verdict: True, "query": "Emma"}):
        assert approved({**reply, key: value}, QUERY) is None
        assert approved({"decisions": [reply], key: value}, QUERY) is None
        call = {"name": "search", "args": {"query": "Emma", key: value}}
        assert approved({"type": "edit", "edited_action": call}, QUERY) is None


def test_the_value_of_the_pause_is_no_reply() -> None:
    value = approval_request(QUERY, "pages")
    for choice in ("yes", "no", "query", False, True):
        assert approved({**value, "choice": choice}, QUERY) is None
    assert approved(value, QUERY) is None


def texts_in(reply: Any) -> set[str]:
    if isinstance(reply, dict | list):
        inner = reply.values() if isinstance(reply, dict) else reply
        return {text for value in inner for text in texts_in(value)}
    return {reply.strip()} if isinstance(reply, str) else set()


@given(reply=JSON)
def test_no_reply_is_an_error_or_makes_up_a_query(reply: Any) -> None:
    assert approved(reply, QUERY) in {None, QUERY, *texts_in(reply)}
    query = approved(reply, QUERY)
    if not isinstance(reply, str | dict | list):
        assert (query is not None) == (reply is True)


Texts = list[str]
Build = Callable[..., Any]


def crag(web: Any, texts: Texts = AMBIGUOUS, **options: Any) -> Any:
    return create_crag(
        echo(), lambda query: [document(text) for text in texts], WordEvaluator(), web, **options
    )


def self_crag(web: Any, texts: Texts = AMBIGUOUS, **options: Any) -> Any:
    return create_self_crag(
        reflecting(),
        lambda query: [document(text) for text in texts],
        WordEvaluator(),
        web,
        **options,
    )


GRAPHS: dict[str, tuple[Build, Any]] = {
    "crag": (crag, CRAGSettings),
    "self_crag": (self_crag, SelfCRAGSettings),
}
EVERY = pytest.mark.parametrize("name", GRAPHS)
WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


async def run(graph: Any, asynchronous: bool, *args: Any, **options: Any) -> Any:
    return await graph.ainvoke(*args, **options) if asynchronous else graph.invoke(*args, **options)


def queries(web: PagesWebSearch) -> list[str]:
    return [query for query, _ in web.queries]


CONTEXTS: list[dict[str, Any] | None] = [
    None,
    {},
    {"approve_search": True},
    {"approve_search": False},
    {"web_results": 1},
]


@EVERY
@WAYS
@settings(max_examples=40, deadline=None)
@given(
    default=st.booleans(),
    first=st.sampled_from(CONTEXTS),
    second=st.sampled_from(CONTEXTS),
    goes_on_first=st.booleans(),
    reply=st.sampled_from([r for r in REPLIES if r[0] not in (None, {})]),
    texts=st.sampled_from([AMBIGUOUS, INCORRECT]),
)
async def test_a_query_leaves_only_with_consent_where_it_is_asked_for(
    name: str,
    asynchronous: bool,
    default: bool,
    first: Any,
    second: Any,
    goes_on_first: bool,
    reply: tuple[Any, str | None],
    texts: Texts,
) -> None:
    build, kind = GRAPHS[name]
    web = PagesWebSearch()
    graph = build(web, texts, settings=kind(approve_search=default), checkpointer=InMemorySaver())
    asks = (first or {}).get("approve_search", default)
    await run(graph, asynchronous, ASKED, THREAD, context=first)
    if not asks:
        assert queries(web) == [QUERY]
        return
    if goes_on_first:  # without a reply there is no consent
        await run(graph, asynchronous, None, THREAD, context=second)
    assert not queries(web)
    (pause,) = graph.get_state(THREAD).interrupts
    assert pause.value == approval_request(QUERY, "pages")
    assert set(pause.value["choices"]) == {"yes", "no", "query"}
    said, query = reply
    result = await run(graph, asynchronous, Command(resume=said), THREAD, context=second)
    assert queries(web) == ([] if query is None else [query])
    assert bool(result["web_results"]) is (query is not None)
    assert (result["web_failure"] == "the search was not approved") is (query is None)
    assert result["web_query"] == query or query is None
    assert result["answer"]


@EVERY
@WAYS
async def test_the_docs_table_is_true_of_runs(name: str, asynchronous: bool) -> None:
    build, kind = GRAPHS[name]
    for reply, query in [*documented(), (None, None)]:
        web = PagesWebSearch()
        graph = build(web, settings=kind(**APPROVE), checkpointer=InMemorySaver())
        (pause,) = (await run(graph, asynchronous, ASKED, THREAD))["__interrupt__"]
        await run(graph, asynchronous, Command(resume={}), THREAD)
        said = {pause.id: None} if reply is None else reply
        result = await run(graph, asynchronous, Command(resume=said), THREAD)
        assert "__interrupt__" not in result
        assert queries(web) == ([] if query is None else [query]), reply


@EVERY
@WAYS
@pytest.mark.parametrize("said", ["no", "yes"])
async def test_a_reply_outlives_a_crash_before_the_search(
    name: str, asynchronous: bool, said: str
) -> None:
    class Crash(BaseException):
        """A kill, for which no except clause is."""

    class Crashing(PagesWebSearch):
        crashed = False

        def search(self, query: str, k: int) -> Any:
            if not self.crashed:
                self.crashed = True
                raise Crash
            return super().search(query, k)

    build, _ = GRAPHS[name]
    web = Crashing()
    graph = build(web, checkpointer=InMemorySaver())
    await run(graph, asynchronous, ASKED, THREAD, context=APPROVE, durability="sync")
    try:
        result = await run(graph, asynchronous, Command(resume=said), THREAD, durability="sync")
    except Crash:
        assert said == "yes"
        result = await run(graph, asynchronous, None, THREAD)
    assert queries(web) == ([QUERY] if said == "yes" else [])
    assert "__interrupt__" not in result


@EVERY
@WAYS
@pytest.mark.parametrize("said", ["no", "yes"])
async def test_a_run_that_was_stopped_before_the_search_still_asks(
    name: str, asynchronous: bool, said: str
) -> None:
    """As by a kill: the context of the first run is not given again."""
    build, _ = GRAPHS[name]
    for node in ("read_question", "grade_documents", "rewrite_query", "web_search"):
        web, saver = PagesWebSearch(), InMemorySaver()
        stopped = build(web, checkpointer=saver, interrupt_before=[node])
        await run(stopped, asynchronous, ASKED, THREAD, context=APPROVE)
        graph = build(web, checkpointer=saver)
        for _ in range(2):
            assert "__interrupt__" in await run(graph, asynchronous, None, THREAD)
        await run(graph, asynchronous, Command(resume=said), THREAD)
        assert queries(web) == ([QUERY] if said == "yes" else [])


@EVERY
@WAYS
async def test_an_edit_of_a_thread_takes_no_approval_back(name: str, asynchronous: bool) -> None:
    build, _ = GRAPHS[name]
    web = PagesWebSearch()
    graph = build(web, checkpointer=InMemorySaver())
    await run(graph, asynchronous, ASKED, THREAD, context=APPROVE)
    start = next(s for s in graph.get_state_history(THREAD) if s.next == ("read_question",))
    edited = graph.update_state(start.config, ASKED, as_node="__start__")
    assert "__interrupt__" in await run(graph, asynchronous, None, edited)
    assert queries(web) == []
    # A thread that begins with an edit has the factory's settings.
    other: Any = {"configurable": {"thread_id": "2"}}
    graph.update_state(other, ASKED, as_node="__start__")
    result = await run(graph, asynchronous, None, other)
    assert "__interrupt__" not in result


@EVERY
@WAYS
@pytest.mark.parametrize("said", ["no", "yes"])
async def test_a_fork_may_ask_for_approval(name: str, asynchronous: bool, said: str) -> None:
    build, _ = GRAPHS[name]
    for texts in (AMBIGUOUS, INCORRECT):
        web = PagesWebSearch()
        graph = build(web, texts, checkpointer=InMemorySaver())
        await run(graph, asynchronous, ASKED, THREAD)
        for node in ("retrieve", "grade_documents", "rewrite_query", "web_search"):
            web.queries.clear()
            states = list(graph.get_state_history(THREAD))
            point = next(s for s in reversed(states) if node in s.next)
            forked = await run(graph, asynchronous, None, point.config, context=APPROVE)
            assert "__interrupt__" in forked, node
            assert "__interrupt__" in await run(graph, asynchronous, None, THREAD), "kept"
            result = await run(graph, asynchronous, Command(resume=said), THREAD)
            assert queries(web) == ([QUERY] if said == "yes" else []), node
            assert bool(result["web_results"]) is (said == "yes")
            assert "__interrupt__" not in result, "asked once"


@EVERY
@WAYS
async def test_a_new_turn_asks_for_itself(name: str, asynchronous: bool) -> None:
    build, _ = GRAPHS[name]
    web = PagesWebSearch()
    graph = build(web, checkpointer=InMemorySaver())
    for _ in range(2):
        await run(graph, asynchronous, ASKED, THREAD, context=APPROVE)
        assert not queries(web), "what was left waiting is no consent, and no refusal"
    await run(graph, asynchronous, Command(resume="yes"), THREAD)
    assert "__interrupt__" in await run(graph, asynchronous, ASKED, THREAD, context=APPROVE)
    assert queries(web) == [QUERY]
    await run(graph, asynchronous, ASKED, THREAD)
    assert queries(web) == [QUERY, QUERY], "a turn that does not ask searches"


@EVERY
@WAYS
async def test_without_a_checkpointer_nothing_is_sent(name: str, asynchronous: bool) -> None:
    build, kind = GRAPHS[name]
    for options, context in (({"settings": kind(**APPROVE)}, None), ({}, APPROVE)):
        web = PagesWebSearch()
        with pytest.raises(NoCheckpointer, match="create the graph with a checkpointer") as raised:
            await run(build(web, **options), asynchronous, ASKED, context=context)
        assert "\n" not in str(raised.value)
        assert not queries(web)


@EVERY
@WAYS
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("said", "query"), [("no", None), ("yes", QUERY), (False, None)])
async def test_in_a_chat_agent(
    name: str, asynchronous: bool, context: Any, said: Any, query: str | None
) -> None:
    build, kind = GRAPHS[name]
    web = PagesWebSearch()
    tools = [as_tool(build(web), context="agent"), as_tool(build(web), name="own", context=APPROVE)]
    agent: Any = create_agent(
        asking(name, ASKED["question"]), tools, context_schema=kind, checkpointer=InMemorySaver()
    )
    given: Any = {"messages": [("human", "Go on.")]}
    await run(agent, asynchronous, given, THREAD, context=kind(**APPROVE))
    assert not queries(web)
    kept = None if context is None else kind(**context)
    result = await run(agent, asynchronous, Command(resume=said), THREAD, context=kept)
    assert queries(web) == ([] if query is None else [query])
    (told,) = tool_messages(result)
    assert ("not approved" in told.artifact["web_failure"]) is (query is None)


def test_the_docs_ask_and_hear() -> None:
    _, block = BLOCK.findall(PAGE)
    web = PagesWebSearch()
    parts = {"llm": echo(), "retriever": lambda query: [document("Vague.")]}
    for line, sent in (('resume="no"', []), ('resume="yes"', [QUERY])):
        names: dict[str, Any] = {
            **parts, "evaluator": WordEvaluator(), "web": web, "create_crag": create_crag
        }  # fmt: skip
        exec(compile(block.replace('resume="no"', line), "crag.md", "exec"), names)
        assert queries(web) == sent
        assert names["pause"].value["query"] == QUERY
