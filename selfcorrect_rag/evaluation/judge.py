"""A chat model as judge of rationales (InstructRAG, appendix E)."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.documents import Document
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ValidationError

from selfcorrect_rag.prompts.evaluator import YES, parse_label
from selfcorrect_rag.prompts.parts import written_text
from selfcorrect_rag.prompts.quoting import quoted

EVALUATOR = (
    "You are a question-answering evaluator. Given the question, please judge whether the "
    "rationale aligns with the true answer."
)
"""Table 12."""

IN_TEXT = 'Begin with "yes" if it aligns and "no" if it does not, then explain why.'
"""Added for models without structured output. Ours: the paper's judge answers freely."""


class Judgement(TypedDict):
    """The judgement of a rationale."""

    aligns: bool | None
    """Whether the rationale leads to the true answer; None where the model did not say."""
    explanation: str


class Verdict(TypedDict):
    """Whether a rationale aligns with the true answer."""

    explanation: Annotated[str, ..., "Why it does or does not, step by step."]
    aligns: Annotated[bool, ..., "Whether the rationale aligns with the true answer."]


def judge_rationale(
    chat_model: Runnable[Any, Any],
    question: str,
    answers: Sequence[str],
    documents: Sequence[Document],
    rationale: str,
) -> Judgement:
    """Ask whether a rationale aligns with the true answer, which pattern matching cannot tell.

    A right answer from contradictory reasoning is to be found out (Table 12). The model gives
    structured output where it can; where it cannot, or gives none of use, its text is read. Errors
    of the model pass through.

    Args:
        chat_model: any LangChain chat model.
        question: the question.
        answers: its true answers.
        documents: what the rationale was written from, in the order of their numbers; the paper's
            judge sees none, so ``()`` gives the paper's prompt.
        rationale: what is judged.
    """
    prompt = judge_prompt(question, answers, documents, rationale)
    structured = _structured(chat_model)
    if structured is not None:
        try:
            found = _judgement(structured.invoke([HumanMessage(prompt)], _CONFIG))
        except (OutputParserException, ValidationError):
            found = None
        if found is not None:
            return found
    return _read(chat_model.invoke(_in_text(prompt), _CONFIG))


async def ajudge_rationale(
    chat_model: Runnable[Any, Any],
    question: str,
    answers: Sequence[str],
    documents: Sequence[Document],
    rationale: str,
) -> Judgement:
    """The async twin of :func:`judge_rationale`."""
    prompt = judge_prompt(question, answers, documents, rationale)
    structured = _structured(chat_model)
    if structured is not None:
        try:
            found = _judgement(await structured.ainvoke([HumanMessage(prompt)], _CONFIG))
        except (OutputParserException, ValidationError):
            found = None
        if found is not None:
            return found
    return _read(await chat_model.ainvoke(_in_text(prompt), _CONFIG))


def judge_prompt(
    question: str, answers: Sequence[str], documents: Sequence[Document], rationale: str
) -> str:
    """Table 12's prompt: the case is one JSON object, which no text in it can leave."""
    true = [quoted(answer) for answer in answers]
    case: dict[str, Any] = {
        "question": quoted(question),
        "true_answer": true[0] if len(true) == 1 else true,
        "rationale": quoted(rationale),
    }
    if documents:
        case["documents"] = {
            f"Document [{number}]": {
                "title": quoted(str(document.metadata.get("title") or "")),
                "text": quoted(document.page_content),
            }
            for number, document in enumerate(documents, start=1)
        }
    return f"{EVALUATOR}\n\n{json.dumps(case, ensure_ascii=False)}"


# Judging is no part of an answer: keep it out of token streams.
_CONFIG = RunnableConfig(tags=["nostream"])


def _structured(chat_model: Runnable[Any, Any]) -> Runnable[Any, Any] | None:
    try:
        made: Runnable[Any, Any] = chat_model.with_structured_output(Verdict)  # type: ignore[attr-defined]
    except (AttributeError, NotImplementedError):
        return None
    return made


def _judgement(given: object) -> Judgement | None:
    if not isinstance(given, Mapping) or not isinstance(given.get("aligns"), bool):
        return None
    return Judgement(aligns=given["aligns"], explanation=str(given.get("explanation", "")))


def _in_text(prompt: str) -> list[BaseMessage]:
    return [HumanMessage(f"{prompt}\n\n{IN_TEXT}")]


def _read(answer: object) -> Judgement:
    text = written_text(answer)
    found = parse_label("direct", text)
    return Judgement(aligns=found and found.label == YES, explanation=text.strip())
