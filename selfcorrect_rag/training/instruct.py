"""InstructRAG: rationales, which explain how documents lead to a known answer (section 2.2,
Algorithm 1), and INSTRUCTRAG-FT, a language model fine-tuned to write them (section 2.3)."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from pydantic import AliasChoices, Field, PositiveInt, field_validator

from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.intake import title_of
from selfcorrect_rag.journal import write_rows
from selfcorrect_rag.models.chat_model import was_cut, written_text
from selfcorrect_rag.prompts.instruct_rag import (
    TASK_INSTRUCTIONS,
    rationale_prompt,
    training_prompt,
)
from selfcorrect_rag.prompts.parts import quoted
from selfcorrect_rag.training import fine_tuning
from selfcorrect_rag.training.fine_tuning import CausalOptions, Examples
from selfcorrect_rag.training.labelling import LabellingOptions, Request, ask_all
from selfcorrect_rag.training.rows import (
    Filled,
    PassageField,
    Progress,
    Row,
    Share,
    hold_out,
    read_rows,
)


class RationaleOptions(LabellingOptions):
    """Options of ``train rationales``, the paper's; rows are {question, answers, documents} with
    the best document first, or official ones, with ctxs for documents."""

    run_only = LabellingOptions.run_only | {"consistent_only"}

    dataset: Literal["asqa", "popqa", "triviaqa", "nq", "2wikimultihopqa"] = "nq"
    """The data set whose instruction (Table 8) to use."""
    top_k: PositiveInt = 5
    """Maximum documents; the paper takes 10 for 2wikimultihopqa (Table 2)."""
    consistent_only: bool = False
    """Leave out rows whose rationale does not contain an answer."""


class InstructOptions(
    CausalOptions,
    model="meta-llama/Meta-Llama-3-8B-Instruct",
    num_train_epochs=2.0,
    learning_rate=2.5e-5,
    lr_scheduler_type="cosine",
    max_length=4096,
):
    """Options of ``train instruct``, InstructRAG's (appendix B); rows are those of rationales."""

    held_out_ratio: Share = 0.02
    """Share of the questions held out for the report."""


class Sample(Row):
    """A question, its correct answers, and the documents that a retriever found, best first: by
    their ``score`` if they have one."""

    question: Filled
    answers: tuple[Filled, ...] = Field(min_length=1)
    documents: tuple[PassageField, ...] = Field(validation_alias=AliasChoices("documents", "ctxs"))

    @field_validator("documents")
    @classmethod
    def _best_first(cls, documents: tuple[Document, ...]) -> tuple[Document, ...]:
        return tuple(sorted(documents, key=lambda d: -float(d.metadata["score"])))


class InstructRow(Row):
    """A row of ``train rationales``: documents in the order that the rationale numbers them."""

    question: Filled
    documents: tuple[PassageField, ...]
    rationale: Filled


def make_rationales(
    options: RationaleOptions, llm: Runnable[Any, Any] | None = None, progress: Progress = None
) -> dict[str, Any]:
    """Let any LangChain LLM or chat model explain how documents lead to the known answer.

    A row has the ``documents`` as they are numbered, the best one last (official code); whether the
    rationale is ``consistent`` (contains an answer); and ``prompt`` and ``completion`` as chat
    messages (Table 11). Returns the counts of :func:`~.labelling.ask_all`, the share of
    ``consistent`` rationales (the paper: 0.89), and how many rows were ``written``.
    """
    rows = read_rows(options.data, Sample)
    instruction = TASK_INSTRUCTIONS[options.dataset]
    shown = [row.documents[: options.top_k][::-1] for row in rows]
    requests = [
        Request(row.digest, rationale_prompt(row.question, d, row.answers, instruction), _read)
        for row, d in zip(rows, shown, strict=True)
    ]
    given, counts = ask_all(options, requests, llm, progress)
    made = []
    for row, read in zip(rows, shown, strict=True):
        if row.digest in given:
            rationale = given[row.digest]["rationale"]
            prompt = training_prompt(row.question, read)
            made.append(
                {
                    "question": row.question,
                    "answers": list(row.answers),
                    "documents": [{"title": title_of(d), "text": d.page_content} for d in read],
                    "rationale": rationale,
                    "consistent": contains_answer(rationale, row.answers),
                    "prompt": [{"role": "user", "content": prompt}],
                    "completion": [{"role": "assistant", "content": rationale}],
                }
            )
    kept = [row for row in made if row["consistent"] or not options.consistent_only]
    write_rows(options.out, kept)
    consistent = fmean(row["consistent"] for row in made) if made else None
    return {**counts, "consistent": consistent, "written": len(kept)}


def _read(answer: Any) -> dict[str, Any]:
    text = written_text(answer).strip()
    if not text:
        raise ValueError("the model wrote nothing")
    if was_cut(answer):
        raise ValueError("the rationale was cut at the model's token limit")
    return {"rationale": text}


def train_instruct(
    options: InstructOptions, progress: Progress = None, *, base: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune INSTRUCTRAG-FT, a causal language model that answers with rationales.

    The result is ``out / "model"``; :func:`~.fine_tuning.tune_causal` describes the report.
    """
    rows = read_rows(options.data, InstructRow)
    run_id = fine_tuning.prepare(options, rows)
    model, tokenizer, longest = fine_tuning.load_decoder(options, base)
    parts = hold_out(rows, options.held_out_ratio)
    train, held_out = (instruct_examples(part, tokenizer, longest) for part in parts)
    _, report = fine_tuning.tune_causal(
        model, tokenizer, train, options, run_id, options.out / "model", held_out=held_out
    )
    return fine_tuning.write_report(options.out, report)


def instruct_examples(rows: Sequence[InstructRow], tokenizer: Any, longest: int) -> Examples:
    """Encode rows, each to at most ``longest`` ids; rationale and end are learned. A longer row
    loses whole documents, the first and weakest first, down to one, as at inference. The others
    keep their numbers, since the rationale names them so."""
    found = Examples()
    for row in rows:
        plain = tokenizer(quoted(row.rationale.strip()), add_special_tokens=False)["input_ids"]
        rationale = [*plain, tokenizer.eos_token_id]
        lines = training_prompt(row.question.strip(), row.documents).split("\n")
        for dropped in range(max(len(row.documents), 1)):  # a document is one line
            prompt = _prompt_ids(tokenizer, "\n".join(lines[dropped:]))
            if len(prompt) + len(rationale) <= longest:
                found.add([*prompt, *rationale], [False] * len(prompt) + [True] * len(rationale))
                found.shortened += dropped > 0
                break
        else:
            found.left_out += 1
    return found


def _prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of inference: of one user message, as a chat server's, or without a chat template of
    the prompt and a line break, as graphs ask such a model."""
    if tokenizer.chat_template is None:
        ids: list[int] = tokenizer(f"{prompt}\n")["input_ids"]
        return ids[:-1] if ids[-1] == tokenizer.eos_token_id else ids
    asked = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    # Only the template says what comes first: a second <s> would differ from inference.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
