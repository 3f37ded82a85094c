"""What the page on agents shows works as written."""

from typing import Any

from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from tests.agents.scripted import ScriptedAgentModel, reflecting
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.test_docs import BLOCK, ROOT

BLOCKS = BLOCK.findall((ROOT / "docs" / "agents.md").read_text(encoding="utf-8"))


def chat(messages: list[BaseMessage]) -> AIMessage:
    """Rewrites where it is asked to, repeats a tool, answers from evidence, else calls a tool."""
    last = str(messages[-1].content)
    if "Last question: " in last:
        return AIMessage("When was George Eliot born?")
    if isinstance(messages[-1], ToolMessage):
        return AIMessage(last)
    if len(messages) > 1 and "<document" in str(messages[-2].content):
        return AIMessage("George Eliot [1].")
    name = "library" if "Middlemarch" in last else "crag"
    return AIMessage("", tool_calls=[{"name": name, "args": {"question": last}, "id": "1"}])


def ran(*blocks: str) -> list[Any]:
    """The ``result`` of each block, run one after the other."""
    gold = document("Gold: Middlemarch is by George Eliot.", "Middlemarch")
    noise = document("Noise.", "Emma")
    names: dict[str, Any] = {
        "llm": FakeListChatModel(responses=["George Eliot [1]."]),
        "retriever": lambda query: [gold if "Emma" not in query else noise],
        "evaluator": WordEvaluator(),
        "web": PagesWebSearch(),
        "chat_model": ScriptedAgentModel(reply=chat),
        "generator": reflecting(),
    }
    results = []
    for block in blocks:
        exec(compile(block, "agents.md", "exec"), names)
        results.append(names["result"])
    return results


def test_the_page_runs() -> None:
    results = ran(*BLOCKS)
    tool, approved, citing, grounded, judged, outer, replied, follow_up, found, claims = results
    assert "Sources:\n[1] Middlemarch (notes)" in tool["messages"][-1].content
    assert approved["messages"][-2].artifact["web_query"]
    (cites,) = citing["messages"][-1].content_blocks
    assert {note["title"] for note in cites["annotations"]} == {"Middlemarch"}
    assert grounded["refused"] == ""
    assert [c["text"] for c in judged["claims"]] == ["George Eliot."]
    assert [type(m) for m in outer["messages"]] == [HumanMessage, AIMessage]
    reply = replied["messages"][-1]
    ((note,),) = (block["annotations"] for block in reply.content_blocks)
    assert (reply.text, note["title"]) == ("George Eliot [1].", "Middlemarch")
    assert follow_up["original_question"] == "When was she born?"
    assert follow_up["question"] == "When was George Eliot born?"
    assert [document.metadata["action"] for document in found] == ["correct"]
    assert [claim["text"] for claim in claims] == ["George Eliot wrote Middlemarch."]
