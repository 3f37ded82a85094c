"""A user's module of vector stores, of one process and of many."""

MODULE = """
from multiprocessing import parent_process
from pathlib import Path

from langchain_core.vectorstores import InMemoryVectorStore

from tests.bulk.stores import Appending, Logged, pgvector
from tests.search.stand_ins import OtherWordHash, WordHash

HERE = Path(__file__).parent
LOG = HERE / "log"


def bulk():
    return pgvector("ADDRESS", "bulk", Logged(LOG))


def one():
    return pgvector("ADDRESS", "one", Logged(HERE / "log-of-one"))


def mortal():
    return Appending("URI", "appended", Logged(LOG), killed_by=HERE / "kill")


def slow():
    return Appending("URI", "appended", Logged(LOG, seconds_per_text=0.01))


def other():
    return pgvector("ADDRESS", "bulk", OtherWordHash())


def memory():
    return InMemoryVectorStore(WordHash())


def retriever():
    return bulk().as_retriever()


def broken():
    raise ConnectionError("no route to postgresql://ann:hunter22@db")


def unfit():
    return Appending("URI", "appended", Failing())


class Failing(WordHash):
    def embed_documents(self, texts):
        raise ValueError("no such model")


def qdrant():
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, VectorParams

    client = QdrantClient(path=HERE / "qdrant")
    if not client.collection_exists("notes"):
        client.create_collection("notes", VectorParams(size=64, distance=Distance.COSINE))
    return QdrantVectorStore(client, "notes", WordHash())


def chroma():
    from langchain_chroma import Chroma

    return Chroma("notes", WordHash(), persist_directory=str(HERE / "chroma"))
"""
"""With ADDRESS and URI in place of the server's."""
