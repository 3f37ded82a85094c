"""A chat agent that looks answers up, in a conversation.

python examples/chat_agent.py "Who discovered penicillin?" "Where was the poet T. S. Eliot born?"

The chat model here is a rule that plays one, so that this runs anywhere: put any LangChain chat
model that calls tools in its place.
"""

import sys

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import as_tool, create_self_rag
from selfcorrect_rag.models.rule_chat_model import RuleChatModel
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search.demo import demo_index


def main(*questions: str) -> None:
    graph = create_self_rag(ReaderLLM.load(), demo_index().as_retriever(k=5))
    library = as_tool(
        graph, name="library", description="Answers questions on writers, scientists and places."
    )
    agent = create_agent(RuleChatModel(), [library], checkpointer=InMemorySaver())
    for question in questions:
        result = agent.invoke(
            {"messages": [HumanMessage(question)]}, {"configurable": {"thread_id": "1"}}
        )
        *_, tool_message, answer = result["messages"]
        print(answer.text)
        for candidate in tool_message.artifact["candidates"]:
            print(f"  {candidate['score']:.2f}  {candidate['text']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
