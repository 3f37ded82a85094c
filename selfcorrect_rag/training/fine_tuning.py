"""The common parts of all fine-tunings: options, transformers' Trainer, LoRA, export, masked rows.

A fine-tuning takes ``rows``, a folder ``out``, options, and perhaps a ``base``: a model and its
tokenizer to start from instead of ``options.model``, changed in place. The same call resumes from
the newest checkpoint in ``out``, to the same weights. ``out`` gets the trained model (after LoRA
merged, and the adapter alone as ``adapter``), ``checkpoints`` and ``report.json``, which is also
returned. Unfit data or models raise BadTrainingData, a base that cannot be loaded ModelNotFound,
and ``out`` with other options or data BadRun.
"""

import json
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from selfcorrect_rag.errors import BadTrainingData, require, wrap_disk_full
from selfcorrect_rag.journal import check_run, digest, open_run, replace_file
from selfcorrect_rag.models.checkpoints import load_language_model, save_tokenizer
from selfcorrect_rag.training.rows import Options, Share, is_held_out

MASKED = -100
"""The label of a token without loss."""
T = TypeVar("T")


class TuningOptions(Options):
    """Hyperparameters, with the names of ``TrainingArguments``; defaults are Self-RAG's (B.1)."""

    run_only = frozenset({"report_to", "save_steps", "gradient_checkpointing"})

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
    lora_rank: NonNegativeInt = 0
    """Rank of a LoRA adapter of all linear layers; 0: train all weights."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format; auto is bfloat16 on a GPU that has it, else float32."""
    seed: NonNegativeInt = 0
    """Seed of every random choice."""
    report_to: tuple[str, ...] = ()
    """Trackers of settings and losses: tensorboard, wandb, ..."""
    save_steps: PositiveInt = 200
    """Steps between checkpoints, of which two are kept."""
    gradient_checkpointing: bool = False
    """Recompute activations: less memory, a third more time."""


class CausalOptions(TuningOptions):
    """Options of a causal model that answers questions."""

    packing: bool = True
    """Put the rows of a forward pass into one sequence, masked from each other."""
    held_out_ratio: Share = 0.02
    """Share of the questions held out for the report."""


def prepare(out: Path, options: TuningOptions, data: Iterable[object]) -> dict[str, Any]:
    """Check everything before a model is loaded, seed all generators, and identify the run."""
    transformers = require("transformers", "train")
    require("accelerate", "train")
    _accumulation(options)
    if options.lora_rank and _is_sharded():
        raise BadTrainingData("lora_rank needs whole weights; launch without FSDP and DeepSpeed")
    run_id = {**options.identity, "data": digest(map(repr, data))}
    check_run(out, run_id)
    transformers.set_seed(options.seed)
    return run_id


def fine_tune(
    model: Any,
    examples: Sequence[Any],
    collate: Callable[[list[Any]], Any],
    out: Path,
    options: TuningOptions,
    run_id: Mapping[str, Any],
) -> Any:
    """Train ``model`` (or an adapter around one) in place and return the Trainer.

    ``collate`` makes the batch of a forward pass of ``examples``; ``run_id`` is :func:`prepare`'s.
    """
    import torch
    from transformers import Trainer, TrainingArguments

    cuda = torch.cuda.is_available()
    per_device, accumulation = _accumulation(options)
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=options.num_train_epochs,
        learning_rate=options.learning_rate,
        lr_scheduler_type=options.lr_scheduler_type,
        warmup_steps=options.warmup_ratio,
        per_device_train_batch_size=per_device,
        per_device_eval_batch_size=per_device,
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=options.gradient_checkpointing or None,
        data_seed=options.seed,  # so that a resumed run sees the rest of the rows
        dataloader_pin_memory=cuda,
        use_cpu=not cuda and not torch.backends.mps.is_available(),
        bf16=_uses_bfloat16(options),
        seed=options.seed,
        logging_steps=min(50, options.save_steps),
        save_strategy="steps",
        save_steps=options.save_steps,
        save_total_limit=2,
        report_to=list(options.report_to),
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=examples, data_collator=collate)
    with open_run(out, run_id) if is_main_process() else nullcontext():
        trainer.train(resume_from_checkpoint=newest_checkpoint(out / "checkpoints"))
    return trainer


def newest_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint of the Trainer that is whole: it writes its own state last."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda p: -int(p.name.split("-")[1])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
            return str(path)
        except (OSError, ValueError):
            continue
    return None


