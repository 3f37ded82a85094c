"""What of the generator's training data is learned, token by token (Self-RAG 3.2.2, Eq. 2)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from selfcorrect_rag.errors import BadTrainingData, PromptTooLong
from selfcorrect_rag.models.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import Part, Prompt, instruction_parts
from selfcorrect_rag.reflection import CONTROL_TOKENS, END_PARAGRAPH, PARAGRAPH, REFLECTION_TOKENS
from selfcorrect_rag.training.batches import Examples, example
from selfcorrect_rag.training.generator_rows import GeneratorRow

_SPAN = re.compile(f"{re.escape(PARAGRAPH)}(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL)
_TOKEN = re.compile(f"({'|'.join(map(re.escape, CONTROL_TOKENS))})")


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
    stretches = []
    for number, stretch in enumerate(_SPAN.split(output.strip())):
        if number % 2:
            stretches += [
                _Stretch(Part(PARAGRAPH, "control"), learned=True),
                _Stretch(Part(stretch, "untrusted", shorten=1), learned=False),
                _Stretch(Part(END_PARAGRAPH, "control"), learned=False),
            ]
            continue
        for text in filter(None, _TOKEN.split(stretch)):
            if text in (PARAGRAPH, END_PARAGRAPH):
                raise BadTrainingData(f"the output has a {text} that is half of a pair")
            is_token = text in REFLECTION_TOKENS
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
        criticised = criticised or any(part.text in REFLECTION_TOKENS for part, _ in stretches)
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
    opening = tokenizer.encode([Prompt(parts=())])[0].ids
    found, shortened, left_out = [], 0, 0
    for row in rows:
        stretches = output_stretches(row.output)
        # On its own, since it is all that a model sees at first: a border within an id would give
        # training another prompt.
        asked = tokenizer.encode([Prompt(parts=instruction_parts(row.question))])[0].ids
        room = longest - len(asked) - 1 + len(opening)
        try:
            parts = tuple(part for part, _ in stretches)
            output = tokenizer.encode([Prompt(parts=parts)], room)[0]
        except PromptTooLong:
            left_out += 1
            continue
        shortened += output.shortened > 0
        written = output.ids[len(opening) :]
        learned = [stretches[owner].learned for owner in output.owners[len(opening) :]]
        ids = [*asked, *written, tokenizer.eos_id]
        found.append(example(ids, [*(False for _ in asked), *learned, True]))
    return Examples(found, shortened, left_out)
