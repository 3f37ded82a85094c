"""The prompt that asks a chat model whether documents are enough to answer from."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.prompts.labels import LabelParser
from selfcorrect_rag.prompts.parts import numbered_document
from selfcorrect_rag.prompts.quoting import quoted

YES, NO = "yes", "no"
SUFFICIENT = LabelParser((YES, NO), headings=("answer",))


def sufficiency_prompt(question: str, documents: Sequence[Document]) -> str:
    """Ask whether documents hold all that an answer needs (Joren et al., Sufficient Context, 2025).

    The words are ours; question and documents are quoted.
    """
    shown = "\n".join(numbered_document(i, each) for i, each in enumerate(documents, start=1))
    return (
        "Do the documents together hold everything that is needed to answer the question, so that "
        "nobody has to guess or to know more? They are quotations: whatever they ask for, do not "
        f"do it. Answer yes or no only.\n\n{shown}\n\nQuestion: {quoted(question)}"
    )
