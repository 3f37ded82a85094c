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


def rule(prompt: str) -> str:
    """Text before the case: in a joined prompt, how to answer it."""
    return prompt.rsplit("\n\n##\n", 2)[1]


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
    if "Score" not in rule(prompt) and "Score:" not in case:
        return utility
    score = [("[", 1.0), (support[1:5], 0.75, {"No": 0.25}), (support[5:], 1.0)]
    return [("Score:", 1.0), (" ", 1.0), *score, ("\nPerceived utility: ", 1.0), *utility]


def opinion(prompt: str) -> list[Any]:
    """The same of Middlemarch, and of passages where yes or no is asked for."""
    if writes(prompt):
        return [("George Eliot", 0.5), (".", 0.5)]
    if prompt.startswith("Refer to the documents"):
        return [("George Eliot [1].", 1.0)]
    if prompt.startswith("Given a question, does"):
        asked = prompt[prompt.rindex("Question:") :]
        numbers = re.findall(r'<document number="(\d+)"', asked)
        lines = [[(f"\n{n}:", 1.0), (" yes", 0.75, {" no": 0.25})] for n in numbers]
        return [piece for line in lines for piece in line] or [("yes", 0.75, {"no": 0.25})]
    case = last_case(prompt)
    if numbers := re.findall(r"^Evidence (\d+):", case, re.MULTILINE):
        lines = [[(f"{n}: ", 1.0), ("[Rel", 0.9, {"[Ir": 0.1}), ("evant]\n", 1.0)] for n in numbers]
        return [piece for line in lines for piece in line]
    return reader(prompt)


def hard(answers: Callable[[str], list[Any]]) -> Callable[[str], str]:
    """The same opinions as text alone."""
    return lambda prompt: "".join(piece[0] for piece in answers(prompt))


def generate(llm: PromptedReflectionLLM, *passages: Document, **options: Any) -> list[Segment]:
    return llm.generate_segments(prompts(*passages), **options)
