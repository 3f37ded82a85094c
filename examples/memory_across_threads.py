"""Self-RAG that answers from what a user said in any thread of theirs, and in no one else's."""

from typing import Any
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM


def remember(state: MessagesState, config: RunnableConfig) -> None:
    """Keep what the user says; a model would choose what is worth keeping."""
    if not (text := state["messages"][-1].text).endswith("?"):
        get_store().put((config["configurable"]["user"],), uuid4().hex, {"text": text})


def recall(query: str, config: RunnableConfig) -> list[Document]:
    """Return what the user said; a store with an embedding index ranks it by the query."""
    kept = get_store().search((config["configurable"]["user"],), query=query, limit=5)
    return [Document(item.value["text"], metadata={"title": "Said before"}) for item in kept]


def main(*turns: tuple[str, str]) -> None:
    memories: Any = recall
    self_rag = create_self_rag(ReaderLLM.load(), memories, settings={"mode": "always"})
    graph = StateGraph(MessagesState).add_node(remember).add_node("answer", self_rag)
    graph.add_edge(START, "remember").add_edge("remember", "answer")
    agent = graph.compile(checkpointer=InMemorySaver(), store=InMemoryStore())
    for user, text in turns:
        config: RunnableConfig = {"configurable": {"user": user, "thread_id": uuid4().hex}}
        reply = agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"][-1]
        print(f"{user}: {reply.text}")


if __name__ == "__main__":
    main(("ada", "The server runs in Oslo."), ("ada", "Where is the server?"))
