"""Fine-tunes Self-RAG's generator on outputs with reflection tokens (3.2.2, Algorithm 2, B.1)."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import model_validator

from selfcorrect_rag.errors import BadTrainingData, PromptTooLong
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.self_rag import instruction_parts, question_text
from selfcorrect_rag.reflection import CONTROL_TOKENS, END_PARAGRAPH, GROUP_OF, PARAGRAPH, TOKENS
from selfcorrect_rag.training.critic import agreement
from selfcorrect_rag.training.fine_tuning import (
    CausalOptions,
    Examples,
    export,
    load_decoder,
    predict_tokens,
    prepare,
    tune_causal,
    write_report,
)
from selfcorrect_rag.training.rows import Filled, Progress, Row, read_rows

PRESETS: dict[str, dict[str, Any]] = {
    "7b": {},
    "13b": {"model": "meta-llama/Llama-2-13b-hf", "max_length": 1524},
    "8b": {
        "model": "meta-llama/Meta-Llama-3-8B-Instruct",
        "num_train_epochs": 1.0,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "cosine",
        "max_length": 4096,
    },
}
"""7b and 13b are Self-RAG's (B.1); 8b is InstructRAG's re-implementation of it (appendix B)."""


class GeneratorOptions(CausalOptions, model="meta-llama/Llama-2-7b-hf"):
    """Options of ``train generator``; fields that are not given have the values of ``preset``."""

    preset: Literal["7b", "13b", "8b"] = "7b"
    """The paper's model of that size."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {**PRESETS.get(given.get("preset", "7b"), {}), **given}


class GeneratorRow(Row):
    """A row with the official keys."""

    instruction: Filled
    output: Filled
    input: str = ""
    id: str = ""
    dataset_name: str = ""

    @property
    def question(self) -> str:
        """The instruction as a generator is asked it at inference."""
        return question_text(self.input, self.instruction) if self.input else self.instruction

    @property
    def digest(self) -> str:
        """A fingerprint of the row."""
        known = json.dumps(list(self.model_dump().values()))
        return hashlib.sha256(known.encode()).hexdigest()[:32]


def read_generator_rows(path: Path) -> list[GeneratorRow]:
    """Read rows with or without reflection tokens."""
    return read_rows(path, GeneratorRow)


