"""Trains the nano base from nothing: a language model that reads, as Llama 2 is before Self-RAG.

    OMP_WAIT_POLICY=PASSIVE python -m selfcorrect_rag.nano.train_base --out DIR

It never sees a reflection token: `make nano-pipeline` fine-tunes a generator from it. The same
command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.nano.batches import Encoded, Weights, encode
from selfcorrect_rag.nano.completions import Lessons
from selfcorrect_rag.nano.examples import (
    EARLY,
    Mixture,
    Row,
    about,
    answered,
    choice,
    claim,
    mistaken,
    no_retrieval,
    row,
    two_part,
    unhelpful,
    unstated,
)
from selfcorrect_rag.nano.outputs import without_tokens
from selfcorrect_rag.nano.real_rows import with_real_text
from selfcorrect_rag.nano.train import Settings, Trainer, export, train_aloud
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.reflection import (
    END_PARAGRAPH,
    NO_SUPPORT,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
)

BASE = Settings(steps=3000, threads=1, vocabulary=6144)
LATER = Mixture(
    {
        answered: 35,
        unhelpful: 14,
        unstated: 16,
        mistaken: 6,
        no_retrieval: 7,
        claim: 14,
        about: 3,
        two_part: 2,
        choice: 3,
    },
    most=6,
)
"""More statements to check than a generator sees: to call one true is to find support."""
COPIED = 0.15
"""Weight of a passage's text in the first steps, which teach copying."""
LONGEST = 640
"""Rows with more tokens than this are left out."""


class Reading(Lessons):
    """Passages with questions on them and right answers, and tasks that want no passage."""

    name = "base"

    def __init__(
        self, settings: Settings, tokenizer: PreTrainedTokenizerFast, mixtures: Sequence[Mixture]
    ) -> None:
        """``mixtures``: of the first steps, and of the others."""
        super().__init__(settings, tokenizer)
        self._mixtures = mixtures

    def rows(self, world: World, early: bool) -> list[Encoded]:
        plain = [_plain(row(world, self._mixtures[not early])) for _ in range(256)]
        made = encode(self.tokenizer, plain, Weights())
        vocabulary = self.tokenizer.get_vocab()
        borders = vocabulary[PARAGRAPH], vocabulary[END_PARAGRAPH]
        kept = [one for one in made if len(one) <= LONGEST]
        for one in kept:
            _weigh(one, COPIED if early else 0.0, *borders)
        return kept


def _weigh(made: Encoded, copied: float, opens: int, closes: int) -> None:
    """What is written counts 1, a passage ``copied``, and the prompt nothing."""
    inside = False
    for position, token in enumerate(made.ids):
        inside = (inside or token == opens) and token != closes
        written = made.branch[position] and token != closes
        made.weights[position] = copied if inside else float(written)


def _plain(made: Row) -> Row:
    """A row without reflection tokens and without wrong answers."""
    right = [b for b in made.branches if NO_SUPPORT not in b and PARTIALLY_SUPPORTED not in b]
    return Row(without_tokens(made.text), tuple(map(without_tokens, right)), made.answer)


def main() -> None:
    """Train and export to DIR/base."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    parser.add_argument("--data", type=Path, help="folder of real text to learn from too")
    args = parser.parse_args()
    folder: Path = args.out
    folder.mkdir(parents=True, exist_ok=True)
    mixtures = [EARLY, LATER]
    if args.data:
        mixtures = [with_real_text(mixture, args.data) for mixture in mixtures]
    data = partial(Reading, mixtures=mixtures)
    trainer = Trainer(BASE, folder, data=data, mixtures=mixtures)
    train_aloud(trainer)
    export(trainer.model, trainer.tokenizer, folder / "base")


if __name__ == "__main__":
    main()
