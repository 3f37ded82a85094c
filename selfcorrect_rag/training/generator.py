"""Fine-tunes Self-RAG's generator on outputs with reflection tokens (3.2.2, Algorithm 2, B.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.local.checkpoints import taken
from selfcorrect_rag.reflection import GROUP_OF, PARAGRAPH, TOKENS
from selfcorrect_rag.training.answering import CausalLMSettings, load_decoder, tune_answering
from selfcorrect_rag.training.batches import Examples, row_counts
from selfcorrect_rag.training.confusion import agreement_of
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    export,
    prepare,
    write_report,
)
from selfcorrect_rag.training.generator_examples import generator_examples, refuse_unlearnable
from selfcorrect_rag.training.generator_rows import GeneratorRow
from selfcorrect_rag.training.held_out import Read, read_tokens
from selfcorrect_rag.training.vocabulary import add_control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class GeneratorSettings(CausalLMSettings):
    """What decides the generator; defaults are the paper's 7B (B.1)."""

    model: str = "meta-llama/Llama-2-7b-hf"


PRESETS: Mapping[str, GeneratorSettings] = {
    "7b": GeneratorSettings(),
    "13b": GeneratorSettings(model="meta-llama/Llama-2-13b-hf", max_length=1524),
    "8b": GeneratorSettings(
        model="meta-llama/Meta-Llama-3-8B-Instruct",
        num_train_epochs=1.0,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        max_length=4096,
    ),
    "nano": GeneratorSettings(
        model="", learning_rate=3e-4, batch_size=16, per_device_batch_size=4, max_length=640
    ),
}
"""``7b`` and ``13b`` are Self-RAG's (B.1); ``8b`` is its re-implementation by InstructRAG (appendix
B, training details); ``nano`` is ours, for a small generator: it names no model."""


def train_generator(
    rows: Sequence[GeneratorRow],
    out: Path,
    settings: GeneratorSettings | None = None,
    run_options: RunOptions | None = None,
    *,
    base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
) -> dict[str, Any]:
    """Fine-tune a causal language model to retrieve, write and criticise.

    Its vocabulary grows by the control tokens that it lacks. The same call goes on from the newest
    checkpoint in ``out`` after a kill, to the same weights.

    Args:
        rows: see :func:`~selfcorrect_rag.training.generator_rows.read_generator_rows`.
        out: folder of checkpoints, the result (``generator``, where an adapter was trained with it
            merged, and the adapter alone as ``adapter``) and ``report.json``.
        settings: see :class:`GeneratorSettings`.
        run_options: see :class:`~selfcorrect_rag.training.fine_tuning.RunOptions`.
        base: a model and its tokenizer to begin from, in place of ``settings.model``; changed.

    Returns:
        How many ``rows`` were trained on, held out, ``shortened`` and ``left_out``; how many
        ``tokens`` a pass over the data reads and learns; how many tokens the vocabulary grew by;
        and of the rows held out, see :func:`held_out_report`.

    Raises:
        MissingExtra: torch, transformers, accelerate or peft is not installed.
        ModelNotFound: ``settings.model`` cannot be loaded.
        NotAReflectionModel: its tokenizer is not a fast one.
        BadTrainingData: there is no row to train on or none with a reflection token, an output
            cannot be read, the model cannot be trained so, or ``out`` holds a run with other
            settings or rows; see also
            :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
    """
    settings, run_options = settings or GeneratorSettings(), run_options or RunOptions()
    refuse_unlearnable(rows)
    run = prepare(out, settings, rows)
    model, tokenizer = load_decoder(settings, base)
    added = add_control_tokens(model, tokenizer)
    controlled = ControlledTokenizer(tokenizer)
    ids = controlled.control_ids

    def encode(some: Sequence[GeneratorRow]) -> Examples:
        return generator_examples(some, controlled, taken(model, settings.max_length))

    trainer, train, test = tune_answering(
        model, rows, encode, out, settings, run_options, run=run, tokens=ids.values()
    )
    groups = [[ids[token] for token in TOKENS[group]] for group in controlled.groups]
    read = read_tokens(trainer, test.examples, groups)
    report = {
        "rows": row_counts(train, test),
        "tokens": {"read": train.read, "learned": train.learned, "added": added},
        "held_out": held_out_report(read, controlled),
    }
    export(trainer, tokenizer, out / "generator")
    write_report(out, report)
    return report


def held_out_report(read: Sequence[Read], tokenizer: ControlledTokenizer) -> dict[str, Any]:
    """What is learned, by kind: ``text``, a group of reflection tokens, ``paragraph``, ``end``.

    Returns:
        By kind ``tokens`` and their mean ``loss`` (negative natural log-probability under the full
        vocabulary; None without tokens). By group ``accuracy``, ``base_rate`` and ``confusion`` of
        the likeliest token of the group, which is what the graphs read; see
        :func:`~selfcorrect_rag.training.confusion.agreement_of`.
    """
    name = {token_id: token for token, token_id in tokenizer.control_ids.items()}
    kinds = {token_id: GROUP_OF[token] for token_id, token in name.items() if token in GROUP_OF}
    kinds |= {tokenizer.control_ids[PARAGRAPH]: "paragraph"}
    if tokenizer.eos_id is not None:
        kinds[tokenizer.eos_id] = "end"
    losses: dict[str, list[float]] = {
        kind: [] for kind in ("text", *tokenizer.groups, "paragraph", "end")
    }
    for token in read:
        losses[kinds.get(token.token_id, "text")].append(token.loss)
    return {
        "tokens": {kind: len(of_kind) for kind, of_kind in losses.items()},
        "loss": {kind: fmean(of_kind) if of_kind else None for kind, of_kind in losses.items()},
        **agreement_of((name[t.token_id], name[t.chosen]) for t in read if t.chosen >= 0),
    }
