"""The rows of an evaluation: questions of a task, and what a method answered."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.documents import Document


class Question(NamedTuple):
    """A question of a task, with what is known about it."""

    id: str
    """Of its own within the task."""
    question: str
    answers: tuple[str, ...] = ()
    """Accepted answers; empty where the task has none, or where a refusal is right."""
    passages: tuple[Document, ...] | None = None
    """The passages that came with it, best first; None: they are retrieved."""
    task: str = ""
    """The key of its instruction in ``prompts.self_rag.TASK_INSTRUCTIONS``,
    ``prompts.instruct_rag.TASK_INSTRUCTIONS`` or both; empty: a plain question."""
    choices: Mapping[str, str] = {}
    """Of a closed set: each option's key and text."""
    extra: Mapping[str, Any] = {}
    """What else the task knows: ``qa_pairs`` and ``docs`` of ASQA, ``topic`` of biographies, labels
    of single passages."""
    unanswerable: bool = False
    """Whether a refusal is right; then it has no answers."""


class Outcome(NamedTuple):
    """What one method answered to one question, as one line of ``rows.jsonl``."""

    id: str
    """Of the question."""
    method: str
    """The name of the variant within the run."""
    answer: str
    """Without citation marks; empty where the run failed."""
    rationale: str = ""
    """InstructRAG's; empty for others."""
    cited_answer: str = ""
    citations: tuple[Mapping[str, Any], ...] = ()
    """As in a graph's result."""
    passages: tuple[Mapping[str, Any], ...] = ()
    """``title``, ``text``, ``source`` of each text that the answer could cite, in that order."""
    refused: bool = False
    retrieved: bool = False
    searched: bool = False
    """Whether the web was searched."""
    action: str = ""
    """CRAG's; empty for others."""
    documents: tuple[Mapping[str, Any], ...] = ()
    """``title``, ``text``, ``source`` of each document retrieved or given, best first, before any
    correction."""
    grades: tuple[float, ...] = ()
    """Of ``documents``, by the evaluator, -1 to 1; empty where none ran."""
    thresholds: Mapping[str, float] = {}
    """``upper`` and ``lower``, by which the grades chose the action; empty where none did."""
    strips: tuple[Mapping[str, Any], ...] = ()
    """``text``, ``score`` and ``kept`` of each strip of documents and web pages."""
    retrieval: float | None = None
    """Self-RAG's probability that evidence is needed, 0 to 1; None where the model was not
    asked."""
    candidates: tuple[Mapping[str, Any], ...] = ()
    """Self-RAG's segments: ``depth``, ``passage`` (an index into ``passages``, or None), ``text``,
    ``critique``, ``judgements``, ``sequence_probability``, ``score`` and ``chosen``, as in a
    graph's result."""
    model_calls: int = 0
    prompt_tokens: int | None = 0
    """None where no model said it."""
    generated_tokens: int | None = 0
    seconds: float = 0.0
    """With those that remembered calls took when they were made."""
    remembered_calls: int = 0
    """Of ``model_calls``, those that another variant had made: what remains was really asked."""
    remembered_tokens: int = 0
    """Of the tokens, those of remembered calls."""
    error: str = ""
    """Why there is no answer."""
