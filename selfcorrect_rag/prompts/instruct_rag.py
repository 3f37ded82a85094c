"""InstructRAG's prompts for rationales, training and inference, as appendix D gives them.

The tables' chat-template marks are left out: a chat model brings its own template, and an LLM
continues plain text. Documents and questions are untrusted: a document takes one line, so that its
text cannot begin another one, and all is quoted.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.prompts.parts import Part, Prompt, entries, one_line, quoted
from selfcorrect_rag.prompts.reading import sentences
from selfcorrect_rag.settings import Mode
from selfcorrect_rag.state import Demonstration

INSTRUCTION = (
    "Your task is to analyze the provided documents and answer the given question. Please generate "
    "a brief explanation of how the contents of these documents lead to your answer. If the "
    "provided information is not helpful to answer the question, you only need to respond based on "
    "your own knowledge, without referring to the documents."
)
EXAMPLES = "Below are some examples of how to answer the question:"
"""The instruction for inference, and the heading of the demonstrations (Table 10)."""
QUERY = "Based on your knowledge and the provided information, answer the question: "
"""The text before the question (Tables 9 to 11)."""
QUERY_WITHOUT_DOCUMENTS = "Based on your knowledge, answer the question: "
"""The same where there is no document. Ours: the paper prints no prompt without retrieval."""
TASK_INSTRUCTIONS = entries("instruct_rag_8")
"""Task-specific instructions of Table 8. The paper gives them to the rationale generator."""


def inference_prompt(
    mode: Mode,
    question: str,
    documents: Sequence[Document] = (),
    demonstrations: Sequence[Demonstration] = (),
    instruction: str | None = None,
) -> Prompt:
    """Return the prompt of a mode (Tables 9 to 11; ``ft`` is the prompt of training).

    Line breaks are the tables'; a blank line ends each demonstration, since a rationale may have
    several lines.

    Args:
        mode: ``no_retrieval`` shows no documents, ``icl`` and ``few_shot`` show demonstrations.
        question: the question.
        documents: in the order shown, numbered from 1.
        demonstrations: in the order shown, with a rationale for ``icl``, answers for ``few_shot``.
        instruction: task-specific instruction, put last; ``ft`` takes none.
    """
    parts: list[Part] = []
    if mode in ("instruct", "icl", "few_shot"):
        parts.append(Part(f"{INSTRUCTION}\n", "trusted"))
    if mode in ("icl", "few_shot"):
        parts.append(Part(f"{EXAMPLES}\n", "trusted"))
        for shown in demonstrations:
            answer = shown["rationale"] if mode == "icl" else shown["answers"][0]
            text = f"{shown['question'].strip()}\n{answer.strip()}"
            parts += [Part(quoted(text), "untrusted", shorten=3), Part("\n\n", "trusted")]
    if mode != "no_retrieval":
        for number, document in enumerate(documents, start=1):
            title = _title(document)
            opening = f" (Title: {title}): " if title else ": "
            text = opening + " ".join(document.page_content.split())
            parts += [
                Part(f"Document [{number}]", "trusted"),
                Part(quoted(text.rstrip()), "untrusted", shorten=1, title=quoted(title)),
                Part("\n", "trusted"),
            ]
    query = QUERY_WITHOUT_DOCUMENTS if mode == "no_retrieval" else QUERY
    parts += [Part(query, "trusted"), Part(quoted(question), "untrusted", shorten=4)]
    if instruction and mode != "ft":
        parts.append(Part(f"\n{quoted(instruction)}", "trusted"))
    return Prompt(parts=tuple(parts))


class InferenceRequest(NamedTuple):
    """The parts of an inference prompt."""

    question: str
    documents: list[tuple[str, str]]
    """Title and text of each, in the order shown."""
    instructed: bool
    """Whether the instruction to explain stands first."""


def inference_request(prompt: Prompt) -> InferenceRequest | None:
    """Parse a prompt by its parts, without demonstrations; None if it is another prompt."""
    pairs = [pair for pair in pairwise(prompt.parts) if pair[0].kind == "trusted"]
    asked = [part.text for before, part in pairs if before.text in (QUERY, QUERY_WITHOUT_DOCUMENTS)]
    documents = []
    for before, part in pairs:
        if re.fullmatch(r"Document \[\d+\]", before.text):
            opening = f" (Title: {part.title}): " if part.title else ": "
            documents.append((part.title, part.text[len(opening) :]))
    instructed = prompt.parts[0] == Part(f"{INSTRUCTION}\n", "trusted")
    return InferenceRequest(asked[-1], documents, instructed) if asked else None


_ANSWER = re.compile(
    r"^[ \t*_#>]*(?:final )?answer[*_]{0,3} ?:[\s*_]*(\S.*)", re.IGNORECASE | re.MULTILINE
)
LONGEST_RANGE = 32
"""Most documents that a range such as "1-9" names."""
_NUMBER = r"\[?\d{1,3}\]?"
_AND = "(?:, and |, | and | or |-|–)"
_NAMED = re.compile(
    rf"\b(?:documents?|docs?) ({_NUMBER}(?:{_AND}{_NUMBER}){{0,31}})(?!\d)"
    r"|\[(\d{1,3}(?:(?:, ?|-|–)\d{1,3}){0,31})\]",
    re.IGNORECASE,
)

_LATE_MARKS = re.compile(
    r"([.!?]) ?(\[\d{1,3}(?:, ?\d{1,3}){0,31}\](?: ?\[\d{1,3}\]){0,31})(?=\s|$)"
)
"""Marks behind the stop of the sentence that they belong to."""


def read_answer(rationale: str) -> str:
    """Return what follows "Answer:" on a separate line, else the last paragraph's last sentence.

    Of several such lines the last counts. Empty for an empty rationale.
    """
    said = [answer.strip(" \t*_") for answer in _ANSWER.findall(rationale)]
    last = _LATE_MARKS.sub(r" \2\1 ", _paragraphs(rationale)[-1])
    return (said or sentences(last) or [""])[-1]


def read_numbers(rationale: str) -> list[int]:
    """Return the numbers of documents named in the conclusion: "Document 2", "[2]", "[1, 3-5]".

    The conclusion is the last paragraph, with the one before it if the last one is only the line
    with the answer. Nothing else is read out of the prose. In order of first naming.
    """
    paragraphs = _paragraphs(rationale)
    is_line = "\n" not in paragraphs[-1] and bool(_ANSWER.match(paragraphs[-1]))
    conclusion = "\n".join(paragraphs[-2:] if is_line else paragraphs[-1:])
    named = " ".join(named[0] or named[1] for named in _NAMED.findall(conclusion))
    ranges = re.findall(r"(\d+)\]?(?:[-–]\[?(\d+))?", named)
    every = (
        n for a, b in ranges for n in range(int(a), max(int(a), int(b or a)) + 1)[:LONGEST_RANGE]
    )
    return list(dict.fromkeys(every))


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text.strip())]


def rationale_prompt(
    question: str, documents: Sequence[Document], answers: Sequence[str], instruction: str
) -> str:
    """Return the prompt of a rationale generator (Table 7), for one user message.

    Without documents it is the prompt of an ablation (section 3.3), which the paper describes and
    does not print: the wording is ours, from Table 7's.
    """
    question, instruction = one_line(question), quoted(instruction)
    answer = "; ".join(map(one_line, answers))  # an answer may contain commas
    if not documents:
        return (
            f'Please answer the given question: "{question}", and explain what leads to the '
            f"answer: {answer}, only based on your own knowledge.\n\n{instruction}"
        )
    texts = "\n\n".join(
        f"Document [{number}] (Title: {quoted(_title(each))}): {one_line(each.page_content)}"
        for number, each in enumerate(documents, start=1)
    )
    return (
        f"Read the following documents relevant to the given question: {question}\n\n"
        f"{texts}\n\n"
        "Please identify documents that are useful to answer the given question: "
        f'"{question}", and explain how the contents lead to the answer: {answer}.\n\n'
        "If none of the documents is aligned with the answer, in that case, you have to explain "
        "the answer only based on your own knowledge, without referring to the provided "
        f"information.\n\n{instruction}"
    )


def training_prompt(question: str, documents: Sequence[Document]) -> str:
    """Return the prompt that INSTRUCTRAG-FT is trained on (Table 11): that of inference."""
    return "".join(part.text for part in inference_prompt("ft", question, documents).parts)


def _title(document: Document) -> str:
    return " ".join(str(document.metadata.get("title") or "").split())