def train_generator(
    rows: Sequence[GeneratorRow],
    out: Path,
    options: GeneratorOptions | None = None,
    *,
    base: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune a causal language model to retrieve, write and criticise.

    Its vocabulary grows by the control tokens that it lacks. Arguments, resumption and errors are
    those of every fine-tuning; see :mod:`~selfcorrect_rag.training.fine_tuning`. The result is
    ``out / "generator"``.

    Returns:
        See :func:`~.fine_tuning.tune_causal`; also ``tokens`` added to the vocabulary, and of the
        ``held_out`` rows by kind (``text``, a group, ``paragraph``, ``end``) the ``tokens`` and
        their mean ``loss`` (negative natural log-probability), and the
        :func:`~.critic.agreement` of the likeliest token of each group.
    """
    options = options or GeneratorOptions()
    _check_outputs(rows)
    run_id = prepare(out, options, rows)
    model, tokenizer = load_decoder(options, base)
    added = add_control_tokens(model, tokenizer)
    controlled = ControlledTokenizer(tokenizer)
    longest = max_input_tokens(model, options.max_length)
    ids = controlled.control_ids

    def encode(some: Sequence[GeneratorRow]) -> Examples:
        return generator_examples(some, controlled, longest)

    trainer, held_out, report = tune_causal(
        model, rows, lambda r: r.question, encode, out, options, run_id, tokens=ids.values()
    )
    groups = [[ids[token] for token in TOKENS[group]] for group in controlled.groups]
    report["tokens"]["added"] = added
    report["held_out"] = _held_out(predict_tokens(trainer, held_out, groups), controlled)
    export(trainer, tokenizer, out / "generator")
    return write_report(out, report)


def _held_out(
    predicted: Sequence[tuple[int, float, int]], tokenizer: ControlledTokenizer
) -> dict[str, Any]:
    name = {token_id: token for token, token_id in tokenizer.control_ids.items()}
    kinds: dict[int | None, str] = {i: GROUP_OF[t] for i, t in name.items() if t in GROUP_OF}
    kinds |= {tokenizer.control_ids[PARAGRAPH]: "paragraph", tokenizer.eos_id: "end"}
    losses: dict[str, list[float]] = {
        kind: [] for kind in ("text", *tokenizer.groups, "paragraph", "end")
    }
    for token_id, loss, _ in predicted:
        losses[kinds.get(token_id, "text")].append(loss)
    return {
        "tokens": {kind: len(of_kind) for kind, of_kind in losses.items()},
        "loss": {kind: fmean(of_kind) if of_kind else None for kind, of_kind in losses.items()},
        **agreement((name[right], name[best]) for right, _, best in predicted if best >= 0),
    }


_SPAN = re.compile(f"{re.escape(PARAGRAPH)}(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL)


def output_parts(output: str) -> Iterator[tuple[Part, bool]]:
    """The parts of an output, and whether each is learned.

    Learned are the text, the reflection tokens and ``<paragraph>``, which the model writes after
    ``[Retrieval]``. Each passage is masked on its own (section 3.2.2), with its ``</paragraph>``:
    the retriever decides where a passage ends. In a passage nothing is a reflection token.

    Raises:
        BadTrainingData: a paragraph token lacks its other half.
    """
    tokens = re.compile(f"({'|'.join(map(re.escape, CONTROL_TOKENS))})")
    for number, stretch in enumerate(_SPAN.split(output.strip())):
        if number % 2:
            yield Part(PARAGRAPH, "control"), True
            yield Part(stretch, "untrusted", shorten=1), False
            yield Part(END_PARAGRAPH, "control"), False
            continue
        for text in filter(None, tokens.split(stretch)):
            if text in (PARAGRAPH, END_PARAGRAPH):
                raise BadTrainingData(f"the output has a {text} without its other half")
            yield Part(text, "control" if text in GROUP_OF else "untrusted"), True


def _check_outputs(rows: Sequence[GeneratorRow]) -> None:
    has_tokens = not rows
    for number, row in enumerate(rows, start=1):
        try:
            has_tokens |= any(part.text in GROUP_OF for part, _ in output_parts(row.output))
        except BadTrainingData as error:
            raise BadTrainingData(f"row {number}: {error}") from error
    if not has_tokens:
        raise BadTrainingData("no output has a reflection token; `train generator-data` adds them")


def generator_examples(
    rows: Sequence[GeneratorRow], tokenizer: ControlledTokenizer, longest: int
) -> Examples:
    """Encode rows behind the prompt of inference, which is masked, each to at most ``longest`` ids.

    A row that is too long loses the ends of its passages, the longest first, and is left out if
    that is not enough: instruction and output are never cut.
    """
    found = Examples()
    for row in rows:
        prompt = [part._replace(shorten=0) for part in instruction_parts(row.question)]
        parts, is_learned = zip(*output_parts(row.output), strict=True)
        begun, whole = tokenizer.encode(
            [Prompt(parts=tuple(prompt)), Prompt(parts=(*prompt, *parts))]
        )
        joins = whole.ids[: len(begun.ids)] == begun.ids
        # If an id spans the border, the output is encoded apart: at first a model sees the prompt.
        before = tuple(prompt) if joins else ()
        start = len(begun.ids) if joins else begun.counts[0]
        room = longest - 1 - (0 if joins else len(begun.ids) - start)
        try:
            cut = tokenizer.encode([Prompt(parts=(*before, *parts))], room)[0]
        except PromptTooLong:
            found.left_out += 1
            continue
        learned = [is_learned[owner - len(before)] for owner in cut.owners[start:]]
        found.shortened += cut.shortened > 0
        ids = [*begun.ids, *cut.ids[start:], tokenizer.eos_id or 0]
        found.add(ids, [*(False for _ in begun.ids), *learned, True])
    return found


def add_control_tokens(model: Any, tokenizer: Any) -> int:
    """Add the control tokens that ``tokenizer`` lacks, and return how many.

    Their rows of embedding and head start as the mean of all earlier rows; spare rows of the model
    are used first; existing tokens stay as they are.

    Raises:
        BadTrainingData: the tokenizer has no end token.
    """
    import torch
    from tokenizers import AddedToken

    if tokenizer.eos_token_id is None:
        raise BadTrainingData("the model's tokenizer has no end token (eos_token) to train")
    known, present = len(tokenizer), tokenizer.get_added_vocab()
    missing = [token for token in CONTROL_TOKENS if token not in present]
    if not missing:
        return 0
    new = [AddedToken(token, special=True, normalized=False) for token in missing]
    tokenizer.add_tokens(new, special_tokens=True)
    if len(tokenizer) > len(model.get_input_embeddings().weight):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer.convert_tokens_to_ids(missing)
    with torch.no_grad():
        for end in (model.get_input_embeddings(), model.get_output_embeddings()):
            for weights in (end.weight, getattr(end, "bias", None)):
                if weights is not None:
                    weights[ids] = weights[:known].float().mean(0).to(weights.dtype)
    return len(missing)


def run(data: Path, out: Path, options: GeneratorOptions, progress: Progress) -> dict[str, Any]:
    """Fine-tune a generator on a file; see :func:`train_generator`."""
    return train_generator(read_generator_rows(data), out, options)
