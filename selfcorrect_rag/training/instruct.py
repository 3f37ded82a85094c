"""Fine-tunes INSTRUCTRAG-FT: a language model that answers with rationales (section 2.3)."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.engines.tokens import hide_special_tokens
from selfcorrect_rag.prompts.instruct_rag import training_prompt
from selfcorrect_rag.training.fine_tuning import (
    CausalOptions,
    Examples,
    export,
    load_decoder,
    predict_tokens,
    prepare,
    tune_causal,
    write_report,
)
from selfcorrect_rag.training.rationales import Order
from selfcorrect_rag.training.rows import Filled, PassageField, Progress, Row, read_rows


class InstructOptions(
    CausalOptions,
    model="meta-llama/Meta-Llama-3-8B-Instruct",
    num_train_epochs=2.0,
    learning_rate=2.5e-5,
    lr_scheduler_type="cosine",
    max_length=4096,
):
    """Options of ``train instruct``; defaults are InstructRAG's (appendix B)."""

    order: Order = "best_last"
    """The place of each row's best document."""


class InstructRow(Row):
    """A row of ``train rationales``: documents in the order that the rationale numbers them."""

    question: Filled
    documents: tuple[PassageField, ...]
    rationale: Filled


def read_instruct_rows(path: Path) -> list[InstructRow]:
    """Read the rows that ``train rationales`` writes."""
    return read_rows(path, InstructRow)


def train_instruct(
    rows: Sequence[InstructRow],
    out: Path,
    options: InstructOptions | None = None,
    *,
    base: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune a causal language model to write rationales.

    Arguments, resumption and errors are those of every fine-tuning; see
    :mod:`~selfcorrect_rag.training.fine_tuning`. The result is ``out / "model"``.

    Returns:
        See :func:`~.fine_tuning.tune_causal`; also of the ``held_out`` rows the ``tokens`` of
        rationales and their mean ``loss`` (negative natural log-probability).
    """
    options = options or InstructOptions()
    run_id = prepare(out, options, rows)
    model, tokenizer = load_decoder(options, base)
    words, longest = InstructTokenizer(tokenizer), max_input_tokens(model, options.max_length)

    def encode(some: Sequence[InstructRow]) -> Examples:
        return instruct_examples(some, words, longest, options.order)

    trainer, held_out, report = tune_causal(
        model, rows, lambda row: row.question, encode, out, options, run_id
    )
    losses = [loss for _, loss, _ in predict_tokens(trainer, held_out)]
    report["held_out"] = {"tokens": len(losses), "loss": fmean(losses) if losses else None}
    export(trainer, tokenizer, out / "model")
    return write_report(out, report)


class InstructTokenizer:
    """Encodes prompts and rationales; none of their text becomes a special token.

    A tokenizer with a chat template puts the prompt into one user message, as a chat server does.
    One without continues the prompt and a line break, as graphs ask a model without a template.

    Raises:
        BadTrainingData: the tokenizer has no end token, or is not a fast one.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if tokenizer.eos_token_id is None or backend is None:
            raise BadTrainingData("a fast tokenizer with an end token (eos_token) is needed")
        self._tokenizer = tokenizer
        self._writer, self._names = hide_special_tokens(backend)

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids that inference ends its prompt with."""
        tokenizer = self._tokenizer
        if tokenizer.chat_template is None:
            start = [i for i in tokenizer("")["input_ids"] if i != tokenizer.eos_token_id]
            return [*start, *self._plain_ids(f"{prompt}\n")]
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        # Only the template says what comes first: a second <s> would differ from inference.
        before, content, after = text.partition(prompt.strip())
        return self._plain_ids(f"{self._secret(before)}{content}{self._secret(after)}")

    def rationale_ids(self, rationale: str) -> list[int]:
        """The ids of a rationale and of the end."""
        return [*self._plain_ids(rationale), self._tokenizer.eos_token_id]

    def _secret(self, trusted: str) -> str:
        """Trusted text with its special tokens under their secret names."""
        tokens = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        return re.sub(tokens, lambda match: self._names[match.group()], trusted)

    def _plain_ids(self, text: str) -> list[int]:
        ids: list[int] = self._writer.encode(text, add_special_tokens=False).ids
        return ids


def instruct_examples(
    rows: Sequence[InstructRow], tokenizer: InstructTokenizer, longest: int, order: Order
) -> Examples:
    """Encode rows, each to at most ``longest`` ids; rationale and end are learned.

    A row that is too long loses whole documents, the weakest first, down to one, as at inference.
    The others keep their numbers, since the rationale names them so.
    """
    found = Examples()
    for row in rows:
        rationale = tokenizer.rationale_ids(row.rationale.strip())
        lines = training_prompt(row.question.strip(), row.documents).split("\n")
        count = len(row.documents)  # a document is one line
        for dropped in range(max(count, 1)):
            shown = lines[dropped:count] if order == "best_last" else lines[: count - dropped]
            prompt = tokenizer.prompt_ids("\n".join([*shown, *lines[count:]]))
            if len(prompt) + len(rationale) <= longest:
                found.add([*prompt, *rationale], [False] * len(prompt) + [True] * len(rationale))
                found.shortened += dropped > 0
                break
        else:
            found.left_out += 1
    return found


def run(data: Path, out: Path, options: InstructOptions, progress: Progress) -> dict[str, Any]:
    """Fine-tune a model on a file of rationales; see :func:`train_instruct`."""
    return train_instruct(read_instruct_rows(data), out, options)
