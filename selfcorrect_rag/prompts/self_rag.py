"""Prompts of Self-RAG: the instruction, the segments so far, and their passages."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.prompts.parts import Part, Prompt, entries, passage_text, passage_title
from selfcorrect_rag.reflection import CONTINUE, END_PARAGRAPH, NO_RETRIEVAL, PARAGRAPH, RETRIEVAL
from selfcorrect_rag.state import Candidate, Step

TASK_INSTRUCTIONS = entries("self_rag_5")
"""Task instructions of Self-RAG, Table 5; open-domain questions take none."""


def question_text(question: str, instruction: str | None = None) -> str:
    """Return the instruction slot: the task instruction, if any, and the question.

    They are joined without a line break, as in the training data.
    """
    return f"{instruction}## Input:\n\n{question}" if instruction else question


def instruction_parts(question: str) -> tuple[Part, ...]:
    """Return Self-RAG's prompt template, up to where the model's own output begins."""
    return (
        Part("### Instruction:\n", "trusted"),
        Part(question, "untrusted", shorten=4),
        Part("\n\n### Response:\n", "trusted"),
    )


def evidence_parts(document: Document, shorten: int) -> tuple[Part, ...]:
    """Return ``[Retrieval]<paragraph>title, text</paragraph>``; the passage is untrusted."""
    return (
        Part(RETRIEVAL, "control"),
        Part(PARAGRAPH, "control"),
        Part(passage_text(document), "untrusted", shorten, passage_title(document)),
        Part(END_PARAGRAPH, "control"),
    )


def decision_prompt(question: str) -> Prompt:
    """Return the bare instruction, whose first token decides retrieval (Algorithm 1, line 2)."""
    return Prompt(parts=instruction_parts(question))


def segment_prompt(
    question: str,
    written: Sequence[Candidate],
    passages: Sequence[Document],
    step: Step,
    passage: int | None,
) -> Prompt:
    """Return the prompt for the next segment, with the beam's segments and passages inline.

    Args:
        question: the instruction slot.
        written: the beam's segments so far, oldest first.
        passages: the run's passages, which segments index.
        step: read ``passages[passage]`` first, keep the last passage, or continue without one.
        passage: index of the passage to read, for the step ``retrieve``.
    """
    parts = [*instruction_parts(question)]
    for segment in written:
        parts += _opening(segment["step"], segment["passage"], passages, shorten=1)
        for piece in segment["pieces"]:
            is_control = piece["kind"] == "control"
            parts.append(Part(piece["text"], "control" if is_control else "untrusted", shorten=3))
    parts += _opening(step, passage, passages, shorten=2)
    return Prompt(parts=tuple(parts))


def _opening(
    step: Step, passage: int | None, passages: Sequence[Document], shorten: int
) -> tuple[Part, ...]:
    if step == "continue":
        return (Part(CONTINUE, "control"),)
    if step == "none" or passage is None:
        return (Part(NO_RETRIEVAL, "control"),)
    return evidence_parts(passages[passage], shorten)
