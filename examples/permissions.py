"""One index for all, in which each user finds what their groups may read."""

from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search import Index

DOCUMENTS = {
    "all": "The canteen opens at 11 and closes at 14.",
    "board": "The salary of the director is 120,000 euros.",
}
GROUPS = {"ada": ["all", "board"], "ben": ["all"]}
"""From your user database, by who has signed in: never from the request."""


def permissions(user: str) -> RunnableConfig:
    """Return the config of a run that may read the documents of the user's groups."""
    return {"configurable": {"filter": {"group": {"$in": GROUPS.get(user, [])}}}}


def main(question: str, *users: str) -> None:
    with TemporaryDirectory() as folder:
        index = Index(Path(folder) / "index", "bm25")
        index.add(
            Document(text, metadata={"title": "Notes", "group": group})
            for group, text in DOCUMENTS.items()
        )
        graph = create_self_rag(ReaderLLM.load(), index.as_retriever(5))
        for user in users:
            result = graph.invoke({"question": question}, permissions(user))
            print(f"{user}: {result['answer']}")


if __name__ == "__main__":
    main("What is the salary of the director?", "ada", "ben")
