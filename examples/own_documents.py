"""Your own files into an index, and a question answered from them.

python examples/own_documents.py FOLDER "question"
"""

import sys
from pathlib import Path

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search import Index, index_paths


def main(folder: str, question: str) -> None:
    index = Index(Path(folder) / ".index")
    report = index_paths([Path(folder)], index)
    print(f"{len(index)} passages; unreadable: {[str(p.path) for p in report.problems]}")

    # Whoever asks about documents of their own wants to be answered from them.
    graph = create_self_rag(ReaderLLM.load(), index.as_retriever(k=5), settings={"mode": "always"})
    result = graph.invoke({"question": question})
    print(result["cited_answer"])
    for citation in result["citations"]:
        print(f"[{citation['number']}] {citation['title']} ({citation['source']})")


if __name__ == "__main__":
    main(*sys.argv[1:3])
