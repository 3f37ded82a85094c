"""Self-RAG that searches with several wordings of a question and fuses their rankings."""

from collections import defaultdict
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search.demo import demo_index

SCRIPT = FakeListChatModel(responses=["Who found the antibiotic?\nWho found penicillin?"])
PROMPT = "Write three other wordings of this question, one on each line, and nothing else:\n"


def multi_query(chat_model: Runnable[Any, Any], retriever: Runnable[str, list[Document]]) -> Any:
    """Return a retriever that ranks by the sum of 1 / (60 + rank) over all wordings."""

    def find(query: str) -> list[Document]:
        written = chat_model.invoke(PROMPT + query).text.splitlines()
        scores, found = defaultdict[str, float](float), dict[str, Document]()
        for documents in retriever.batch([query, *filter(str.strip, written[:3])]):
            for rank, document in enumerate(documents, start=1):
                found[document.page_content] = document
                scores[document.page_content] += 1 / (60 + rank)
        return [found[text] for text in sorted(scores, key=lambda text: -scores[text])]

    return RunnableLambda(find, name="multi_query")


def main(question: str, chat_model: Runnable[Any, Any] = SCRIPT) -> None:
    graph = create_self_rag(ReaderLLM.load(), multi_query(chat_model, demo_index().as_retriever(5)))
    print(graph.invoke({"question": question})["cited_answer"])


if __name__ == "__main__":
    main("Who discovered penicillin?")
