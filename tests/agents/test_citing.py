"""Agents' answers carry their sources as annotations."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import Runtime

from selfcorrect_rag import as_tool
from selfcorrect_rag.agents import CitationMiddleware
from tests.agents.scripted import GRAPHS, SAID, crag, saying, self_rag, tool_messages
from tests.providers import chat
from tests.scripted import THREAD

ASKED: Any = {"messages": [HumanMessage("Go on.")]}
PLAIN = {"model_provider": "anthropic", "model_name": "m"}


def notes(message: Any) -> list[tuple[str, str]]:
    """The piece of the text that cites, and the title, of each annotation."""
    (block,) = message.content_blocks
    found = block.get("annotations", [])
    return [(block["text"][n["start_index"] : n["end_index"]], n["title"]) for n in found]


@pytest.mark.parametrize("make", GRAPHS)
async def test_an_agents_answer_cites_what_its_tool_cited(make: Any) -> None:
    library = as_tool(make(), name="library")
    options: Any = {"middleware": [CitationMiddleware()], "checkpointer": InMemorySaver()}
    model = saying(SAID, "library", response_metadata=PLAIN)
    agent: Any = create_agent(model, [library], **options)
    answer = agent.invoke(ASKED, THREAD)["messages"][-1]
    cited = tool_messages(agent.get_state(THREAD).values)[0].artifact["citations"]
    assert notes(answer) == [("[1]", c["title"]) for c in cited if c["number"] == 1]
    assert answer.text == "Jane Austen [1]."
    assert bool(notes(answer)) is (make is not crag), "its scripted answer cites nothing"
    standard = {"model_name": "m", "output_version": "v1"}
    assert answer.response_metadata == (standard if notes(answer) else PLAIN)
    again = (await agent.ainvoke(ASKED, THREAD))["messages"]
    assert notes(again[-1]) == notes(answer)
    assert again[3] == answer


def test_a_number_of_two_sources_is_not_annotated() -> None:
    @tool(response_format="content_and_artifact")
    def other(question: str) -> Any:
        """Somebody else's."""
        return "None.", {"citations": ["theirs"]}

    cites = crag(llm=chat("She did [1]."))
    tools = [as_tool(self_rag(), name="emma"), as_tool(cites, name="doc"), other]
    for names, expected in ((["emma", "emma", "other"], [("[1]", "Emma")]), (["emma", "doc"], [])):
        agent: Any = create_agent(saying(SAID, *names), tools, middleware=[CitationMiddleware()])
        assert notes(agent.invoke(ASKED)["messages"][-1]) == expected


def test_an_earlier_turns_sources_are_not_this_ones() -> None:
    agent = create_agent(saying(SAID, "emma"), [as_tool(self_rag(), name="emma")])
    turn = agent.invoke(ASKED)["messages"]
    cites: Any = {"messages": turn}
    assert CitationMiddleware().after_model(cites, Runtime())
    cites["messages"] = [*turn, HumanMessage("And then?"), AIMessage("She [1].")]
    assert CitationMiddleware().after_model(cites, Runtime()) is None
