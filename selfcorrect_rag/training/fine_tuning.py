"""Shared parts of all fine-tunings: settings, the Trainer, adapters, export."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from selfcorrect_rag.errors import BadTrainingData, require, wrap_disk_full
from selfcorrect_rag.old_journal import (
    newest_checkpoint,
    only_run,
    refuse_other_settings,
    write_rows,
)
from selfcorrect_rag.models.checkpoints import save_tokenizer

Schedule = Literal["linear", "cosine"]
Precision = Literal["auto", "float32", "bfloat16"]

DROPPED = -100
"""The label of a token without loss."""


def option(default: Any, help: str, unit: str = "", *, positive: bool = False) -> Any:
    """A field of a settings class, with what the command line says of it.

    Args:
        default: value of the field; ``dataclasses.MISSING`` where it must be given.
        help: its meaning.
        unit: of a number or text, in capitals: the option's placeholder.
        positive: whether the command line takes whole numbers from 1 alone.
    """
    about = {"help": help, "unit": unit, "positive": positive}
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True)
class TrainingSettings:
    """Hyperparameters of a fine-tuning, named as in transformers' ``TrainingArguments`` where it
    has them; defaults are Self-RAG's (B.1)."""

    model: str = option(dataclasses.MISSING, "folder or hub name of the base model", "NAME")
    num_train_epochs: float = option(3.0, "passes over the training rows, above 0", "EPOCHS")
    learning_rate: float = option(
        2e-5, "peak learning rate of AdamW, a factor of each update, above 0", "FACTOR"
    )
    lr_scheduler_type: Schedule = option(
        "linear", "curve by which the learning rate falls from its peak to 0"
    )
    warmup_ratio: float = option(
        0.03, "share of the optimizer steps before the peak learning rate, in [0, 1)", "SHARE"
    )
    batch_size: int = option(
        128,
        "rows of an optimizer step, over all processes and accumulated passes",
        "ROWS",
        positive=True,
    )
    per_device_batch_size: int = option(
        1, "rows of one forward pass of a process; 0: the whole batch, no accumulation", "ROWS"
    )
    max_length: int = option(
        2048,
        "tokens at which a row is shortened; fewer where the model takes fewer",
        "TOKENS",
        positive=True,
    )
    lora_rank: int = option(
        0, "rank of a LoRA adapter of all linear layers; 0: train all weights", "RANK"
    )
    precision: Precision = option(
        "auto", "number format of the arithmetic; auto: bfloat16 on a GPU that has it, else float32"
    )
    seed: int = option(0, "seed of every random choice, from 0 to 2^32 - 1", "SEED")


@dataclass(frozen=True)
class RunOptions:
    """How a fine-tuning is carried out and watched; the result does not depend on it."""

    report_to: tuple[str, ...] = option(
        (),
        "trackers of settings and losses, as the Trainer names them: tensorboard, wandb, ...",
        "TRACKER",
    )
    save_steps: int = option(
        200,
        "optimizer steps between checkpoints, of which the last two are kept",
        "STEPS",
        positive=True,
    )
    gradient_checkpointing: bool = option(
        False, "recompute activations in the backward pass: less memory, about a third more time"
    )


def prepare(out: Path, settings: TrainingSettings, data: Iterable[Any]) -> Mapping[str, Any]:
    """Before anything is loaded: refuse what cannot be trained, and seed every generator.

    Args:
        out: folder of the run.
        settings: see :class:`TrainingSettings`.
        data: all that it learns from, in order; each with a ``repr`` of its own.

    Returns:
        What the run is known by: the settings, and a digest of the data.

    Raises:
        MissingExtra: torch, transformers, accelerate or peft is not installed.
        BadTrainingData: a setting is out of its range, ``batch_size`` is no multiple, an
            adapter was asked for where weights are sharded, or ``out`` is a file.
        BadRun: ``out`` holds checkpoints of a run with other settings or data.
    """
    if out.exists() and not out.is_dir():
        raise BadTrainingData(f"{out} is a file: give --out a folder")
    transformers = require("transformers", "train")
    require("accelerate", "train")
    _refuse_out_of_range(settings)
    _accumulation(settings)
    if settings.lora_rank and _is_sharded():
        raise BadTrainingData("an adapter trains on whole weights: launch without FSDP, DeepSpeed")
    digest = hashlib.sha256()
    for row in data:
        digest.update(f"{row!r}\n".encode())
    run = {**dataclasses.asdict(settings), "data": digest.hexdigest()[:32]}
    _refuse_another(out, run)
    transformers.set_seed(settings.seed)
    return run


