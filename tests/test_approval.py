"""Nothing is searched for without the consent that is asked for."""

import json
from itertools import product
from types import SimpleNamespace as Own
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.nodes.web_search import web_search
from selfcorrect_rag.settings import CRAGSettings
from tests.agents.scripted import reflecting
from tests.crag_runs import AMBIGUOUS, INCORRECT, PagesSearch, WordEvaluator, document
from tests.four_graphs import create
from tests.scripted import THREAD, echo
from tests.test_faults import ASKED, CORRECTING, FORMS, ask

QUERY = "wrote, Emma"
APPROVE: Any = {"approve_search": True}
NO_THREAD = "^approve_search: .*needs a checkpointer and a thread_id"


def build(name: str, web: Any, texts: list[str] = AMBIGUOUS, **options: Any) -> Any:
    found = [document(text) for text in texts]
    return create(name, reflecting(), echo(), lambda query: found, WordEvaluator(), web, **options)


def queries(web: PagesSearch) -> list[str]:
    return [query for query, _ in web.queries]


EVERY = pytest.mark.parametrize(("name", "form"), [*product(CORRECTING, ("sync", "async"))])
# tests/test_reading_text.py has all forms
REPLIES: list[Any] = [(True, QUERY), ({"query": "Jane"}, "Jane"), (False, None), (None, None)]


@EVERY
@pytest.mark.parametrize("texts", [AMBIGUOUS, INCORRECT], ids=["ambiguous", "incorrect"])
@pytest.mark.parametrize(("reply", "query"), REPLIES)
async def test_a_query_leaves_only_with_consent(
    name: str, form: str, texts: list[str], reply: Any, query: str | None
) -> None:
    web = PagesSearch()
    graph = build(name, web, texts, checkpointer=InMemorySaver())
    await ask(graph, form, ASKED, THREAD, context=APPROVE)
    await ask(graph, form, None, THREAD)  # without a reply there is no consent
    assert not queries(web)
    (pause,) = graph.get_state(THREAD).interrupts
    assert pause.value == {"ask": "search the web?", "query": QUERY, "source": "pages"}
    assert pause.response_schema["properties"].keys() == {"approve", "query"}
    json.dumps(pause.value)
    # The context of a resumed run takes no approval back.
    context = {"approve_search": False}
    result = await ask(graph, form, Command(resume=reply), THREAD, context=context)
    assert queries(web) == ([] if query is None else [query])
    assert result["web_query"] == (query or QUERY)
    assert bool(result["web_results"]) is (query is not None)
    assert (result["web_failure"] == "the search was not approved") is (query is None)
    assert result["answer"]


@EVERY
async def test_a_killed_run_still_asks(name: str, form: str) -> None:
    for node in ("grade_documents", "rewrite_query", "web_search"):
        web, saver = PagesSearch(), InMemorySaver()
        stopped = build(name, web, checkpointer=saver, interrupt_before=[node])
        await ask(stopped, form, ASKED, THREAD, context=APPROVE)
        graph = build(name, web, checkpointer=saver)
        for _ in range(2):
            assert "__interrupt__" in await ask(graph, form, None, THREAD)
        await ask(graph, form, Command(resume=False), THREAD)
        assert queries(web) == []


@EVERY
async def test_a_fork_may_ask_for_approval(name: str, form: str) -> None:
    web = PagesSearch()
    graph = build(name, web, checkpointer=InMemorySaver())
    await ask(graph, form, ASKED, THREAD)
    web.queries.clear()
    point = next(s for s in graph.get_state_history(THREAD) if "grade_documents" in s.next)
    remedy = r"^approve_search: .* by graph\.update_state\(config, .*True"
    with pytest.raises(BadSettings, match=remedy):
        await ask(graph, form, None, point.config, context=APPROVE)
    fork = graph.update_state(point.config, {"settings": APPROVE})
    assert "__interrupt__" in await ask(graph, form, None, fork)
    await ask(graph, form, Command(resume=False), THREAD)
    assert queries(web) == []


@EVERY
async def test_a_new_turn_asks_for_itself(name: str, form: str) -> None:
    web = PagesSearch()
    graph = build(name, web, checkpointer=InMemorySaver())
    for _ in range(2):  # an abandoned pause is neither consent nor refusal
        await ask(graph, form, ASKED, THREAD, context=APPROVE)
        assert not queries(web)
    await ask(graph, form, Command(resume=True), THREAD)
    assert "__interrupt__" in await ask(graph, form, ASKED, THREAD, context=APPROVE)
    assert queries(web) == [QUERY]
    await ask(graph, form, ASKED, THREAD)
    assert queries(web) == [QUERY, QUERY], "a turn that does not ask searches"


@FORMS
async def test_what_an_abandoned_pause_left_to_do_is_not_done(form: str) -> None:
    graph = build("self_crag", PagesSearch(), checkpointer=InMemorySaver())
    await ask(graph, form, ASKED, THREAD, context=APPROVE)
    result = await ask(graph, form, ASKED, THREAD, context={"mode": "never"})
    steps = [step["step"] for step in result["route"]]
    assert steps[-2:] == ["write_answer", "recompose_knowledge"]
    assert steps.count("generate_and_critique") == 1


@EVERY
async def test_without_a_checkpointer_nothing_is_sent(name: str, form: str) -> None:
    for options, context in (({"settings": APPROVE}, None), ({}, APPROVE), ({}, Own(**APPROVE))):
        web = PagesSearch()
        with pytest.raises(BadSettings, match=NO_THREAD):
            await ask(build(name, web, **options), form, ASKED, context=context)
        assert not queries(web)
    node = web_search(PagesSearch(), CRAGSettings(approve_search=True))
    with pytest.raises(BadSettings, match=NO_THREAD):
        await ask(node, form, ASKED, {"tags": ["a config without configurable"]})
