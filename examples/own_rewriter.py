"""CRAG with a custom query rewriter, and a function as the web."""

from typing import Any

from selfcorrect_rag import create_crag
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM

PAGES = [
    {
        "title": "Harper Lee",
        "url": "https://example.org/harper-lee",
        "content": "Harper Lee was born in Monroeville.",
    }
]


def rewrite(question: str) -> str:
    """Return the words that begin with a capital, except the first."""
    words = question.rstrip("?").split()[1:]
    return " ".join(word for word in words if word[0].isupper())


def search(query: str) -> list[dict[str, Any]]:
    """Pages in the form that most search engines give; an async function would do as well."""
    return [page for page in PAGES if query in page["title"]]


def main(question: str) -> None:
    llm = ReaderLLM.load()
    evaluator = ReaderEvaluator(llm.reader)
    graph = create_crag(llm, lambda query: [], evaluator, search, rewriter=rewrite)
    result = graph.invoke({"question": question})
    print("searched for:", result["web_query"])
    print("read:", [page.metadata["source"] for page in result["web_results"]])
    print("answered:", result["answer"])


if __name__ == "__main__":
    main("Where was Harper Lee born?")