def _refuse_out_of_range(settings: TrainingSettings) -> None:
    for name, is_good, expected in (
        ("num_train_epochs", settings.num_train_epochs > 0, "above 0"),
        ("learning_rate", settings.learning_rate > 0, "above 0"),
        ("warmup_ratio", 0 <= settings.warmup_ratio < 1, "a share of the steps, from 0 to below 1"),
        ("max_length", settings.max_length > 0, "above 0"),
        ("lora_rank", settings.lora_rank >= 0, "0 or a rank"),
        ("seed", 0 <= settings.seed < 2**32, "from 0 to 2^32 - 1"),
    ):
        if not is_good:
            raise BadTrainingData(f"{name} {getattr(settings, name)}: it must be {expected}")


def _refuse_another(out: Path, run: Mapping[str, Any]) -> None:
    if newest_checkpoint(out / "checkpoints"):  # or nothing has been learned yet
        refuse_other_settings(out, run)


def processes() -> int:
    """How many of them the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the only process, or the one of several that writes and prints."""
    return os.environ.get("RANK", "0") == "0"


def uses_bfloat16(settings: TrainingSettings) -> bool:
    """Whether the arithmetic is in bfloat16 here."""
    import torch

    has_it = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return settings.precision == "bfloat16" or (settings.precision == "auto" and has_it)


def loading_dtype(settings: TrainingSettings) -> Literal["float32", "bfloat16"]:
    """Number format of the loaded base weights: bfloat16 only where they are not trained."""
    return "bfloat16" if settings.lora_rank and uses_bfloat16(settings) else "float32"


def attend_fast(model: Any, settings: TrainingSettings) -> bool:
    """Let ``model`` compute its attention by flash attention where that is there; say whether."""
    import torch
    from transformers.utils.import_utils import is_flash_attn_2_available

    is_there = torch.cuda.is_available() and uses_bfloat16(settings) and is_flash_attn_2_available()
    if is_there:
        model.set_attn_implementation("flash_attention_2")
    return is_there


