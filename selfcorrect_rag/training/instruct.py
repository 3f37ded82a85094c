"""Fine-tunes INSTRUCTRAG-FT: a language model that answers with rationales (section 2.3)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.engines.tokens import hide_special_tokens
from selfcorrect_rag.prompts.instruct_rag import training_prompt
from selfcorrect_rag.training.causal_lm import (
    CausalLMSettings,
    Examples,
    example,
    load_decoder,
    predict_tokens,
    row_counts,
    tune_answering,
)
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    Schedule,
    export,
    option,
    prepare,
    write_report,
)
from selfcorrect_rag.training.rationales import Order
from selfcorrect_rag.training.rows import read_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class InstructRow(NamedTuple):
    """A question, documents in the order shown, and the rationale that numbers them so."""

    question: str
    documents: tuple[Document, ...]
    rationale: str


def read_instruct_rows(path: Path) -> list[InstructRow]:
    """Rows as ``train rationales`` writes them: ``question``, ``documents``, ``rationale``.

    Raises:
        BadTrainingData: the file or a row is not so, or a document has no text; the message names
            file and line.
    """
    rows = []
    for place, value in read_rows(path):
        try:
            row = InstructRow(
                value["question"].strip(),
                _documents(value["documents"]),
                value["rationale"].strip(),
            )
            if not row.question or not row.rationale:
                raise ValueError("it is empty")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadTrainingData(
                f'{place}: not {{"question": ..., "documents": [...], "rationale": ...}} in words '
                f"({error})"
            ) from error
        rows.append(row)
    if not rows:
        raise BadTrainingData(f"{path} holds no rows")
    return rows


def _documents(given: Any) -> tuple[Document, ...]:
    """Titles and texts as documents, in their order; ValueError where they are none."""
    if not isinstance(given, list):
        raise ValueError("no list of documents")
    documents = []
    for number, item in enumerate(given, start=1):
        text = item.get("text") if isinstance(item, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"document {number} has no text")
        title = item.get("title")
        if not isinstance(title, str | None):
            raise ValueError(f"the title of document {number} is no text")
        documents.append(Document(text, metadata={"title": title or ""}))
    return tuple(documents)


class InstructTokenizer:
    """Prompts and rationales as ids, such that none of their text becomes a special token.

    A tokenizer with a chat template puts the prompt into one user message, as a chat model's
    server does; the template alone says what stands before it. One without continues the prompt
    and a line break, as graphs ask a model without a template.

    Raises:
        BadTrainingData: the tokenizer has no end token, or is not a fast one.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if tokenizer.eos_token_id is None or backend is None:
            raise BadTrainingData("a fast tokenizer with an end token (eos_token) is needed")
        self._tokenizer: Any = tokenizer
        self._writer, names = hide_special_tokens(backend)
        self._names = names

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids that inference ends its prompt with."""
        if self._tokenizer.chat_template is None:
            return [*self._opening(), *self._plain(f"{prompt}\n")]
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        before, content, after = text.partition(prompt.strip())
        # The template alone says what stands before it: a second <s> would be none of inference's.
        return self._plain(f"{self._named(before)}{content}{self._named(after)}")

    def rationale_ids(self, rationale: str) -> list[int]:
        """The ids of a rationale and of the end."""
        return [*self._plain(rationale), self._tokenizer.eos_token_id]

    def _opening(self) -> list[int]:
        ids: list[int] = self._tokenizer("")["input_ids"]
        return [i for i in ids if i != self._tokenizer.eos_token_id]

    def _named(self, trusted: str) -> str:
        """Text with its special tokens under their secret names."""
        tokens = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        return re.sub(tokens, lambda match: self._names[match.group()], trusted)

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._writer.encode(text, add_special_tokens=False).ids
        return ids


def instruct_examples(
    rows: Sequence[InstructRow], tokenizer: InstructTokenizer, longest: int, order: Order
) -> Examples:
    """Encode rows, each to at most ``longest`` ids; rationale and end are learned.

    Too long a row loses whole documents, the weakest first, down to one, as a prompt does at
    inference. Those that stay keep their numbers, since the rationale names them so.

    Args:
        rows: see :func:`read_instruct_rows`.
        tokenizer: the model's.
        longest: tokens of a row.
        order: where the best document of each row stands.
    """
    found, shortened, left_out = [], 0, 0
    for row in rows:
        rationale = tokenizer.rationale_ids(row.rationale)
        for dropped in range(max(len(row.documents), 1)):
            prompt = tokenizer.prompt_ids(_prompt(row, dropped, order))
            if len(prompt) + len(rationale) <= longest:
                learned = [*(False for _ in prompt), *(True for _ in rationale)]
                found.append(example([*prompt, *rationale], learned))
                shortened += dropped > 0
                break
        else:
            left_out += 1
    return Examples(found, shortened, left_out)


def _prompt(row: InstructRow, dropped: int, order: Order) -> str:
    lines = training_prompt(row.question, row.documents).split("\n")  # a document is one line
    shown = lines[: len(row.documents)]
    kept = shown[dropped:] if order == "best_last" else shown[: len(shown) - dropped]
    return "\n".join([*kept, *lines[len(shown) :]])


@dataclass(frozen=True)
class InstructSettings(CausalLMSettings):
    """Settings of the model; defaults are InstructRAG's (appendix B, training details)."""

    model: str = "meta-llama/Meta-Llama-3-8B-Instruct"
    num_train_epochs: float = 2.0
    learning_rate: float = 2.5e-5
    lr_scheduler_type: Schedule = "cosine"
    max_length: int = 4096
    order: Order = option(
        "best_last", "order of each row's documents, in which its rationale was written"
    )


