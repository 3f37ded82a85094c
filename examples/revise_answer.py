"""An answer whose unsupported claims are marked, looked up, and corrected or dropped.

Judge and rewriter are rules here, so that this runs anywhere: put your chat model in the place of
both, or a detector such as LettuceDetect in that of the judge.
"""

import re
from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.agents import find_unsupported_spans, revise_answer
from selfcorrect_rag.search.demo import demo_index

ANSWER = (
    "Penicillin was discovered by Alexander Flemming in 1828. It won him a Nobel Prize in 1945. "
    "He died in Bielefeld."
)


def mark(answer: str, passages: Sequence[Document], question: str) -> list[dict[str, int]]:
    """Mark the names and numbers, but for first words, that no passage has."""
    stated = "".join(passage.page_content for passage in passages)
    found = re.finditer(r"(?<=\w )(?:[A-Z]\w+|\d+)", answer)
    return [{"start": m.start(), "end": m.end()} for m in found if m[0] not in stated]


def quote(sentence: str, passages: Sequence[Document], question: str) -> str:
    """Return the sentence of the best passage that has most words of ``sentence``; "" if few."""
    words = set(re.findall(r"\w{5,}", sentence.casefold()))
    found = re.split(r"(?<=[.!?])\s", passages[0].page_content)
    best = max(found, key=lambda each: len(words & set(re.findall(r"\w{5,}", each.casefold()))))
    return best if len(words & set(re.findall(r"\w{5,}", best.casefold()))) > 1 else ""


def main(question: str, answer: str) -> None:
    for span in find_unsupported_spans(answer, [], mark, question):
        print("unsupported without evidence:", span["text"])
    reviser = revise_answer(mark, demo_index().as_retriever(k=3), quote)
    result = reviser.invoke({"question": question, "answer": answer, "passages": []})
    print("revised:", result["answer"])
    print(f"supported: {result['supported_share']:.0%}")


if __name__ == "__main__":
    main("Who discovered penicillin?", ANSWER)
