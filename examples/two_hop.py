"""Self-RAG over a retriever of two hops: a question that no passage answers alone."""

import tempfile

from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search import Index
from selfcorrect_rag.search.two_hop import ReaderBridges, two_hop

NOTES = {
    "Orion": "The Orion project builds the billing service. Mara Lindholm leads the Orion project.",
    "Vega": "The Vega project builds the search service. Jon Petersen leads the Vega project.",
    "Mara Lindholm": "Mara Lindholm joined in 2019. She has a desk in the office in Bergen.",
    "Jon Petersen": "Jon Petersen joined in 2021. He has a desk in the office in Aarhus.",
}


def main(question: str) -> None:
    llm = ReaderLLM.load()
    with tempfile.TemporaryDirectory() as folder:
        index = Index(folder, "bm25")
        index.add(Document(text, metadata={"title": title}) for title, text in NOTES.items())
        one_hop = index.as_retriever(1)
        for retriever in (one_hop, two_hop(one_hop, ReaderBridges(llm.reader))):
            result = create_self_rag(llm, retriever).invoke({"question": question})
            titles = ", ".join(passage.metadata["title"] for passage in result["passages"])
            print(f"{result['answer']} ({titles})")


if __name__ == "__main__":
    main("In which city is the office of the person who leads the Orion project?")
