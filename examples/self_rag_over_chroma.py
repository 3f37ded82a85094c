"""Self-RAG over a collection that you already have in langchain-chroma.

python examples/self_rag_over_chroma.py FOLDER COLLECTION "question"
"""

import sys

from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderEmbeddings, ReaderLLM


def main(folder: str, collection: str, embeddings: Embeddings, question: str) -> None:
    store = Chroma(collection, embeddings, persist_directory=folder)
    graph = create_self_rag(ReaderLLM.load(), store, settings={"mode": "always"})
    result = graph.invoke({"question": question})
    print(result["cited_answer"])
    for citation in result["citations"]:
        print(f"[{citation['number']}] {citation['title']}: {citation['quote']}")


if __name__ == "__main__":
    # The embeddings that the collection was made with; the reader's are in selfcorrect-rag[demo].
    main(sys.argv[1], sys.argv[2], ReaderEmbeddings(), sys.argv[3])
