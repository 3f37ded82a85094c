"""A graph as a tool: content and artifact, parallel calls, pauses, errors, contexts."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from selfcorrect_rag import as_tool, create_crag
from selfcorrect_rag.errors import SelfCorrectError
from tests.agents.scripted import asking, crag, instruct_rag, self_crag, self_rag, tool_messages
from tests.crag_runs import PagesSearch, WordEvaluator
from tests.providers import chat
from tests.scripted import THREAD, document
from tests.test_faults import FORMS, ask

ASKED: Any = {"messages": [HumanMessage("Go on.")]}


def call(question: str = "Who?") -> Any:
    return {"name": "any", "args": {"question": question}, "id": "1", "type": "tool_call"}


def citing(*documents: Document, **options: Any) -> Any:
    """CRAG whose answer cites the first document."""
    return create_crag(chat("She did [1]."), lambda query: [*documents], WordEvaluator(), **options)


PAGE = document("Doc", "Gold is here.", source="notes", page=3, heading="The sea\n road")


@pytest.mark.parametrize(
    ("graph", "content"),
    [
        (self_rag(), "Emma for Who? [1]\n\nSources:\n[1] Emma (notes)"),
        (self_crag(), "Doc for Who? [1]\n\nSources:\n[1] Doc (notes)"),
        (instruct_rag(), "The answer is Jane Austen. [1]\n\nSources:\n[1] Emma (notes)"),
        (citing(PAGE), "She did [1].\n\nSources:\n[1] Doc (notes), page 3, The sea road"),
    ],
)
async def test_content_is_the_answer_and_the_artifact_everything(graph: Any, content: str) -> None:
    tool, plain = as_tool(graph), graph.invoke({"question": "Who?"})
    assert tool.name == graph.get_name()
    for message in (tool.invoke(call()), await tool.ainvoke(call())):
        assert message.content == content
        assert message.artifact.keys() == plain.keys()
        assert message.artifact["answer"] == plain["answer"]
        assert message.artifact["citations"] == plain["citations"]
    assert tool.invoke({"question": "Who?"}) == content


def test_notes_reach_the_model_and_an_answer_without_sources_says_so() -> None:
    graph = citing(web_search=PagesSearch(ValueError("down")))
    content = as_tool(graph).invoke({"question": "Who?"})
    assert "\n\nSources: none\n" in content
    assert "\nNote: web search (pages): the search raised ValueError: down\n" in f"{content}\n"


def test_context_and_limit_of_steps_are_the_tools_not_the_agents() -> None:
    tools = [as_tool(crag("Noise."))]
    agent: Any = create_agent(asking("crag", "Who?"), tools, context_schema=dict)
    config: Any = {"recursion_limit": 5}
    (said,) = tool_messages(agent.invoke(ASKED, config, context={"lower": -1.0}))
    assert said.artifact["action"] == "incorrect"  # the agent's key of the same name is its own
    tool = as_tool(crag("Noise."), context={"lower": -1.0})
    assert tool.invoke(call()).artifact["action"] == "ambiguous"


def test_an_error_of_ours_is_for_the_model_to_read() -> None:
    agent: Any = create_agent(asking("crag", " "), [as_tool(crag())])
    (said,) = tool_messages(agent.invoke(ASKED))
    assert (said.status, said.artifact) == ("error", None)
    assert "question is empty" in said.content


QUESTIONS = [f"Question {letter}?" for letter in "WXYZ"]
APPROVE = {"approve_search": True}


def questioning(graph: Any, **options: Any) -> Any:
    model, tools = asking("crag", *QUESTIONS), [as_tool(graph, **options)]
    return create_agent(model, tools, checkpointer=InMemorySaver())


def test_parallel_calls_do_not_mix_even_with_a_checkpointer_of_the_graphs_own() -> None:
    graph = crag(checkpointer=InMemorySaver())
    agent = questioning(graph)
    for _ in range(2):  # the second turn keeps nothing of the first
        said = tool_messages(agent.invoke(ASKED, THREAD))[-4:]
        assert [m.artifact["question"] for m in said] == QUESTIONS
        for message, question in zip(said, QUESTIONS, strict=True):
            assert question in message.content
            assert len(message.artifact["passages"]) == 1
    as_tool(graph).invoke({"question": "Alone?"}, THREAD)
    assert not graph.get_state(THREAD).values


@FORMS
async def test_pauses_inside_parallel_calls_resume_each_with_its_own_answer(form: str) -> None:
    agent = questioning(crag("Noise."), context=APPROVE)
    pauses = (await ask(agent, form, ASKED, THREAD))["__interrupt__"]
    assert len(pauses) == 4
    replies = {pause.id: {"query": f"more {pause.value['query']}"} for pause in pauses}
    replies |= {pause.id: False for pause in pauses if pause.value["query"] == "Question W"}
    said = tool_messages(await ask(agent, form, Command(resume=replies), THREAD))
    queries = [(m.artifact["question"], m.artifact["web_query"]) for m in said]
    assert queries[1:] == [(q, f"more Question {q[-2]}") for q in QUESTIONS[1:]]
    assert "not approved" in said[0].artifact["web_failure"]
    assert not any(message.artifact["web_failure"] for message in said[1:])


def test_calls_that_langgraph_mixes_are_an_error() -> None:
    tool = as_tool(crag("Noise."), context=APPROVE)
    orders = iter([["First?", "Second?"], ["Second?", "First?"]])

    def both(state: MessagesState) -> Any:
        pauses = []
        for question in next(orders):  # as threads may, in another order when it resumes
            try:
                tool.invoke(call(question))
            except GraphInterrupt as pause:
                pauses.append(pause)
        raise pauses[0]

    graph = StateGraph(MessagesState)
    graph.add_node("both", both)
    graph.add_edge(START, "both")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    assert compiled.invoke(ASKED, THREAD)["__interrupt__"]
    with pytest.raises(SelfCorrectError, match=r"for 'Second\?' resumed the run for 'First\?'"):
        compiled.invoke(Command(resume=True), THREAD)


@pytest.mark.parametrize("question", [" Who\x00 wrote\x0cEmma \ud83d?", "Who? " * 10_000])
def test_a_question_that_the_graph_makes_fit_is_no_other(question: str) -> None:
    assert as_tool(crag()).invoke({"question": question})


def test_a_pause_without_an_agent_says_what_is_missing() -> None:
    said = as_tool(crag("Noise."), context=APPROVE).invoke(call())
    assert said.status == "error"
    assert "give them to the agent that calls the graph" in said.content


def test_a_pause_before_a_node_of_the_graph() -> None:
    graph = crag("Noise.", interrupt_before=["web_search"])
    agent = questioning(graph)
    assert not tool_messages(agent.invoke(ASKED, THREAD))
    said = tool_messages(agent.invoke(None, THREAD))
    assert [m.artifact["question"] for m in said] == QUESTIONS
    assert all(m.artifact["web_results"] for m in said)