PRESETS: Mapping[str, InstructSettings] = {"8b": InstructSettings()}
"""``8b`` is the paper's."""


def train_instruct(
    rows: Sequence[InstructRow],
    out: Path,
    settings: InstructSettings | None = None,
    run_options: RunOptions | None = None,
    *,
    base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
) -> dict[str, Any]:
    """Fine-tune a causal language model to write rationales.

    The same call goes on from the newest checkpoint in ``out`` after a kill, to the same weights.

    Args:
        rows: see :func:`read_instruct_rows`.
        out: folder of checkpoints, the result (``model``, where an adapter was trained with it
            merged, and the adapter alone as ``adapter``) and ``report.json``.
        settings: see :class:`InstructSettings`.
        run_options: see :class:`~selfcorrect_rag.training.fine_tuning.RunOptions`.
        base: a model and its tokenizer to begin from, in place of ``settings.model``; changed.

    Returns:
        How many ``rows`` were trained on, held out, ``shortened`` and ``left_out``; of the rows
        held out the mean ``loss`` of a token of the rationale or its end (negative natural
        log-probability), None without such rows.

    Raises:
        MissingExtra: torch, transformers, accelerate or peft is not installed.
        ModelNotFound: ``settings.model`` cannot be loaded.
        BadTrainingData: there is no row to train on, the tokenizer is not fast or has no end
            token; see also :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
        BadRun: ``out`` holds a run with other settings.
    """
    settings, run_options = settings or InstructSettings(), run_options or RunOptions()
    run = prepare(out, settings, rows)
    model, tokenizer = load_decoder(settings, base)
    words = InstructTokenizer(tokenizer)

    def encode(some: Sequence[InstructRow]) -> Examples:
        return instruct_examples(
            some, words, max_input_tokens(model, settings.max_length), settings.order
        )

    trainer, train, test = tune_answering(model, rows, encode, out, settings, run_options, run=run)
    read = predict_tokens(trainer, test.examples, groups=[])
    report = {
        "rows": row_counts(train, test),
        "held_out": {
            "tokens": len(read),
            "loss": fmean(token.loss for token in read) if read else None,
        },
    }
    export(trainer, tokenizer, out / "model")
    write_report(out, report)
    return report
