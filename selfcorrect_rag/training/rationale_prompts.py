"""InstructRAG's prompts for rationales, and the prompt that a model is fine-tuned on.

Tables 6 to 8 and 11. Questions, answers and documents are untrusted: each stands on one line, so
that none can open another document or a paragraph of instructions, and braces in them are braces.
All is quoted (:mod:`~selfcorrect_rag.prompts.quoting`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from langchain_core.documents import Document

from selfcorrect_rag.prompts.instruct_rag import TASK_INSTRUCTIONS, inference_prompt
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.training.fine_tuning import option
from selfcorrect_rag.training.samples import Sample, title

Dataset = Literal["asqa", "popqa", "triviaqa", "nq", "2wikimultihopqa"]
DATASETS: tuple[Dataset, ...] = get_args(Dataset)
Order = Literal["best_last", "best_first"]

TOP_K: dict[Dataset, int] = dict.fromkeys(DATASETS, 5) | {"2wikimultihopqa": 10}
"""Documents of a question (Table 2)."""


@dataclass(frozen=True)
class RationaleSettings:
    """What decides a rationale; defaults are the paper's."""

    model: str = ""
    """A name for the model, so that rationales of two models never mix in one file."""
    temperature: float = option(
        0.0,
        "sampling temperature of a PROVIDER:MODEL, from 0: greedy, as in the paper (appendix B)",
        "TEMPERATURE",
    )
    dataset: Dataset = option(
        "nq", "benchmark whose task-specific instruction and number of documents are used"
    )
    instruction: str | None = option(
        None, "task-specific instruction of your own; by default the dataset's", "TEXT"
    )
    top_k: int | None = option(
        None,
        "most documents of a question; by default 5, and 10 for 2wikimultihopqa",
        "DOCUMENTS",
        minimum=1,
    )
    order: Order = option(
        "best_last",
        "where the best document stands: next to the question, as in the official code, or first",
    )
    with_answers: bool = True
    """The paper's ablation without ground-truth answer, where False."""
    with_documents: bool = True
    """The paper's ablation without retrieved documents, where False; training reads them still."""

    def shown(self, sample: Sample) -> tuple[Document, ...]:
        """The documents that a model reads, in the order of their numbers."""
        best = sample.documents[: TOP_K[self.dataset] if self.top_k is None else self.top_k]
        return best[::-1] if self.order == "best_last" else best


def prompt_for(sample: Sample, settings: RationaleSettings) -> str:
    """The :func:`rationale_prompt` of a training sample."""
    instruction = settings.instruction
    return rationale_prompt(
        sample.question,
        settings.shown(sample) if settings.with_documents else (),
        sample.answers if settings.with_answers else (),
        TASK_INSTRUCTIONS[settings.dataset] if instruction is None else instruction,
    )


def rationale_prompt(
    question: str,
    documents: Sequence[Document],
    answers: Sequence[str],
    instruction: str,
) -> str:
    """What a rationale generator is asked (Table 7), for one user message.

    Without answers, or without documents, it is the prompt of an ablation (section 3.3). The paper
    describes these two and does not print them: the wording is ours, from Table 7's.

    Args:
        question: as the user asks it.
        documents: numbered from 1 in the order given.
        answers: all that are correct.
        instruction: the task-specific one; see :data:`TASK_INSTRUCTIONS`.
    """
    question, answer, instruction = _line(question), _joined(answers), quoted(instruction)
    if not documents:
        told = f"the answer: {answer}" if answer else "the answer"
        return (
            f'Please answer the given question: "{question}", and explain what leads to {told}, '
            f"only based on your own knowledge.\n\n{instruction}"
        )
    shown = (
        f"Read the following documents relevant to the given question: {question}\n\n"
        f"{documents_text(documents)}\n\n"
        "Please identify documents that are useful to answer the given question: "
        f'"{question}", and explain how the contents lead to the answer'
    )
    if not answer:
        return f"{shown}.\n\n{instruction}"
    return (
        f"{shown}: {answer}.\n\n"
        "If none of the documents is aligned with the answer, in that case, you have to explain "
        "the answer only based on your own knowledge, without referring to the provided "
        f"information.\n\n{instruction}"
    )


def training_prompt(question: str, documents: Sequence[Document]) -> str:
    """What INSTRUCTRAG-FT reads before it writes the rationale (Table 11), for one user message:
    the very prompt of inference."""
    return "".join(part.text for part in inference_prompt("ft", question, documents).parts)


def template_rationale(answers: Sequence[str], relevant: Sequence[int]) -> str:
    """A rationale without a generator (Table 6); ``relevant`` are numbers of documents, from 1."""
    found = "none of them contain"
    if relevant:
        found = f"only documents {', '.join(f'[{number}]' for number in relevant)} contain"
    return (
        f"After reviewing the provided document, I found that {found} relevant information to "
        "answer the question. Based on my knowledge and the provided contents, the answer is: "
        f"{_joined(answers)}."
    )


def documents_text(documents: Sequence[Document]) -> str:
    """``Document [1] (Title: ...): ...`` and so on, a blank line between two."""
    return "\n\n".join(
        f"Document [{number}] (Title: {_line(title(document))}): {_line(document.page_content)}"
        for number, document in enumerate(documents, start=1)
    )


def _joined(answers: Sequence[str]) -> str:
    """Several answers as one; many an answer has a comma of its own."""
    return "; ".join(_line(answer) for answer in answers)


def _line(text: str) -> str:
    return quoted(" ".join(text.split()))
