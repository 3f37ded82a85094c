"""Fine-tunes Self-RAG's critic on a teacher's reflection tokens (section 3.2.1, Eq. 1, B.1)."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.critic import MAX_TOKENS, Critic, load_language_model
from selfcorrect_rag.reflection import TOKENS, Group
from selfcorrect_rag.training.critic_data import CriticRow
from selfcorrect_rag.training.journal import (
    keep_settings,
    newest_checkpoint,
    refuse_other_settings,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SAVE_STEPS = 200
"""Between checkpoints."""
FIGURE_5 = (Group.RETRIEVE, Group.ISSUP, Group.ISREL, Group.ISUSE)
"""The groups in the order of the paper's figure."""

Confusion = dict[str, dict[str, int]]
"""How often the critic gave each token of a group (inner), by the teacher's token (outer)."""


@dataclass(frozen=True)
class CriticSettings:
    """What decides the result; defaults are the paper's (B.1)."""

    model: str = "meta-llama/Llama-2-7b-hf"
    """A folder or hub name of a causal language model, or of a T5."""
    epochs: float = 3.0
    rate: float = 2e-5
    """Peak learning rate of AdamW; linear decay."""
    warmup: float = 0.03
    """Share of the steps before the peak."""
    batch: int = 128
    """Rows a step."""
    together: int = 1
    """Rows of a step in one forward pass; a divisor of ``batch``."""
    longest: int = MAX_TOKENS
    """Tokens of a row."""
    seed: int = 0


def train_critic(
    rows: Sequence[CriticRow],
    out: Path,
    settings: CriticSettings | None = None,
    *,
    base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
) -> dict[str, Any]:
    """Fine-tune a critic and report on questions that it never saw.

    The same call goes on from the newest checkpoint in ``out`` after a kill, to the same weights.

    Args:
        rows: the teacher's labels, see
            :func:`~selfcorrect_rag.training.critic_data.read_critic_rows`.
        out: folder of checkpoints, the result (``critic``) and ``report.json``.
        settings: see :class:`CriticSettings`.
        base: a model and its tokenizer to begin from, in place of ``settings.model``.

    Returns:
        Rows by part; how many training prompts were ``shortened``; for ``development`` and
        ``test`` the ``accuracy`` by group as in the paper's figure 5 (the share of the teacher's
        tokens that the critic gives, None without rows), the ``base_rate`` of always giving the
        commonest token, and the ``confusion``.

    Raises:
        MissingExtra: torch, transformers or accelerate is not installed.
        ModelNotFound: ``settings.model`` cannot be loaded.
        BadTrainingData: there is no row to train or to test on, ``batch`` is no multiple of
            ``together``, or ``out`` holds a run with other settings.
    """
    settings = settings or CriticSettings()
    transformers = require("transformers", "train")
    require("accelerate", "train")
    parts = {
        name: [row for row in rows if row.part == name] for name in ("train", "development", "test")
    }
    for name in ("train", "test"):
        if not parts[name]:
            raise BadTrainingData(f"no row of the {len(rows)} is in the {name} part")
    if settings.together < 1 or settings.batch % settings.together:
        raise BadTrainingData(f"batch {settings.batch} is no multiple of {settings.together}")
    refuse_other_settings(out, dataclasses.asdict(settings))
    transformers.set_seed(settings.seed)
    model, tokenizer = base or load_language_model(settings.model, "float32")
    keep_settings(out, dataclasses.asdict(settings))
    critic = Critic(model, tokenizer, max_tokens=settings.longest)
    trainer = _trainer(critic, parts["train"], out, settings)
    trainer.train(resume_from_checkpoint=newest_checkpoint(out / "checkpoints"))
    model.save_pretrained(out / "critic")
    tokenizer.save_pretrained(out / "critic")
    lengths = [len(critic.prompt_ids(row.asked)) for row in parts["train"]]
    report = {
        "rows": {name: len(of_part) for name, of_part in parts.items()},
        "shortened": sum(length > critic.limit for length in lengths),
        "development": agreement(critic, parts["development"]),
        "test": agreement(critic, parts["test"]),
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def agreement(critic: Critic, rows: Sequence[CriticRow]) -> dict[str, Any]:
    """How often the critic gives the teacher's token; see :func:`train_critic`."""
    given = critic.judge([row.asked for row in rows])
    confusion: dict[str, Confusion] = {
        group.value: {token: dict.fromkeys(TOKENS[group], 0) for token in TOKENS[group]}
        for group in FIGURE_5
    }
    for row, token in zip(rows, given, strict=True):
        confusion[row.asked.group][row.token][token] += 1
    return {
        "accuracy": {group: _accuracy(table) for group, table in confusion.items()},
        "base_rate": {group: _base_rate(table) for group, table in confusion.items()},
        "confusion": confusion,
    }


def _accuracy(confusion: Confusion) -> float | None:
    total = sum(sum(given.values()) for given in confusion.values())
    return sum(confusion[token][token] for token in confusion) / total if total else None


def _base_rate(confusion: Confusion) -> float | None:
    totals = [sum(given.values()) for given in confusion.values()]
    return max(totals) / sum(totals) if any(totals) else None


def _trainer(critic: Critic, rows: Sequence[CriticRow], out: Path, settings: CriticSettings) -> Any:
    import torch
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=settings.epochs,
        learning_rate=settings.rate,
        warmup_steps=settings.warmup,
        per_device_train_batch_size=settings.together,
        gradient_accumulation_steps=settings.batch // settings.together,
        lr_scheduler_type="linear",
        # So a resumed run sees the rows that the killed one had still to see.
        train_sampling_strategy="random",
        data_seed=settings.seed,
        dataloader_pin_memory=torch.cuda.is_available(),
        bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        seed=settings.seed,
        logging_steps=50,
        save_strategy="steps",
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        report_to=[],
    )
    return Trainer(
        model=critic.model,
        args=arguments,
        train_dataset=[critic.example(row.asked, row.token) for row in rows],
        data_collator=DataCollatorForSeq2Seq(critic.tokenizer),
    )
