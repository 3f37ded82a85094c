"""Fine-tunes Self-RAG's critic on a teacher's reflection tokens (section 3.2.1, Eq. 1, B.1)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.critic import Critic, CriticTokenizer
from selfcorrect_rag.reflection import GROUP_OF, TOKENS
from selfcorrect_rag.training.critic_data import CriticRow, read_critic_rows
from selfcorrect_rag.training.fine_tuning import (
    TuningOptions,
    adapt,
    export,
    fine_tune,
    load_decoder,
    prepare,
    write_report,
)
from selfcorrect_rag.training.rows import Progress


class CriticOptions(TuningOptions, model="meta-llama/Llama-2-7b-hf"):
    """Options of ``train critic``, the paper's (B.1)."""


def train_critic(
    rows: Sequence[CriticRow],
    out: Path,
    options: CriticOptions | None = None,
    *,
    base: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune a critic on a teacher's labels and test it on held-out questions.

    Arguments, resumption and errors are those of every fine-tuning; see
    :mod:`~selfcorrect_rag.training.fine_tuning`. The result is ``out / "critic"``.

    Returns:
        ``rows`` by part, how many were ``shortened``, and for ``development`` and ``test`` the
        :func:`agreement` (the paper's figure 5).
    """
    options = options or CriticOptions()
    parts = {p: [r for r in rows if r.part == p] for p in ("train", "development", "test")}
    for name in ("train", "test"):
        if not parts[name]:
            raise BadTrainingData(f"no row of the {len(rows)} is in the {name} part")
    run_id = prepare(out, options, rows)
    from transformers import DataCollatorForSeq2Seq

    model, tokenizer = load_decoder(options, base)
    encoder = CriticTokenizer(tokenizer, max_input_tokens(model, options.max_length))
    examples = [encoder.example(row.critic_input, row.token) for row in parts["train"]]
    model, collate = adapt(model, options, "CAUSAL_LM"), DataCollatorForSeq2Seq(tokenizer)
    trainer = fine_tune(model, examples, collate, out, options, run_id)
    trained = export(trainer, tokenizer, out / "critic")
    lengths = [len(encoder.prompt_ids(row.critic_input)) for row in parts["train"]]
    report: dict[str, Any] = {
        "rows": {name: len(of_part) for name, of_part in parts.items()},
        "shortened": sum(length > encoder.limit for length in lengths),
    }
    with Critic.from_model(trained, tokenizer, max_tokens=options.max_length) as critic:
        for name in ("development", "test"):
            given = critic.judge([row.critic_input for row in parts[name]])
            report[name] = agreement(zip((row.token for row in parts[name]), given, strict=True))
    return write_report(out, report)


def agreement(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Compare pairs of the right token and the one of its group that was given.

    Returns:
        By group: the ``accuracy`` and the ``base_rate`` of always giving the commonest token, in
        [0, 1] or None without pairs, and the ``confusion``: counts by right and given token.
    """
    confusion: dict[str, dict[str, dict[str, int]]] = {
        group: {right: dict.fromkeys(tokens, 0) for right in tokens}
        for group, tokens in TOKENS.items()
    }
    for right, given in pairs:
        confusion[GROUP_OF[right]][right][given] += 1
    accuracy, base_rate = {}, {}
    for group, table in confusion.items():
        totals = [sum(row.values()) for row in table.values()]
        hits = sum(table[token][token] for token in table)
        accuracy[group] = hits / sum(totals) if any(totals) else None
        base_rate[group] = max(totals) / sum(totals) if any(totals) else None
    return {"accuracy": accuracy, "base_rate": base_rate, "confusion": confusion}


def run(data: Path, out: Path, options: CriticOptions, progress: Progress) -> dict[str, Any]:
    """Fine-tune a critic on a file; see :func:`train_critic`."""
    return train_critic(read_critic_rows(data), out, options)
