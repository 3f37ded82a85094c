"""What the nano generator's data begins as: instructions with outputs, and the pages of an index.

Neither has a reflection token. Most outputs are right; some are wrong, and some questions have no
page with an answer, so that a critic and a retriever have something to tell apart.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from langchain_core.documents import Document

from nano_training.examples import (
    EOS,
    Mixture,
    Row,
    about,
    answered,
    choice,
    claim,
    mistaken,
    no_retrieval,
    prompt,
    row,
    two_part,
    unhelpful,
    unstated,
)
from nano_training.world import World
from selfcorrect_rag.reflection import CONTINUE, END_PARAGRAPH, GROUP_OF, PARAGRAPH
from selfcorrect_rag.training.generator_rows import GeneratorRow

MIXTURE = Mixture(
    {
        answered: 56,
        unhelpful: 8,
        unstated: 8,
        mistaken: 4,
        no_retrieval: 12,
        about: 4,
        claim: 4,
        two_part: 2,
        choice: 2,
    },
    most=6,
)
"""More answers than the rule teaches from: here a passage has one, and there several."""
WRONG = 0.25
"""Share of outputs that are wrong, where a wrong one is at hand."""
NAME = "made_up"
"""Of the data set."""
PAGE = re.compile(f"{re.escape(PARAGRAPH)}(.*?)\n(.*?){re.escape(END_PARAGRAPH)}", re.DOTALL)
_BEFORE, _AFTER = prompt("\0").split("\0")


class Output(NamedTuple):
    """An instruction with its output, and pages for the index."""

    row: GeneratorRow
    pages: list[Document]


def outputs(count: int, seed: int, mixture: Mixture = MIXTURE) -> Iterator[Output]:
    """``count`` of them, always the same."""
    world = World(f"outputs/{seed}")
    for number in range(count):
        yield _output(world, row(world, mixture), number)


def _output(world: World, made: Row, number: int) -> Output:
    right, *wrong = made.branches
    whole = made.text + (world.choice(wrong) if wrong and world.chance(WRONG) else right)
    instruction, rest = instruction_of(whole)
    pages = [Document(text, metadata={"title": title}) for title, text in PAGE.findall(rest)]
    text = " ".join(_without_tokens(PAGE.sub(" ", rest)).removesuffix(EOS).split())
    return Output(GeneratorRow(instruction, text, "", f"{NAME}_{number}", NAME), pages)


def instruction_of(text: str) -> tuple[str, str]:
    """What a row's text asks, and what follows it."""
    instruction, rest = text.removeprefix(_BEFORE).split(_AFTER, 1)
    return instruction, rest


def _without_tokens(text: str) -> str:
    """A row's text as it was before there were reflection tokens."""
    for token in GROUP_OF:
        text = text.replace(token, " " if token == CONTINUE else "")
    return text
