"""The common parts of all fine-tunings: options, transformers' Trainer, LoRA, export, masked rows.

A fine-tuning takes options, and perhaps a ``base``: a model and its tokenizer to start from, which
are changed in place. The same call resumes from the newest checkpoint, to the same weights. The
folder ``out`` gets the model, ``checkpoints`` and ``report.json``, which is also returned.
"""

import os
import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from selfcorrect_rag.errors import BadRun, BadTrainingData, require
from selfcorrect_rag.journal import check_run, digest, open_run, write_rows
from selfcorrect_rag.models.checkpoints import load_language_model, max_input_tokens, save_tokenizer
from selfcorrect_rag.training.rows import Options, Share

MASKED = -100
"""The label of a token without loss."""
FULL = 1 << 20
"""Free bytes of a disk to which nothing of a training can be written."""


class TuningOptions(Options):
    """Hyperparameters, with the names of ``TrainingArguments``; defaults are Self-RAG's (B.1)."""

    run_only = Options.run_only | {"save_steps"}

    model: str = ""
    """Folder, GGUF file or hub name of the base model."""
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
    per_device_batch_size: PositiveInt = 1
    """Rows of one forward pass of a process."""
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
    adapter: str = ""
    """Folder of a LoRA adapter of the same model, of any rank, to go on with."""


def prepare(options: TuningOptions, rows: Iterable[object]) -> dict[str, Any]:
    """Check everything before a model is loaded, seed all generators, and identify the run."""
    require("accelerate", "train")
    _accumulation(options)
    rank, adapter = getattr(options, "lora_rank", 0), getattr(options, "adapter", "")
    if (rank or adapter) and _is_sharded():
        raise BadTrainingData("LoRA needs whole weights; launch without FSDP and DeepSpeed")
    if adapter and not Path(adapter, "adapter_config.json").is_file():
        raise BadTrainingData(f"{adapter} has no adapter_config.json; give a folder of an adapter")
    run_id = {**options.identity, "data": digest(map(repr, rows))}
    check_run(options.out, run_id)
    require("transformers", "train").set_seed(options.seed)
    return run_id


def load_decoder(options: CausalOptions, base: Any) -> tuple[Any, Any, int]:
    """Return ``base``, or the causal model ``options.model`` with its tokenizer; and the ids that a
    row may have."""
    # Weights that are trained stay in float32.
    is_frozen = options.lora_rank or options.adapter
    dtype = "bfloat16" if is_frozen and _has_bfloat16() else "float32"
    model, tokenizer = base or load_language_model(options.model, dtype)
    if model.config.is_encoder_decoder:
        raise BadTrainingData(f"{options.model} has an encoder; give a causal language model")
    if tokenizer.eos_token_id is None:
        raise BadTrainingData(
            f"the tokenizer of {options.model} has no end token; name one as eos_token in its "
            "tokenizer_config.json"
        )
    return model, tokenizer, max_input_tokens(model, options.max_length)


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
    same = {"num_train_epochs", "learning_rate", "lr_scheduler_type", "seed", "save_steps"}
    own: dict[str, Any] = {
        **options.model_dump(include=same),
        "output_dir": str(options.out / "checkpoints"),
        "warmup_steps": options.warmup_ratio,
        "per_device_train_batch_size": options.per_device_batch_size,
        "per_device_eval_batch_size": 1,
        "gradient_accumulation_steps": _accumulation(options),
        "data_seed": options.seed,  # so that a resumed run sees the rest of the rows
        "dataloader_pin_memory": cuda,
        "use_cpu": not cuda and not torch.backends.mps.is_available(),
        "bf16": _has_bfloat16(),
        "logging_steps": min(50, options.save_steps),
        "save_total_limit": 2,
        "report_to": [],
    }
    arguments = TrainingArguments(**{**own, **options.trainer})
    trainer = Trainer(model, arguments, collate, examples)
    run = open_run(options.out, run_id) if is_main_process() else nullcontext()
    with run, a_full_disk_told(options.out):
        trainer.train(resume_from_checkpoint=newest_checkpoint(options.out / "checkpoints"))
    return trainer


@contextmanager
def a_full_disk_told(folder: Path) -> Iterator[None]:
    """Raise BadRun in place of what torch, safetensors and others raise when no space is left."""
    try:
        yield
    except Exception as error:
        if shutil.disk_usage(folder).free > FULL:
            raise
        raise BadRun(
            f"no space is left for {folder}; make some, and run the same again: it goes on from "
            "the last checkpoint"
        ) from error


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is whole: the Trainer writes its own state last."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    steps = {int(state.parent.name.split("-")[1]): state.parent for state in states}
    return str(steps[max(steps)]) if steps else None


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
        found = {"input_ids": array("i", ids), "labels": array("i", [MASKED, *labels[1:]])}
        self.rows.append(found)


def packed(rows: Sequence[Any]) -> dict[str, Any]:
    """Join rows to (1, tokens). Positions restart in each row, by which transformers masks the rows
    from each other, unless the model keeps a cache."""
    from transformers import DataCollatorWithFlattening

    flatten: Any = DataCollatorWithFlattening()  # type: ignore[no-untyped-call]
    batch = flatten(rows, return_tensors="pt")
    # Logits are computed where something is learned: of most rows that is a small share.
    learned = (batch["labels"][0] != MASKED).nonzero()[:, 0]
    return {
        **batch,
        "logits_to_keep": learned - 1,
        "shift_labels": batch["labels"][:, learned],
        "use_cache": False,
    }


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

    Returns the model and a report: numbers of ``rows`` by their fate, and the mean ``loss`` per
    token, in nats, of the ``held_out`` rows (None without rows).
    """
    if not train.rows:
        raise BadTrainingData(f"no row is left to train on; {train.left_out} are too long")
    held_out = held_out or Examples()
    if options.adapter:
        peft = require("peft", "train")
        model = peft.PeftModel.from_pretrained(model, options.adapter, is_trainable=True)
        config = model.peft_config["default"]
        config.base_model_name_or_path = options.model  # saving reads that model's configuration
        rows = (config.trainable_token_indices or {}).values()
        if not all(set(tokens) <= set(ids) for ids in rows or [()]):
            raise BadTrainingData(f"{options.adapter} has no rows of the reflection tokens")
    elif options.lora_rank:
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
    rows = {
        "train": len(train.rows),
        "held_out": len(held_out.rows),
        "shortened": train.shortened + held_out.shortened,
        "left_out": train.left_out + held_out.left_out,
    }
    with a_full_disk_told(options.out):
        trained = export(trainer, tokenizer, folder)
    return trained, {"rows": rows, "held_out": {"loss": loss}}


def export(trainer: Any, tokenizer: Any, folder: Path) -> Any:
    """Write the trained model in the training's precision, and its tokenizer; return the model.

    An adapter is merged, and saved alone beside ``folder``. All of several processes must call.
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
        write_rows(out / "report.json", [report])
    return report


def is_main_process() -> bool:
    """Whether this is the only process, or the one of several that writes and prints."""
    return os.environ.get("RANK", "0") == "0"


def _has_bfloat16() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def _accumulation(options: TuningOptions) -> int:
    """Return the forward passes of a process for one optimizer step."""
    rows = options.per_device_batch_size * int(os.environ.get("WORLD_SIZE", "1"))
    if options.batch_size % rows:
        raise BadTrainingData(
            f"batch_size {options.batch_size} must be a multiple of per_device_batch_size times "
            f"processes, {rows}"
        )
    return options.batch_size // rows


def _is_sharded() -> bool:
    names = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return any(os.environ.get(name, "false").lower() == "true" for name in names)
