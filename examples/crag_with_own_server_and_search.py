"""CRAG with a chat model on an OpenAI-compatible server, and a search of your own as the web.

pip install langchain-openai
python examples/crag_with_own_server_and_search.py http://localhost:8000/v1 MODEL "question"
"""

import asyncio
import sys
from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from selfcorrect_rag import create_crag
from selfcorrect_rag.search.demo import demo_index

PAGES = [
    {
        "title": "Harper Lee",
        "url": "https://example.org/harper-lee",
        "content": "Harper Lee was born in Monroeville.",
    }
]


async def search(query: str) -> list[dict[str, Any]]:
    """Your own engine comes here: pages with title, url and content."""
    return [page for page in PAGES if page["title"].lower() in query.lower()]


async def main(base_url: str, model: str, question: str) -> None:
    llm = ChatOpenAI(base_url=base_url, model=model, api_key=SecretStr("none"), temperature=0)
    # The model writes, grades the documents and rewrites the query.
    graph = create_crag(llm, demo_index().as_retriever(), llm, search, rewriter=llm)
    result = await graph.ainvoke({"question": question})
    print(f"{result['action']}: {result['cited_answer']}")
    for citation in result["citations"]:
        print(f"[{citation['number']}] {citation['title']} ({citation['source']})")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
