"""The common parts of all fine-tunings: options, transformers' Trainer, LoRA, export, masked rows.

A fine-tuning takes options, and perhaps a ``base``: a model and its tokenizer to start from instead
of ``options.model``, changed in place. The same call resumes from the newest checkpoint in the
folder ``out``, to the same weights. ``out`` gets the trained model (after LoRA merged, and the
adapter alone as ``adapter``), ``checkpoints`` and ``report.json``, which is also returned. Unfit
data or models raise BadTrainingData, a base that cannot be loaded ModelNotFound, and ``out`` with
other options or data BadRun.
"""

import json
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from selfcorrect_rag.errors import BadTrainingData, require
from selfcorrect_rag.journal import check_run, digest, open_run, replace_file
from selfcorrect_rag.models.checkpoints import load_language_model, save_tokenizer
from selfcorrect_rag.training.rows import Options, Share

MASKED = -100
"""The label of a token without loss."""


class TuningOptions(Options):
    """Hyperparameters, with the names of ``TrainingArguments``; defaults are Self-RAG's (B.1)."""

    run_only = Options.run_only | {"save_steps"}

    model: str = ""
    """Folder or hub name of the base model."""
    num_train_epochs: PositiveFloat = 3.0
    """Passes over the training rows."""
    learning_rate: PositiveFloat = 2e-5
    """Peak learning rate of AdamW."""
    lr_scheduler_type: Literal["linear", "cosine"] = "linear"
    """How the learning rate falls from its peak to 0."""
    warmup_ratio: Share = 0.03
    """Share of the steps before the peak learning rate."""
    batch_size: PositiveInt = 128
    """Rows of an optimizer step, over all processes."""
    per_device_batch_size: NonNegativeInt = 1
    """Rows of one forward pass of a process; 0: all of its share."""
    max_length: PositiveInt = 2048
    """Tokens to which a row is shortened."""
    seed: NonNegativeInt = 0
    """Seed of every random choice."""
    save_steps: PositiveInt = 200
    """Steps between checkpoints, of which two are kept."""
    trainer: dict[str, Any] = Field(default_factory=dict)
    """Other TrainingArguments: {"report_to": "wandb", "gradient_checkpointing": true, ...}."""


class CausalOptions(TuningOptions):
    """Options of a causal language model."""

    lora_rank: NonNegativeInt = 0
    """Rank of a LoRA adapter of all linear layers; 0: train all weights."""


def prepare(options: TuningOptions, rows: Iterable[object]) -> dict[str, Any]:
    """Check everything before a model is loaded, seed all generators, and identify the run."""
    transformers = require("transformers", "train")
    require("accelerate", "train")
    _batches(options)
    if getattr(options, "lora_rank", 0) and _is_sharded():
        raise BadTrainingData("lora_rank needs whole weights; launch without FSDP and DeepSpeed")
    run_id = {**options.identity, "data": digest(map(repr, rows))}
    check_run(options.out, run_id)
    transformers.set_seed(options.seed)
    return run_id


def load_decoder(options: CausalOptions, base: Any) -> tuple[Any, Any]:
    """Return ``base``, or the causal model ``options.model`` with its tokenizer."""
    # Weights that are trained stay in float32.
    dtype = "bfloat16" if options.lora_rank and _has_bfloat16() else "float32"
    model, tokenizer = base or load_language_model(options.model, dtype)
    if model.config.is_encoder_decoder:
        raise BadTrainingData(f"{options.model} has an encoder; give a causal language model")
    return model, tokenizer