def adapt(
    model: Any,
    options: TuningOptions,
    task: str,
    *,
    tokens: Collection[int] = (),
    heads: Collection[str] = (),
) -> Any:
    """Wrap ``model`` in a LoRA adapter, or return it unchanged if ``lora_rank`` is 0.

    Args:
        model: a transformers model.
        options: see :class:`TuningOptions`.
        task: PEFT's task type.
        tokens: ids whose rows, and no others, of embedding and head are trained and saved.
        heads: names of modules that are trained and saved whole.
    """
    if not options.lora_rank:
        return model
    peft = require("peft", "train")
    names = {name.rpartition(".")[2]: module for name, module in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    rows = [name for name, module in names.items() if any(module is end for end in ends)]
    config = peft.LoraConfig(
        task_type=task,
        r=options.lora_rank,
        lora_alpha=2 * options.lora_rank,
        target_modules="all-linear",
        exclude_modules=rf".*({'|'.join(heads)}).*" if heads else None,
        modules_to_save=[name for name in heads if name in names] or None,
        # With tied embeddings PEFT trains one copy of the rows and shows it to both ends.
        trainable_token_indices={name: sorted(tokens) for name in rows} if tokens else None,
    )
    return peft.get_peft_model(model, config)


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
    with wrap_disk_full(folder.parent):
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


def loading_dtype(options: TuningOptions) -> Literal["float32", "bfloat16"]:
    """The number format of the loaded weights: bfloat16 only if they are not trained."""
    return "bfloat16" if options.lora_rank and _uses_bfloat16(options) else "float32"


def _uses_bfloat16(options: TuningOptions) -> bool:
    import torch

    has_it = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return options.precision == "bfloat16" or (options.precision == "auto" and has_it)


def _accumulation(options: TuningOptions) -> tuple[int, int]:
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


def padded(rows: "Sequence[dict[str, array[int]]]") -> dict[str, Any]:
    """Pad rows on the right to (rows, tokens). An end token is not padding, whatever its id."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    def table(name: str, fill: int) -> Any:
        columns = [torch.tensor(row[name]) for row in rows]
        return pad_sequence(columns, batch_first=True, padding_value=fill).long()

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids, labels = table("input_ids", 0), table("labels", MASKED)
    return {"input_ids": ids, "labels": labels, "attention_mask": mask.long()}


def packed(rows: Sequence[Any]) -> dict[str, Any]:
    """Join rows to (1, tokens). Positions restart in each row, by which transformers masks the rows
    from each other, unless the model keeps a cache."""
    from transformers import DataCollatorWithFlattening

    flatten: Any = DataCollatorWithFlattening()  # type: ignore[no-untyped-call]
    return {**flatten(rows, return_tensors="pt"), "use_cache": False}


def load_decoder(options: TuningOptions, base: Any) -> tuple[Any, Any]:
    """``base``, or the causal model ``options.model`` with its tokenizer."""
    model, tokenizer = base or load_language_model(options.model, loading_dtype(options))
    if model.config.is_encoder_decoder:
        raise BadTrainingData(f"{options.model} has an encoder; give a causal language model")
    return model, tokenizer


def tune_causal(
    model: Any,
    rows: Sequence[T],
    question: Callable[[T], str],
    encode: Callable[[Sequence[T]], Examples],
    out: Path,
    options: CausalOptions,
    run_id: Mapping[str, Any],
    *,
    tokens: Collection[int] = (),
) -> tuple[Any, Examples, dict[str, Any]]:
    """Train a causal model, or an adapter that also trains the rows of ``tokens``.

    Returns:
        The Trainer, the held-out rows (chosen by their ``question``), and for the report: ``rows``
        trained on, held out, shortened and left out, and ``tokens`` read and learned in a pass.
    """
    held_out = encode([row for row in rows if is_held_out(question(row), options.held_out_ratio)])
    train = encode([r for r in rows if not is_held_out(question(r), options.held_out_ratio)])
    if not train.rows:
        raise BadTrainingData(f"no row of the {len(rows)} is left to train on")
    collate = packed if options.packing else padded
    model = adapt(model, options, "CAUSAL_LM", tokens=tokens)
    trainer = fine_tune(model, train.rows, collate, out, options, run_id)
    counts = {
        "train": len(train.rows),
        "held_out": len(held_out.rows),
        "shortened": train.shortened + held_out.shortened,
        "left_out": train.left_out + held_out.left_out,
    }
    read = sum(len(row["labels"]) for row in train.rows)
    learned = sum(label != MASKED for row in train.rows for label in row["labels"])
    return trainer, held_out, {"rows": counts, "tokens": {"read": read, "learned": learned}}


def predict_tokens(
    trainer: Any, examples: Examples, groups: Sequence[Sequence[int]] = ()
) -> list[tuple[int, float, int]]:
    """Predict each learned token of ``examples`` from the tokens before it; all processes call.

    Returns:
        For each its id, its loss (negative natural log-probability), and the likeliest id of its
        group among ``groups`` (ids that exclude each other), -1 if it is in none.
    """
    import torch

    def reduce(logits: Any, labels: Any) -> Any:
        logprobs = logits[:, :-1].float().log_softmax(-1)
        right = labels[:, 1:]
        losses = -logprobs.gather(-1, right.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        chosen = torch.full_like(right, -1)
        for group in groups:
            ids = torch.tensor(group, device=logits.device)
            best = ids[logprobs[..., ids].argmax(-1)]
            chosen = torch.where(torch.isin(right, ids), best, chosen)
        return torch.stack([losses, chosen.float()], dim=-1)

    if not examples.rows:
        return []
    trainer.data_collator, trainer.preprocess_logits_for_metrics = padded, reduce
    predicted = trainer.predict(examples.rows)
    right = predicted.label_ids[:, 1:]
    learned = right != MASKED
    pairs = zip(right[learned].tolist(), predicted.predictions[learned].tolist(), strict=True)
    return [(int(token), float(loss), int(best)) for token, (loss, best) in pairs]
