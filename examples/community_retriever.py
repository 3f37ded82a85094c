"""A retriever of langchain-community over your own text files.

python examples/community_retriever.py FOLDER "question"

langchain-community is archived: its retrievers still plug in, and nobody mends them any more. In
new code take `selfcorrect_rag.search.Index` in place of this one (examples/own_documents.py
has an index), and where there is one, a package of the vector store's own, like langchain-chroma.
"""

import sys
from pathlib import Path

from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM


def paragraphs(folder: Path) -> list[Document]:
    """Each paragraph of each text file; a file's name is the title that citations show."""
    return [
        Document(paragraph.strip(), metadata={"title": file.stem, "source": str(file)})
        for file in sorted(folder.rglob("*.txt"))
        for paragraph in file.read_text(encoding="utf-8").split("\n\n")
        if paragraph.strip()
    ]


def words(text: str) -> list[str]:
    """Its own way splits at spaces alone, where "Middlemarch?" is not "Middlemarch"."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


def main(folder: str, question: str) -> None:
    retriever = BM25Retriever.from_documents(paragraphs(Path(folder)), preprocess_func=words, k=3)
    graph = create_self_rag(ReaderLLM.load(), retriever, settings={"mode": "always"})
    result = graph.invoke({"question": question})
    print(result["cited_answer"])
    for citation in result["citations"]:
        print(f"[{citation['number']}] {citation['title']} ({citation['source']})")


if __name__ == "__main__":
    main(*sys.argv[1:3])