def fine_tune(
    model: Any,
    examples: Sequence[Any],
    collate: Callable[[list[Any]], Any],
    out: Path,
    settings: TrainingSettings,
    run_options: RunOptions,
    *,
    run: Mapping[str, Any],
    in_order: bool = False,
) -> Any:
    """Train ``model`` in place, from the newest checkpoint in ``out`` on, and give its Trainer.

    Args:
        model: a transformers model, or an adapter around one.
        examples: what ``collate`` makes batches of.
        collate: for one forward pass.
        out: gets the folder ``checkpoints``, and in ``settings.json`` the ``run``.
        settings: see :class:`TrainingSettings`.
        run_options: see :class:`RunOptions`.
        run: as :func:`prepare` gave it.
        in_order: show the examples in their order, rather than in one that the seed decides.

    Raises:
        BadRun: another process trains in ``out``, or has since :func:`prepare`.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    cuda = torch.cuda.is_available()
    per_device, accumulation = _accumulation(settings)
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=settings.num_train_epochs,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.lr_scheduler_type,
        warmup_steps=settings.warmup_ratio,
        per_device_train_batch_size=per_device,
        per_device_eval_batch_size=per_device,
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=run_options.gradient_checkpointing or None,
        # So a resumed run sees the rows that the killed one had still to see.
        train_sampling_strategy="sequential" if in_order else "random",
        data_seed=settings.seed,
        dataloader_pin_memory=cuda,
        use_cpu=not cuda and not torch.backends.mps.is_available(),
        bf16=uses_bfloat16(settings),
        seed=settings.seed,
        logging_steps=min(50, run_options.save_steps),
        save_strategy="steps",
        save_steps=run_options.save_steps,
        save_total_limit=2,
        report_to=list(run_options.report_to),
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=examples, data_collator=collate)
    with only_run(out) if is_first() else nullcontext():
        _refuse_another(out, run)
        if is_first():
            write_rows(out / "settings.json", [run])
        trainer.train(resume_from_checkpoint=newest_checkpoint(out / "checkpoints"))
    return trainer


def adapted(
    model: Any,
    settings: TrainingSettings,
    task: str,
    *,
    tokens: Collection[int] = (),
    whole: Collection[str] = (),
) -> Any:
    """The model with an adapter of rank ``settings.lora_rank``, or as it is where that is 0.

    Args:
        model: a transformers model.
        settings: see :class:`TrainingSettings`.
        task: one of PEFT's task types.
        tokens: ids whose rows of embedding and head are trained and saved too.
        whole: names of modules that are trained and saved whole.
    """
    if not settings.lora_rank:
        return model
    peft = require("peft", "train")
    names = {name.rpartition(".")[2]: module for name, module in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    rows = [name for name, module in names.items() if any(module is end for end in ends)]
    config = peft.LoraConfig(
        task_type=task,
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        target_modules="all-linear",
        exclude_modules=rf".*({'|'.join(whole)}).*" if whole else None,
        modules_to_save=[name for name in whole if name in names] or None,
        # With tied embeddings PEFT trains one copy of the rows and shows it to both ends.
        trainable_token_indices={name: sorted(tokens) for name in rows} if tokens else None,
    )
    return peft.get_peft_model(model, config)


def export(trainer: Any, tokenizer: Any, folder: Path) -> Any:
    """Write the trained model and its tokenizer, in the precision of the training, and give it.

    Where an adapter was trained, ``folder`` holds the model with it merged, and ``adapter`` beside
    it the adapter alone. Of several processes the first one writes; all must call.
    """
    import torch

    accelerator = trainer.accelerator
    state = accelerator.get_state_dict(trainer.model_wrapped) if _is_sharded() else None
    model = accelerator.unwrap_model(trainer.model_wrapped)
    if not accelerator.is_main_process:
        return model
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(folder.with_name("adapter"))
        model = model.merge_and_unload()
    dtype = torch.bfloat16 if trainer.args.bf16 else torch.float32
    if state is None:
        model.to(dtype)
    else:
        state = {name: weights.to(dtype) for name, weights in state.items()}
        model.config.dtype = dtype
    model.config.use_cache = True  # which the Trainer turns off
    with wrap_disk_full(folder.parent):
        model.save_pretrained(folder, state_dict=state)
        save_tokenizer(tokenizer, folder)
    return model


def write_report(out: Path, report: dict[str, Any]) -> None:
    """Write ``report.json`` into ``out``."""
    if is_first():
        (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _accumulation(settings: TrainingSettings) -> tuple[int, int]:
    """Per-device batch size and gradient accumulation steps."""
    share, left = divmod(settings.batch_size, processes())
    per_device = settings.per_device_batch_size or share
    if left or per_device < 1 or share % per_device:
        raise BadTrainingData(
            f"batch_size {settings.batch_size} is no multiple of {per_device}"
            + (f" in each of {processes()} processes" if processes() > 1 else "")
        )
    return per_device, share // per_device


def _is_sharded() -> bool:
    """Whether the launcher asked for FSDP or DeepSpeed."""
    names = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return any(os.environ.get(name, "false").lower() == "true" for name in names)
