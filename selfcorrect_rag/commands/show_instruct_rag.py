"""Results of InstructRAG as a person reads them in a terminal."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.commands.show import (
    Styled,
    say,
    show_answer,
    show_documents,
    show_end,
    show_question,
)

if TYPE_CHECKING:
    from rich.console import Console


def show_instruct_rag(
    console: "Console", result: dict[str, Any], seconds: float, source: str
) -> None:
    """Print the documents as they were numbered, the rationale, the answer and its citations."""
    show_question(console, result)
    say(console, (f"  mode {result['mode']}", "dim"))
    numbering = result["numbering"]
    if numbering:
        say(console, (f"  documents from {source}:", "dim"))
        documents = [result["passages"][i] for i in numbering]
        show_documents(console, "D", documents, scores=[_verdict(result, i) for i in numbering])
    for paragraph in result["rationale"].splitlines():
        say(console, f"  {paragraph}")
    show_answer(console, {**result, "cited_answer": result["answer"]})
    show_end(console, result, seconds)


def _verdict(result: dict[str, Any], document: int) -> Styled:
    """What the rationale says of a document."""
    if document in result["useful_documents"]:
        return "useful   ", "green"
    if document in result["dismissed_documents"]:
        return "dismissed", "red"
    return " " * 9, ""
