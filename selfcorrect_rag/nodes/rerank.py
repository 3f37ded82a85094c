"""rerank: let a document compressor reorder or drop what was retrieved."""

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document

from selfcorrect_rag.errors import BadArgument, Fault, RetrievalFailed, wrap_errors
from selfcorrect_rag.intake import admit, as_documents
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.retrieve import identity_of, merge, query_of
from selfcorrect_rag.settings import Settings


def rerank(reranker: BaseDocumentCompressor, settings: Settings | None = None) -> Node[Any]:
    """Rerank the passages, or in Self-RAG those of each beam that has just retrieved.

    Any LangChain document compressor works, such as a cross-encoder. If it fails, the passages stay
    as they were retrieved, and a note says so.

    Raises:
        BadArgument: ``reranker`` is not a document compressor.
    """
    if not isinstance(reranker, BaseDocumentCompressor):
        kind = type(reranker).__name__
        raise BadArgument(f"reranker must be a LangChain document compressor, got {kind}")

    async def compress(run: Run[Any], documents: list[Document], query: str) -> list[Document]:
        if not documents:
            return []
        with wrap_errors(RetrievalFailed, "the reranker"):
            found = await run.call(
                reranker.compress_documents,
                reranker.acompress_documents,
                documents,
                query,
                run.config.get("callbacks"),
            )
            given = as_documents(found, "the reranker")
        limit = run.settings.document_characters
        return admit(given, limit, "reranked documents").documents

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        passages: list[Document] = state["passages"]
        if not state["beams"]:
            return {"passages": await compress(run, passages, state["question"])}
        passages, beams, orders = list(passages), [], {}
        index = {identity_of(passage): i for i, passage in enumerate(passages)}
        for beam in state["beams"]:
            if beam["next"] == "retrieve":
                asked = (query_of(state["question"], beam), *beam["retrieved"])
                if asked not in orders:
                    documents = [passages[i] for i in beam["retrieved"]]
                    kept = await compress(run, documents, asked[0])
                    orders[asked] = merge(kept, passages, index)
                beam = {**beam, "retrieved": orders[asked]}
            beams.append(beam)
        return {"passages": passages, "beams": beams}

    return Node("rerank", step, settings or Settings(), _failed)


def _failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    return {"notes": [f"{fault.reason}: the passages stay as they were retrieved"]}
