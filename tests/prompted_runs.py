"""Chat models with opinions about novels and towns, and what is asked of them."""

import re
from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.prompts import Prompt, segment_prompt
from selfcorrect_rag.state import Segment
from tests.scripted import document

QUESTION = "Who wrote Emma?"
NOVEL = document("Emma (novel)", "Emma is a novel by Jane Austen.")
TOWN = document("Emma (town)", "Emma is a town in the hills.")
SEQUEL = document("Emma again", "Some say that Austen wrote a sequel of Emma.")
PASSAGES = [TOWN, NOVEL, SEQUEL]


def prompts(*passages: Document, question: str = QUESTION) -> list[Prompt]:
    step = "retrieve" if passages else "none"
    return [
        segment_prompt(question, [], passages, step, i)  # type: ignore[arg-type]
        for i in range(max(len(passages), 1))
    ]


def last_case(prompt: str) -> str:
    return prompt.rsplit("\n\n##\n", 1)[1]


def writes(prompt: str) -> bool:
    return prompt.startswith("Answer the question.")


def reader(prompt: str) -> list[Any]:
    """A model with opinions: Austen answers, towns do not."""
    if writes(prompt):
        said = re.search(r"by ([\w ]+)\.|that (\w+) wrote", prompt)
        return [(said[1] or said[2] if said else "Nobody knows.", 0.5), (".", 0.125)]
    case = last_case(prompt)
    if "Need retrieval?" in case:
        return [("[", 1.0), ("Yes", 0.75, {"No": 0.25}), ("]", 1.0)]
    if "Evidence 1:" in case:
        pieces: list[Any] = []
        for i, evidence in enumerate(case.split("Evidence ")[1:], start=1):
            relevant = [("[Relevant", 0.9, {"[Ir": 0.1}), ("]\n", 1.0)]
            irrelevant = [("[Ir", 0.8, {"[Relevant": 0.2}), ("relevant]\n", 1.0)]
            pieces += [(f"{i}: ", 1.0), *(relevant if "Austen" in evidence else irrelevant)]
        return pieces
    if case.endswith("Rating:"):
        return [("[Relevant]", 0.9)]
    full = "novel by Jane Austen" in case
    support = "[Fully supported]" if full else "[Partially supported]"
    utility = [("5", 0.5, {"4": 0.25, "1": 0.25})]
    if "Score" not in "".join(prompt.rsplit("\n\n##\n", 2)[1:]):  # how to answer, and the case
        return utility
    score = [("[", 1.0), (support[1:5], 0.75, {"No": 0.25}), (support[5:], 1.0)]
    return [("Score:", 1.0), (" ", 1.0), *score, ("\nPerceived utility: ", 1.0), *utility]


def hard(answers: Callable[[str], list[Any]]) -> Callable[[str], str]:
    return lambda prompt: "".join(piece[0] for piece in answers(prompt))


def generate(llm: PromptedReflectionLLM, *passages: Document, **options: Any) -> list[Segment]:
    return llm.generate_segments(prompts(*passages), **options)
