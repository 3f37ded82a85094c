"""Fine-tunes Self-RAG's generator on outputs with reflection tokens (3.2.2, Algorithm 2, B.1)."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import field_validator

from selfcorrect_rag.errors import BadTrainingData, PromptTooLong
from selfcorrect_rag.models.checkpoints import max_input_tokens
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.self_rag import instruction_parts, question_text
from selfcorrect_rag.reflection import CONTROL_TOKENS, END_PARAGRAPH, GROUP_OF, PARAGRAPH, TOKENS
from selfcorrect_rag.training import fine_tuning
from selfcorrect_rag.training.critic import agreement
from selfcorrect_rag.training.fine_tuning import CausalOptions, Examples
from selfcorrect_rag.training.rows import Filled, Progress, Row, Share, hold_out, read_rows


class GeneratorOptions(CausalOptions, model="meta-llama/Llama-2-7b-hf"):
    """Options of ``train generator``, Self-RAG's for 7B; rows are {instruction, output, input}, as
    generator-data writes them."""

    held_out_ratio: Share = 0.02
    """Share of the questions held out for the report."""


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


class _AugmentedRow(GeneratorRow):
    @field_validator("output")
    @classmethod
    def _is_whole(cls, output: str) -> str:
        list(output_parts(output))
        return output


def train_generator(
    options: GeneratorOptions, progress: Progress = None, *, base: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune Self-RAG's generator, a causal model that retrieves, writes and criticises.

    Its vocabulary grows by the control tokens that it lacks. See
    :mod:`~selfcorrect_rag.training.fine_tuning`. The result is ``out / "generator"``.

    Returns:
        See :func:`~.fine_tuning.count_rows`; also ``tokens`` added to the vocabulary, and of the
        ``held_out`` rows the mean ``loss`` (negative natural log-probability per token) and the
        :func:`~.critic.agreement` of the likeliest token of each group.
    """
    rows = read_rows(options.data, _AugmentedRow)
    if not any(part.text in GROUP_OF for row in rows for part, _ in output_parts(row.output)):
        raise BadTrainingData("no output has a reflection token; `train generator-data` adds them")
    run_id = fine_tuning.prepare(options, rows)
    model, tokenizer = fine_tuning.load_decoder(options, base)
    added = add_control_tokens(model, tokenizer)
    controlled = ControlledTokenizer(tokenizer)
    longest = max_input_tokens(model, options.max_length)
    train, held_out = (
        generator_examples(part, controlled, longest)
        for part in hold_out(rows, options.held_out_ratio)
    )
    ids = controlled.control_ids.values()
    trainer = fine_tuning.tune_causal(model, train, options, run_id, ids)
    report = fine_tuning.count_rows(train, held_out)
    report["tokens"]["added"] = added
    report["held_out"] = _test(trainer, held_out, controlled)
    fine_tuning.export(trainer, tokenizer, options.out / "generator")
    return fine_tuning.write_report(options.out, report)


def _test(trainer: Any, held_out: Examples, tokenizer: ControlledTokenizer) -> dict[str, Any]:
    """Predict each reflection token from the tokens before it; all processes call."""
    import torch

    ids, names = tokenizer.control_ids, {i: token for token, i in tokenizer.control_ids.items()}
    groups = [[ids[token] for token in tokens] for tokens in TOKENS.values()]

    def likeliest(logits: Any, labels: Any) -> Any:
        """Return per token the likeliest id of its group, -1 if it is in none."""
        logits, right = logits[:, :-1], labels[:, 1:]
        chosen = torch.full_like(right, -1)
        for group in groups:
            of_group = torch.tensor(group, device=logits.device)
            best = of_group[logits[..., of_group].argmax(-1)]
            chosen = torch.where(torch.isin(right, of_group), best, chosen)
        return chosen

    if not held_out.rows:
        return {"loss": None, **agreement(())}
    trainer.preprocess_logits_for_metrics = likeliest
    chosen, right, metrics = trainer.predict(held_out.rows)
    pairs = zip(right[:, 1:][chosen >= 0].tolist(), chosen[chosen >= 0].tolist(), strict=True)
    found = agreement((names[token], names[best]) for token, best in pairs)
    return {"loss": metrics["test_loss"], **found}


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


def generator_examples(
    rows: Sequence[GeneratorRow], tokenizer: ControlledTokenizer, longest: int
) -> Examples:
    """Encode rows behind the prompt of inference, which is masked, each to at most ``longest`` ids.

    A row that is too long loses the ends of its passages, the longest first, and is left out if
    that is not enough: instruction and output are never cut.
    """
    found = Examples()
    for row in rows:
        prompt = [(part._replace(shorten=0), False) for part in instruction_parts(row.question)]
        parts, learned = zip(*prompt, *output_parts(row.output), strict=True)
        try:
            encoded = tokenizer.encode([Prompt(parts=parts)], longest - 1)[0]
        except PromptTooLong:
            found.left_out += 1
            continue
        found.shortened += encoded.shortened > 0
        is_learned = [owner >= 0 and learned[owner] for owner in encoded.owners]
        found.add([*encoded.ids, tokenizer.eos_id or 0], [*is_learned, True])
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
