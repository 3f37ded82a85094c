"""CRAG whose web is Tavily, asking you before anything leaves the machine.

TAVILY_API_KEY=tvly-... python examples/crag_with_tavily.py "Where was Harper Lee born?"
"""

import sys
from collections.abc import Callable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag import create_crag
from selfcorrect_rag.intake import source_of, title_of
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search import TavilyWebSearch, WebSearch
from selfcorrect_rag.search.demo import demo_index


def main(question: str, web: WebSearch, approve: Callable[[str], str] = input) -> None:
    llm = ReaderLLM.load()
    graph = create_crag(
        llm,
        demo_index().as_retriever(k=5),
        ReaderEvaluator(llm.reader),
        web,
        checkpointer=InMemorySaver(),
    )
    thread: RunnableConfig = {"configurable": {"thread_id": "1"}}
    result = graph.invoke({"question": question}, thread, context={"approve_search": True})
    if "__interrupt__" in result:
        (pause,) = result["__interrupt__"]
        said = approve(f"search {web.name} for {pause.value['query']!r}? (yes, no, other words) ")
        consent = {"yes": True, "no": False}.get(said, said)
        result = graph.invoke(Command(resume=consent), thread)
    print(result["action"], "->", result["cited_answer"])
    for piece in result["knowledge"]:
        print(f"read: {title_of(piece)} ({source_of(piece)})")
    for note in result["notes"]:
        print(f"note: {note}")


if __name__ == "__main__":
    main(sys.argv[1], TavilyWebSearch(prefer_domains=["wikipedia.org"]))
