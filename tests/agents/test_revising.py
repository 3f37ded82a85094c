"""The middleware that revises an agent's answer."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

from selfcorrect_rag.agents import CitationMiddleware, GroundingMiddleware, as_tool, revise_answer
from selfcorrect_rag.agents.middleware import RevisionMiddleware
from tests.agents.scripted import saying, self_rag, unstated_names
from tests.scripted import document
from tests.test_faults import FORMS, ask

REVISER = revise_answer(unstated_names, lambda query: [document("Persuasion")])


@tool
def look_up(question: str) -> str:
    """Look something up."""
    return "Ulysses is by Joyce."


@FORMS
async def test_what_no_tool_returned_is_revised(form: str) -> None:
    said = "It is Joyce. Then he wrote Emma. Later came Persuasion."
    middleware = [RevisionMiddleware(REVISER)]
    agent = create_agent(saying(said, "look_up"), [look_up], middleware=middleware)
    result = await ask(agent, form, {"messages": [HumanMessage("Who?")]}, {})
    assert [m.text for m in result["messages"]][-2:] == [
        "Ulysses is by Joyce.",
        "It is Joyce. Later came Persuasion.",
    ]
    assert len(result["messages"]) == 4, "the answer was replaced"
    assert result["revision"] == {"unsupported_spans": [], "supported_share": 1.0, "notes": []}


def test_passages_that_a_graph_cited_are_evidence() -> None:
    books = as_tool(self_rag(), name="books")
    middleware: Any = [CitationMiddleware(), RevisionMiddleware(REVISER)]
    model = saying("So: Emma [1]. Not Joyce.", "books")
    agent = create_agent(model, [books], middleware=middleware)
    last = agent.invoke({"messages": [HumanMessage("Who?")]})["messages"][-1]
    assert last.text == "So: Emma [1]."
    (block,) = last.content_blocks
    assert [each["title"] for each in block["annotations"]] == ["Emma"]


@pytest.mark.parametrize("support", ["partly", None])
def test_what_grounding_showed_is_evidence(support: Any) -> None:
    grounding = GroundingMiddleware(self_rag(), support=support)
    middleware: Any = [grounding, RevisionMiddleware(REVISER)]
    agent = create_agent(saying("So: Emma. Not Joyce."), middleware=middleware)
    result = agent.invoke({"messages": [HumanMessage("Who?")]})
    assert result["messages"][-1].text == "So: Emma."
    assert len(result["grounding"]["citations"]) == 1


def test_evidence_is_of_the_turn_alone() -> None:
    agent = create_agent(saying("It is Joyce."), middleware=[RevisionMiddleware(REVISER)])
    earlier = [HumanMessage("Who?"), ToolMessage("Joyce.", tool_call_id="1")]
    for messages, said in (
        (earlier, "It is Joyce."),
        ([*earlier, HumanMessage("And?")], "The documents do not say."),
    ):
        assert agent.invoke({"messages": messages})["messages"][-1].text == said
