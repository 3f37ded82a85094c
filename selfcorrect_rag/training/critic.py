"""Fine-tunes Self-RAG's critic on a teacher's reflection tokens (section 3.2.1, Eq. 1, B.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import load_language_model, max_input_tokens
from selfcorrect_rag.models.critic import MAX_TOKENS, Critic, CriticTokenizer
from selfcorrect_rag.training.agreement import agreement_of
from selfcorrect_rag.training.critic_data import CriticRow
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    TrainingSettings,
    adapted,
    export,
    fine_tune,
    loading_dtype,
    option,
    prepare,
    write_report,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class CriticSettings(TrainingSettings):
    """Settings of a critic; defaults are the paper's (B.1)."""

    model: str = option(
        "meta-llama/Llama-2-7b-hf",
        "folder or hub name of the base model: a causal language model",
        "NAME",
    )
    max_length: int = MAX_TOKENS


def train_critic(
    rows: Sequence[CriticRow],
    out: Path,
    settings: CriticSettings | None = None,
    run_options: RunOptions | None = None,
    *,
    base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
) -> dict[str, Any]:
    """Fine-tune a critic and report on questions that it never saw.

    The same call goes on from the newest checkpoint in ``out`` after a kill, to the same weights.

    Args:
        rows: the teacher's labels, see
            :func:`~selfcorrect_rag.training.critic_data.read_critic_rows`.
        out: folder of checkpoints, the result (``critic``, where an adapter was trained with it
            merged, and the adapter alone as ``adapter``) and ``report.json``.
        settings: see :class:`CriticSettings`.
        run_options: see :class:`~selfcorrect_rag.training.fine_tuning.RunOptions`.
        base: a model and its tokenizer to begin from, in place of ``settings.model``.

    Returns:
        Rows by part; how many training prompts were ``shortened``; for ``development`` and
        ``test`` the ``accuracy`` by group as in the paper's figure 5 (the share of the teacher's
        tokens that the critic gives, None without rows), the ``base_rate`` of always giving the
        commonest token, and the ``confusion``.

    Raises:
        MissingExtra: torch, transformers, accelerate or peft is not installed.
        ModelNotFound: ``settings.model`` cannot be loaded.
        BadTrainingData: there is no row to train or to test on; see also
            :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
        BadRun: ``out`` holds a run with other settings.
    """
    settings, run_options = settings or CriticSettings(), run_options or RunOptions()
    parts = {
        name: [row for row in rows if row.part == name] for name in ("train", "development", "test")
    }
    for name in ("train", "test"):
        if not parts[name]:
            raise BadTrainingData(f"no row of the {len(rows)} is in the {name} part")
    run = prepare(out, settings, rows)
    from transformers import DataCollatorForSeq2Seq

    model: Any
    model, tokenizer = base or load_language_model(settings.model, loading_dtype(settings))
    encoder = CriticTokenizer(tokenizer, max_input_tokens(model, settings.max_length))
    trainer = fine_tune(
        adapted(model, settings, "CAUSAL_LM"),
        [encoder.example(row.critic_input, row.token) for row in parts["train"]],
        DataCollatorForSeq2Seq(tokenizer),
        out,
        settings,
        run_options,
        run=run,
    )
    trained = export(trainer, tokenizer, out / "critic")
    lengths = [len(encoder.prompt_ids(row.critic_input)) for row in parts["train"]]
    report = {
        "rows": {name: len(of_part) for name, of_part in parts.items()},
        "shortened": sum(length > encoder.limit for length in lengths),
    }
    with Critic.from_model(trained, tokenizer, max_tokens=settings.max_length) as critic:
        report |= {name: agreement(critic, parts[name]) for name in ("development", "test")}
    write_report(out, report)
    return report


def agreement(critic: Critic, rows: Sequence[CriticRow]) -> dict[str, Any]:
    """How often the critic gives the teacher's token; see :func:`train_critic`."""
    given = critic.judge([row.critic_input for row in rows])
    return agreement_of(zip((row.token for row in rows), given, strict=True))
