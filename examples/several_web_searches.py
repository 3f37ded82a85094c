"""CRAG on a hybrid index (words and vectors), with several web searches asked at once."""

from itertools import zip_longest

from langchain_core.documents import Document
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag import create_crag
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search import Retriever, WebSearch, as_web_search
from selfcorrect_rag.search.demo import demo_index, demo_web


def search_all(*webs: WebSearch) -> Retriever:
    """Return a search that takes the best page of each in turn; one that fails finds nothing."""

    def search(query: str) -> list[Document]:
        def ask(web: WebSearch) -> list[Document]:
            try:
                return web.search(query, 5)
            except Exception as error:
                print(f"{web.name} failed: {error}")
                return []

        with ContextThreadPoolExecutor(len(webs)) as pool:
            found = list(pool.map(ask, webs))
        return [page for row in zip_longest(*found) for page in row if page]

    return search


def main(question: str, *webs: WebSearch) -> None:
    llm = ReaderLLM.load()
    parts = (demo_index().as_retriever(5), ReaderEvaluator(llm.reader), search_all(*webs))
    result = create_crag(llm, *parts).invoke({"question": question})
    print("read:", [page.metadata["title"] for page in result["web_results"]])
    print("answered:", result["answer"])


if __name__ == "__main__":
    # TavilyWebSearch(), or as_web_search(a LangChain tool or a function)
    main("Where was Harper Lee born?", demo_web(), as_web_search(lambda query: ["A page."]))
