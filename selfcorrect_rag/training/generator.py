"""Fine-tunes Self-RAG's generator on outputs with reflection tokens (3.2.2, Algorithm 2, B.1)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from selfcorrect_rag.errors import BadTrainingData, PromptTooLong
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.self_rag import instruction_parts
from selfcorrect_rag.reflection import END_PARAGRAPH, GROUP_OF, PARAGRAPH, TOKENS, control_tokens
from selfcorrect_rag.training.agreement import agreement_of
from selfcorrect_rag.training.causal_lm import (
    CausalLMSettings,
    Examples,
    TokenPrediction,
    example,
    load_decoder,
    predict_tokens,
    row_counts,
    tune_answering,
)
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    export,
    prepare,
    write_report,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow, token_pattern

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class GeneratorSettings(CausalLMSettings):
    """Settings of a generator; defaults are the paper's 7B (B.1)."""

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
            cannot be read, or the model cannot be trained so; see also
            :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
        BadRun: ``out`` holds a run with other settings or rows.
    """
    settings, run_options = settings or GeneratorSettings(), run_options or RunOptions()
    refuse_unlearnable(rows)
    run = prepare(out, settings, rows)
    model, tokenizer = load_decoder(settings, base)
    added = add_control_tokens(model, tokenizer)
    controlled = ControlledTokenizer(tokenizer)
    ids = controlled.control_ids

    def encode(some: Sequence[GeneratorRow]) -> Examples:
        return generator_examples(some, controlled, max_input_tokens(model, settings.max_length))

    trainer, train, test = tune_answering(
        model, rows, encode, out, settings, run_options, run=run, tokens=ids.values()
    )
    groups = [[ids[token] for token in TOKENS[group]] for group in controlled.groups]
    read = predict_tokens(trainer, test.examples, groups)
    report = {
        "rows": row_counts(train, test),
        "tokens": {"read": train.read, "learned": train.learned, "added": added},
        "held_out": held_out_report(read, controlled),
    }
    export(trainer, tokenizer, out / "generator")
    write_report(out, report)
    return report


def held_out_report(
    read: Sequence[TokenPrediction], tokenizer: ControlledTokenizer
) -> dict[str, Any]:
    """Losses and accuracies by kind: ``text``, reflection groups, ``paragraph``, ``end``.

    Returns:
        By kind ``tokens`` and their mean ``loss`` (negative natural log-probability under the full
        vocabulary; None without tokens). By group ``accuracy``, ``base_rate`` and ``confusion`` of
        the likeliest token of the group, which is what the graphs read; see
        :func:`~.agreement.agreement_of`.
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


