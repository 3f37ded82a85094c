"""The rule that plays a chat model: it asks its tool once a turn and repeats what that said."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag.follow_up import standalone_question
from selfcorrect_rag.nano import load_chat_model
from selfcorrect_rag.nano.rule_chat_model import NO_QUESTION, NO_TOOL


@tool
def library(limit: int = 3, *, question: str) -> str:
    """Find an answer."""
    return f"{question} In the {limit}rd book."


@tool
def other(question: str) -> str:
    """Is never asked."""
    raise AssertionError(question)


def test_it_asks_the_first_tool_each_turn_and_repeats_it() -> None:
    agent = create_agent(load_chat_model(), [library, other], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    for question in ("Who {wrote} Emma?", "And who read it?"):
        messages = agent.invoke({"messages": [HumanMessage(question)]}, config)["messages"]
        asked, said, repeated = messages[-3:]
        assert [(c["name"], c["args"]) for c in asked.tool_calls] == [
            ("library", {"question": question})
        ]
        assert said.content == f"{question} In the 3rd book."
        assert repeated.content.endswith(f"repeats library) {said.content}")
        assert "not a language model" in repeated.content
    assert len(messages) == 8


def test_with_a_rule_for_follow_ups_the_tool_is_asked_what_stands_alone() -> None:
    @tool
    def library(question: str) -> str:
        """Find an answer."""
        return "Jane Austen [1]\n\nSources:\n[1] Emma"

    agent = create_agent(
        load_chat_model(standalone_question), [library], checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    for question, asked in (
        ("Who wrote Emma?", "Who wrote Emma?"),
        ("When was it printed?", "When was Emma printed?"),
        ("And where was she born?", "And where was Jane Austen born?"),
    ):
        messages = agent.invoke({"messages": [HumanMessage(question)]}, config)["messages"]
        assert [call["args"] for call in messages[-3].tool_calls] == [{"question": asked}]
        assert messages[-4].content == question


async def test_it_streams_and_runs_async() -> None:
    agent = create_agent(load_chat_model(), [library])
    asked: Any = {"messages": [HumanMessage([{"type": "text", "text": "Who?"}])]}
    streamed = [m async for m, _ in agent.astream(asked, stream_mode="messages")]
    assert [m.content for m in streamed if isinstance(m, AIMessage) and m.content] == [
        "(a rule, not a language model, repeats library) Who? In the 3rd book."
    ]


def test_without_a_tool_or_a_question_it_says_so() -> None:
    model = load_chat_model()
    assert model.invoke("Who?").content == NO_TOOL
    assert model.bind_tools([library]).invoke([AIMessage("Hello.")]).content == NO_QUESTION
