"""What the fine-tunings of generator and INSTRUCTRAG-FT share: rows to learn and rows held out."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.critic import load_language_model
from selfcorrect_rag.training.batches import Examples, packed, padded
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    TrainingSettings,
    adapted,
    attend_fast,
    fine_tune,
    loading_dtype,
    option,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow
from selfcorrect_rag.training.held_out import is_held_out
from selfcorrect_rag.training.instruct_rows import InstructRow

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class CausalLMSettings(TrainingSettings):
    """What decides a model that answers questions; defaults are Self-RAG's (B.1)."""

    packing: bool = option(
        True,
        "rows of a forward pass in one sequence without padding, masked from each other; off for "
        "models that take no positions",
    )
    held_out_ratio: float = option(
        0.02, "share of the questions held out from training, for the report; in [0, 1)", "SHARE"
    )


Row = TypeVar("Row", GeneratorRow, InstructRow)


def load_decoder(
    settings: CausalLMSettings, base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None"
) -> tuple[Any, "PreTrainedTokenizerBase"]:
    """``base``, or else ``settings.model`` with its tokenizer.

    Raises:
        ModelNotFound: the model cannot be loaded.
        BadTrainingData: it has an encoder, or is not named.
    """
    if not (base or settings.model):
        raise BadTrainingData("settings.model names no model: give a folder or a hub name")
    model, tokenizer = base or load_language_model(settings.model, loading_dtype(settings))
    if model.config.is_encoder_decoder:
        raise BadTrainingData(f"{settings.model} has an encoder: what answers is a decoder alone")
    return model, tokenizer


def tune_answering(
    model: Any,
    rows: Sequence[Row],
    encode: Callable[[Sequence[Row]], Examples],
    out: Path,
    settings: CausalLMSettings,
    run_options: RunOptions,
    *,
    run: Mapping[str, Any],
    tokens: Collection[int] = (),
) -> tuple[Any, Examples, Examples]:
    """Train a causal ``model`` in place, or an adapter around it, on the rows not held out.

    ``run`` is what ``prepare`` gave; ``tokens`` are new ids, whose rows of embedding and head an
    adapter trains too.

    Returns:
        The Trainer (see :func:`~.fine_tuning.fine_tune`), what it learned, and what was held out.

    Raises:
        BadTrainingData: there is no row to train on.
    """
    train = encode([row for row in rows if not is_held_out(row.question, settings.held_out_ratio)])
    held_out = encode([row for row in rows if is_held_out(row.question, settings.held_out_ratio)])
    if not train.examples:
        raise BadTrainingData(f"no row of the {len(rows)} is left to train on")
    is_flash = attend_fast(model, settings)
    collate = packed(flash_attention=is_flash) if settings.packing else padded
    model = adapted(model, settings, "CAUSAL_LM", tokens=tokens)
    trainer = fine_tune(model, train.examples, collate, out, settings, run_options, run=run)
    return trainer, train, held_out
