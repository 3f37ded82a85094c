"""The route read off a result is the route that the graph took."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag import (
    create_crag,
    create_instruct_rag,
    create_self_crag,
    create_self_rag,
    render_route,
    render_run,
)
from selfcorrect_rag.render.route import route_of
from selfcorrect_rag.state import Segment
from tests.crag_runs import AMBIGUOUS, CORRECT, INCORRECT, PagesWebSearch, WordEvaluator, document
from tests.durability.runs import RUNS, Calls, built
from tests.instruct_runs import DEMONSTRATIONS, documents
from tests.render.conftest import Run, streamed
from tests.render.pages import HOSTILE, Page, rationale_of, result_of
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, echo, segment
from tests.scripted import document as titled
from tests.test_beam import AGAIN, ENOUGH, KEEP, two_segments

QUESTION = {"question": "Who wrote Emma?"}
A, B = titled("A"), titled("B")


def nodes(result: dict[str, Any]) -> list[str]:
    return [step.node for step in route_of(result)]


def same(run: Run) -> None:
    """The route is the nodes that ran; side by side, either may be first."""
    result, ran = run
    found = nodes(result)
    assert Counter(found) == Counter(ran)
    side_by_side = {"refine_strips", "web_search", "select_web_strips"}
    assert [n for n in found if n not in side_by_side] == [n for n in ran if n not in side_by_side]


@pytest.mark.parametrize("graph", ["self_rag", "crag", "self_crag", "instruct_rag"])
def test_real_runs(graph: str, runs: dict[str, Run]) -> None:
    same(runs[graph])


def keeps(prompt: str) -> Segment:
    if prompt.count("[Relevant]"):
        return segment("Second.", FULL, USEFUL)
    return segment("First.", RELEVANT, FULL, next=KEEP)


def goes_on(prompt: str) -> Segment:
    if "First." in prompt:
        return segment("Second.", USEFUL)
    return segment("First.", RELEVANT, FULL, next=ENOUGH)


def asks_late(prompt: str) -> Segment:
    if "<paragraph>" in prompt:
        return segment("Found.", RELEVANT, FULL, USEFUL)
    return segment("From memory.", next=AGAIN)


@pytest.mark.parametrize("write", [two_segments, keeps, goes_on, asks_late])
@pytest.mark.parametrize("retrieval", [0.9, 0.1])
@pytest.mark.parametrize("found", [[A, B], []])
def test_self_rag(write: Any, retrieval: float, found: list[Any]) -> None:
    llm = ScriptedReflectionLLM(write=write, retrieval=retrieval)
    graph = create_self_rag(llm, lambda query: found)
    same(streamed(graph, QUESTION, context={"depth": 3}))


LATE = [name for name, run in RUNS.items() if run.fails_late]


@pytest.mark.parametrize("name", LATE)
def test_what_fails_late(name: str, tmp_path: Path) -> None:
    graph = built(RUNS[name], Calls(tmp_path / "calls"), None)
    run = streamed(graph, QUESTION, context=RUNS[name].context)
    same(run)
    assert [step.outcome for step in route_of(run[0])].count("failed") == 1


def test_each_turn_of_a_thread_has_a_route_of_its_own_also_from_a_cache() -> None:
    graph = create_self_rag(
        ScriptedReflectionLLM(write=two_segments),
        lambda query: [A, B],
        checkpointer=InMemorySaver(),
        cache=InMemoryCache(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    turns = [streamed(graph, QUESTION, config=config) for _ in range(2)]
    for turn in turns:
        same(turn)
    assert turns[0][0]["route"] == turns[1][0]["route"]
    point = next(s for s in graph.get_state_history(config) if s.next == ("write_answer",))
    forked = graph.invoke(None, point.config)
    assert forked["route"] == turns[1][0]["route"]


@pytest.mark.parametrize("texts", [CORRECT, AMBIGUOUS, INCORRECT, []])
@pytest.mark.parametrize("failure", [None, OSError("no network")])
def test_crag(texts: list[str], failure: Exception | None) -> None:
    graph = create_crag(
        echo(),
        lambda query: [document(text) for text in texts],
        WordEvaluator(),
        PagesWebSearch(failure),
    )
    same(streamed(graph, QUESTION))


@pytest.mark.parametrize("texts", [CORRECT, AMBIGUOUS, INCORRECT])
@pytest.mark.parametrize("write", [two_segments, asks_late])
@pytest.mark.parametrize("retrieval", [0.9, 0.1])
@pytest.mark.parametrize("contexts", ["action", "all"])
def test_self_crag(texts: list[str], write: Any, retrieval: float, contexts: str) -> None:
    graph = create_self_crag(
        ScriptedReflectionLLM(write=write, retrieval=retrieval),
        lambda query: [document(text) for text in texts],
        WordEvaluator(),
        PagesWebSearch(),
    )
    same(streamed(graph, QUESTION, context={"contexts": contexts}))


@pytest.mark.parametrize("mode", ["icl", "ft", "instruct", "no_retrieval", "ralm", "few_shot"])
@pytest.mark.parametrize("titles", [["Middlemarch", "Emma"], []])
def test_instruct_rag(mode: str, titles: list[str]) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(titles), DEMONSTRATIONS)
    same(streamed(graph, QUESTION, context={"mode": mode}))


@pytest.mark.parametrize("node", ["grade_documents", "rewrite_query", "web_search", "generate"])
def test_a_run_that_stopped_has_the_route_so_far(node: str) -> None:
    graph = create_crag(
        echo(),
        lambda query: [document(text) for text in INCORRECT],
        WordEvaluator(),
        PagesWebSearch(),
        checkpointer=InMemorySaver(),
        interrupt_before=[node],
    )
    same(streamed(graph, QUESTION, config={"configurable": {"thread_id": "1"}}))


def test_a_search_that_waits_for_a_person() -> None:
    graph = create_crag(
        echo(),
        lambda query: [document(text) for text in INCORRECT],
        WordEvaluator(),
        PagesWebSearch(),
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    paused = graph.invoke(QUESTION, config, context={"approve_search": True})  # type: ignore[arg-type]
    assert nodes(paused)[-1] == "rewrite_query"
    page = Page(render_run(paused)).text
    assert "Paused ask: search the web?, query: wrote, Emma, source: pages" in page
    assert "Not searched yet: wrote, Emma" in page
    done = graph.invoke(Command(resume="yes"), config, context={"approve_search": True})  # type: ignore[arg-type]
    assert nodes(done)[-1] == "generate"
    assert "Paused" not in Page(render_run(done)).text


def test_each_candidate_knows_the_one_it_continues() -> None:
    llm = ScriptedReflectionLLM(write=two_segments)
    result = create_self_rag(llm, lambda query: [A, B]).invoke(QUESTION)  # type: ignore[arg-type]
    assert [c["parent"] for c in result["candidates"]] == [None, None, 0, 0, 1, 1]
    first, second = [c for c in result["candidates"] if c["chosen"]]
    assert result["candidates"][second["parent"]] == first


def test_mermaid_says_how_often() -> None:
    llm = ScriptedReflectionLLM(write=two_segments)
    result = create_self_rag(llm, lambda query: [A, B]).invoke(QUESTION)  # type: ignore[arg-type]
    assert render_route(result) == (
        "flowchart TD\n"
        '    read_question["read_question"]\n'
        '    decide_retrieval["decide_retrieval<br/>retrieve"]\n'
        '    retrieve["retrieve<br/>2 times"]\n'
        '    generate_and_critique["generate_and_critique<br/>2 times"]\n'
        '    beam_select["beam_select<br/>2 times"]\n'
        '    write_answer["write_answer"]\n'
        "    read_question --> decide_retrieval\n"
        "    decide_retrieval --> retrieve\n"
        "    retrieve -->|2 times| generate_and_critique\n"
        "    generate_and_critique -->|2 times| beam_select\n"
        "    beam_select --> retrieve\n"
        "    beam_select --> write_answer\n"
    )


def test_mermaid_of_branches_and_of_nothing() -> None:
    graph = create_crag(
        echo(), lambda query: [document("Vague.")], WordEvaluator(), PagesWebSearch()
    )
    route = render_route(graph.invoke(QUESTION))  # type: ignore[arg-type]
    for way in (
        "rewrite_query --> refine_strips",
        "rewrite_query --> web_search",
        "refine_strips --> recompose_knowledge",
        "select_web_strips --> recompose_knowledge",
    ):
        assert way in route
    assert "web_search --> refine" not in route
    assert render_route({}) == "flowchart TD\n"


@pytest.mark.parametrize("make", [result_of, rationale_of])
def test_mermaid_holds_no_text_of_the_run(make: Any) -> None:
    route = render_route(make(HOSTILE, "x"))
    assert route == render_route(make("y", "x"))
    assert re.fullmatch(r'[\w\s\["<>/|,\]-]+', route)
    forged = render_route({"route": [{"step": HOSTILE}, {"step": 'a"] --> b'}]})
    assert re.fullmatch(
        r'flowchart TD\n    (\w+)\["\1"\]\n    a_b\["a_b"\]\n    \1 --> a_b\n', forged
    )