def fine_tune(
    model: Any,
    examples: Sequence[Any],
    collate: Callable[[list[Any]], Any],
    options: TuningOptions,
    run_id: Mapping[str, Any],
) -> Any:
    """Train ``model`` in place and return the Trainer.

    ``collate`` makes the batch of a forward pass of ``examples``; ``run_id`` is :func:`prepare`'s.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    cuda = torch.cuda.is_available()
    per_device, accumulation = _batches(options)
    own: dict[str, Any] = {
        "output_dir": str(options.out / "checkpoints"),
        "num_train_epochs": options.num_train_epochs,
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": options.lr_scheduler_type,
        "warmup_steps": options.warmup_ratio,
        "per_device_train_batch_size": per_device,
        "per_device_eval_batch_size": 1,
        "gradient_accumulation_steps": accumulation,
        "seed": options.seed,
        "data_seed": options.seed,  # so that a resumed run sees the rest of the rows
        "dataloader_pin_memory": cuda,
        "use_cpu": not cuda and not torch.backends.mps.is_available(),
        "bf16": _has_bfloat16(),
        "logging_steps": min(50, options.save_steps),
        "save_steps": options.save_steps,
        "save_total_limit": 2,
        "report_to": [],
    }
    try:
        arguments = TrainingArguments(**{**own, **options.trainer})
    except (TypeError, ValueError) as error:
        raise BadTrainingData(f"trainer: {error}") from error
    data: Any = examples
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
    with open_run(options.out, run_id) if is_main_process() else nullcontext():
        trainer.train(resume_from_checkpoint=newest_checkpoint(options.out / "checkpoints"))
    return trainer


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is whole: the Trainer writes its own state last."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda p: -int(p.name.split("-")[1])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
            return str(path)
        except (OSError, ValueError):
            continue
    return None


@dataclass
class Examples:
    """Rows as a causal model is trained on them, and the fate of those that were too long."""

    rows: "list[dict[str, array[int]]]" = field(default_factory=list)
    """``input_ids`` and ``labels``: the same ids or :data:`MASKED`, which the first always is."""
    shortened: int = 0
    left_out: int = 0

    def add(self, ids: Sequence[int], learned: Sequence[bool]) -> None:
        """Append a row whose loss is on the ids that are ``learned``."""
        labels = [i if is_learned else MASKED for i, is_learned in zip(ids, learned, strict=True)]
        # As lists, 150,000 rows would take gigabytes.
        row = {"input_ids": array("i", ids), "labels": array("i", [MASKED, *labels[1:]])}
        self.rows.append(row)


def packed(rows: Sequence[Any]) -> dict[str, Any]:
    """Join rows to (1, tokens). Positions restart in each row, by which transformers masks the rows
    from each other, unless the model keeps a cache."""
    from transformers import DataCollatorWithFlattening

    flatten: Any = DataCollatorWithFlattening()  # type: ignore[no-untyped-call]
    return {**flatten(rows, return_tensors="pt"), "use_cache": False}


def tune_causal(
    model: Any,
    tokenizer: Any,
    train: Examples,
    options: CausalOptions,
    run_id: Mapping[str, Any],
    folder: Path,
    *,
    held_out: Examples | None = None,
    tokens: Collection[int] = (),
) -> tuple[Any, dict[str, Any]]:
    """Train a causal model, or a LoRA adapter that also trains the rows of ``tokens`` in embedding
    and head, and no others; :func:`export` it to ``folder``.

    Returns:
        The model, and for a report the ``rows`` trained on, held out, shortened and left out, the
        ``tokens`` read and learned in a pass, and of the ``held_out`` rows the mean ``loss``
        (negative natural log-probability per token; None without rows).
    """
    if not train.rows:
        raise BadTrainingData(f"no row is left to train on; {train.left_out} are too long")
    held_out = held_out or Examples()
    if options.lora_rank:
        peft = require("peft", "train")
        ends = (model.get_input_embeddings(), model.get_output_embeddings())
        names = [n.rpartition(".")[2] for n, m in model.named_modules() if m in ends]
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=options.lora_rank,
            lora_alpha=2 * options.lora_rank,
            target_modules="all-linear",
            # With tied embeddings PEFT trains one copy of the rows and shows it to both ends.
            trainable_token_indices={name: sorted(tokens) for name in names} if tokens else None,
        )
        model = peft.get_peft_model(model, config)
    trainer = fine_tune(model, train.rows, packed, options, run_id)
    loss = trainer.evaluate(held_out.rows)["eval_loss"] if held_out.rows else None
    labels = [row["labels"] for row in train.rows]
    report: dict[str, Any] = {
        "rows": {
            "train": len(train.rows),
            "held_out": len(held_out.rows),
            "shortened": train.shortened + held_out.shortened,
            "left_out": train.left_out + held_out.left_out,
        },
        "tokens": {
            "read": sum(map(len, labels)),
            "learned": sum(len(row) - row.count(MASKED) for row in labels),
        },
        "held_out": {"loss": loss},
    }
    return export(trainer, tokenizer, folder), report


def export(trainer: Any, tokenizer: Any, folder: Path) -> Any:
    """Write the trained model and its tokenizer in the training's precision; return the model.

    An adapter is merged, and saved alone as ``adapter`` beside ``folder``. The first of several
    processes writes; all must call.
    """
    import torch

    accelerator = trainer.accelerator
    state = accelerator.get_state_dict(trainer.model_wrapped) if _is_sharded() else None
    model = accelerator.unwrap_model(trainer.model_wrapped)
    if not is_main_process():
        return model
    dtype = torch.bfloat16 if trainer.args.bf16 else torch.float32
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(folder.with_name("adapter"))
        model = model.merge_and_unload()
    if state is None:
        model.to(dtype)
    else:
        state = {name: weights.to(dtype) for name, weights in state.items()}
        model.config.dtype = dtype
    model.config.use_cache = True  # which the Trainer turns off
    model.save_pretrained(folder, state_dict=state)
    save_tokenizer(tokenizer, folder)
    return model


def write_report(out: Path, report: dict[str, Any]) -> dict[str, Any]:
    """Write ``report.json`` into ``out`` and return the report."""
    if is_main_process():
        with replace_file(out / "report.json") as draft:
            draft.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def is_main_process() -> bool:
    """Whether this is the only process, or the one of several that writes and prints."""
    return os.environ.get("RANK", "0") == "0"


def _has_bfloat16() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def _batches(options: TuningOptions) -> tuple[int, int]:
    """Per-device batch size and gradient accumulation steps."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    share, rest = divmod(options.batch_size, processes)
    per_device = options.per_device_batch_size or share
    if rest or not share or share % per_device:
        raise BadTrainingData(
            f"batch_size {options.batch_size} must be a multiple of per_device_batch_size "
            f"{per_device} times {processes} processes"
        )
    return per_device, share // per_device


def _is_sharded() -> bool:
    names = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return any(os.environ.get(name, "false").lower() == "true" for name in names)