_SPAN = re.compile(f"{re.escape(PARAGRAPH)}(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL)


class _Stretch(NamedTuple):
    part: Part
    learned: bool


def output_stretches(output: str) -> list[_Stretch]:
    """An output as parts of a prompt, and whether each is learned.

    Learned are the text, the reflection tokens and ``<paragraph>``, which the model writes after
    ``[Retrieval]``. Each passage is left out on its own (section 3.2.2), and ``</paragraph>`` with
    it: where a passage ends is not the generator's to say. In a passage nothing is a reflection
    token.

    Raises:
        BadTrainingData: it is empty, or has a ``<paragraph>`` without its end, or an end alone.
    """
    stretches, tokens = [], token_pattern(control_tokens())
    for number, stretch in enumerate(_SPAN.split(output.strip())):
        if number % 2:
            stretches += [
                _Stretch(Part(PARAGRAPH, "control"), learned=True),
                _Stretch(Part(stretch, "untrusted", shorten=1), learned=False),
                _Stretch(Part(END_PARAGRAPH, "control"), learned=False),
            ]
            continue
        for text in filter(None, tokens.split(stretch)):
            if text in (PARAGRAPH, END_PARAGRAPH):
                raise BadTrainingData(f"the output has a {text} that is half of a pair")
            is_token = text in GROUP_OF
            part = Part(text, "control" if is_token else "untrusted")
            stretches.append(_Stretch(part, learned=True))
    if not stretches:
        raise BadTrainingData("the output is empty")
    return stretches


def refuse_unlearnable(rows: Sequence[GeneratorRow]) -> None:
    """Look at all outputs, before anything is loaded.

    Raises:
        BadTrainingData: one has half a pair of paragraph tokens or no text, and which; or none of
            them has a reflection token.
    """
    criticised = False
    for number, row in enumerate(rows, start=1):
        try:
            stretches = output_stretches(row.output)
        except BadTrainingData as error:
            raise BadTrainingData(f"row {number}: {error}") from error
        criticised = criticised or any(part.text in GROUP_OF for part, _ in stretches)
    if rows and not criticised:
        raise BadTrainingData("no output has a reflection token: train generator-data adds them")


def generator_examples(
    rows: Sequence[GeneratorRow], tokenizer: ControlledTokenizer, longest: int
) -> Examples:
    """Encode rows behind the prompt of inference, each to at most ``longest`` ids.

    The prompt is not learned; the end is. Too long a row loses the ends of its passages, the
    longest first, and is left out where that is not enough: instruction and output are never cut.

    Raises:
        BadTrainingData: the tokenizer has no end token, or an output has half a pair of paragraph
            tokens, or no text.
    """
    if tokenizer.eos_id is None:
        raise BadTrainingData("the model's tokenizer has no end token (eos_token) to train")
    found, shortened, left_out = [], 0, 0
    for row in rows:
        stretches = output_stretches(row.output)
        try:
            ids, learned, is_short = _encoded(row, stretches, tokenizer, longest - 1)
        except PromptTooLong:
            left_out += 1
            continue
        shortened += is_short
        found.append(example([*ids, tokenizer.eos_id], [*learned, True]))
    return Examples(found, shortened, left_out)


def _encoded(
    row: GeneratorRow, stretches: Sequence[_Stretch], tokenizer: ControlledTokenizer, longest: int
) -> tuple[list[int], list[bool], bool]:
    """A row's ids, which of them are learned, and whether passages were cut."""
    instruction = tuple(part._replace(shorten=0) for part in instruction_parts(row.question))
    output = tuple(part for part, _ in stretches)
    prompt, whole = tokenizer.encode(
        [Prompt(parts=instruction), Prompt(parts=(*instruction, *output))]
    )
    begun = prompt.ids
    if whole.ids[: len(begun)] == begun:
        cut = tokenizer.encode([Prompt(parts=(*instruction, *output))], longest)[0]
        written, owners = cut.ids[len(begun) :], cut.owners[len(begun) :]
        owners = [owner - len(instruction) for owner in owners]
    else:
        # An id spans the border. The prompt alone is all that a model sees at first, so the output
        # is encoded apart.
        opening = prompt.counts[0]
        cut = tokenizer.encode([Prompt(parts=output)], longest - len(begun) + opening)[0]
        written, owners = cut.ids[opening:], cut.owners[opening:]
    learned = [stretches[owner].learned for owner in owners]
    return [*begun, *written], [*(False for _ in begun), *learned], cut.shortened > 0


def add_control_tokens(model: Any, tokenizer: "PreTrainedTokenizerBase") -> int:
    """Add the control tokens that ``tokenizer`` lacks, and return how many: the paper's fifteen and
    those of registered groups.

    Their rows of embedding and head, where these are two, begin as the mean of all earlier rows.
    Rows that a model has beyond its vocabulary are used first; rows of tokens that were there,
    control tokens among them, stay as they are.

    Args:
        model: a causal language model; changed in place.
        tokenizer: its own; changed in place.

    Raises:
        BadTrainingData: the tokenizer has no end token.
    """
    import torch
    from tokenizers import AddedToken

    if tokenizer.eos_token_id is None:
        raise BadTrainingData("the model's tokenizer has no end token (eos_token) to train")
    known = len(tokenizer)
    present = tokenizer.get_added_vocab()
    missing = [token for token in control_tokens() if token not in present]
    if not missing:
        return 0
    tokenizer.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in missing],
        special_tokens=True,
    )
    if len(tokenizer) > len(model.get_input_embeddings().weight):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer.convert_tokens_to_ids(missing)
    with torch.no_grad():
        for end in (model.get_input_embeddings(), model.get_output_embeddings()):
            for weights in (end.weight, getattr(end, "bias", None)):
                if weights is not None:
                    weights[ids] = weights[:known].float().mean(0).to(weights.dtype)
    return len(missing)
