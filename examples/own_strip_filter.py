"""CRAG with a custom strip filter: strips with the question's names."""

import re

from selfcorrect_rag import create_crag
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search.demo import demo_index


def shares_a_name(question: str, strips: list[str]) -> list[bool]:
    """Return whether to keep each strip; an evaluator is not asked."""
    names = {word for word in re.findall(r"\w+", question) if word[0].isupper()}
    return [bool(names & set(re.findall(r"\w+", strip))) for strip in strips]


def main(question: str) -> None:
    llm = ReaderLLM.load()
    graph = create_crag(
        llm,
        demo_index().as_retriever(k=5),
        ReaderEvaluator(llm.reader),
        strip_filter=shares_a_name,
    )
    result = graph.invoke({"question": question})
    kept = [strip["text"] for strip in result["strips"] if strip["kept"]]
    print(f"{len(kept)} of {len(result['strips'])} strips kept")
    for text in kept:
        print("-", text)


if __name__ == "__main__":
    main("Who painted Guernica?")
