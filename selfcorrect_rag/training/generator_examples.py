"""What of the generator's training data is learned, token by token (Self-RAG 3.2.2, Eq. 2)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from selfcorrect_rag.errors import BadTrainingData, PromptTooLong
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.prompts.self_rag import instruction_parts
from selfcorrect_rag.reflection import CONTROL_TOKENS, END_PARAGRAPH, GROUP_OF, PARAGRAPH
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
    asked = tuple(part._replace(shorten=0) for part in instruction_parts(row.question))
    output = tuple(part for part, _ in stretches)
    prompt, whole = tokenizer.encode([Prompt(parts=asked), Prompt(parts=(*asked, *output))])
    begun = prompt.ids
    if whole.ids[: len(begun)] == begun:
        cut = tokenizer.encode([Prompt(parts=(*asked, *output))], longest)[0]
        written, owners = cut.ids[len(begun) :], cut.owners[len(begun) :]
        owners = [owner - len(asked) for owner in owners]
    else:
        # An id spans the border. The prompt alone is all that a model sees at first, so the output
        # is encoded apart.
        opening = prompt.counts[0]
        cut = tokenizer.encode([Prompt(parts=output)], longest - len(begun) + opening)[0]
        written, owners = cut.ids[opening:], cut.owners[opening:]
    learned = [stretches[owner].learned for owner in owners]
    return [*begun, *written], [*(False for _ in begun), *learned], cut.shortened > 0
