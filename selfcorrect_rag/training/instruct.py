"""Fine-tunes INSTRUCTRAG-FT: a language model that answers with rationales (section 2.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.models.local.checkpoints import taken
from selfcorrect_rag.training.answering import CausalLMSettings, load_decoder, tune_answering
from selfcorrect_rag.training.batches import Examples, row_counts
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    Schedule,
    export,
    option,
    prepare,
    write_report,
)
from selfcorrect_rag.training.held_out import read_tokens
from selfcorrect_rag.training.instruct_rows import (
    InstructRow,
    InstructTokenizer,
    instruct_examples,
)
from selfcorrect_rag.training.rationale_prompts import Order

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class InstructSettings(CausalLMSettings):
    """What decides the model; defaults are InstructRAG's (appendix B, training details)."""

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
        rows: see :func:`~selfcorrect_rag.training.instruct_rows.read_instruct_rows`.
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
            token, or ``out`` holds a run with other settings; see also
            :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
    """
    settings, run_options = settings or InstructSettings(), run_options or RunOptions()
    run = prepare(out, settings, rows)
    model, tokenizer = load_decoder(settings, base)
    words = InstructTokenizer(tokenizer)

    def encode(some: Sequence[InstructRow]) -> Examples:
        return instruct_examples(some, words, taken(model, settings.max_length), settings.order)

    trainer, train, test = tune_answering(model, rows, encode, out, settings, run_options, run=run)
    read = read_tokens(trainer, test.examples, groups=[])
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
