"""Rows cut to windows, as token ids with their targets, and batches of them."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from reader_training.negatives import sentences
from reader_training.rows import Row, mentions
from selfcorrect_rag.reader.network import SHIPPED, load_tokenizer

MAX_TOKENS = 192
"""Most tokens of an example."""
WINDOW = (20, 120)
"""Fewest and most words of a window; a longer passage is cut around its answer."""
SHUFFLED = 0.3
"""Share of the windows whose sentences are put into another order."""
MENTIONS = 8
"""Most mentions of answers that count."""
POOL = 1000
"""Examples that are sorted by length together."""
NONE = -100
"""No target."""
Batch = dict[str, torch.Tensor]
"""Examples, B rows of T tokens: ``ids``, ``types`` and ``mask``; ``readable`` marks tokens at which
a span may lie; ``spans`` (B, mentions, 2) are the first and the last token of each mention of an
answer, or -1; and targets ``relevant`` and ``retrieve``. With a teacher the same as it reads them,
under names that begin with ``teacher_``."""


@dataclass
class Example:
    """Token ids and targets of one reading."""

    ids: list[int]
    types: list[int]
    readable: list[int]
    """Indices of the tokens at which a span may start or end."""
    spans: list[tuple[int, int]]
    """Indices of the first and the last token of each mention of an answer."""
    relevant: float = NONE
    retrieve: float = NONE


def cut(row: Row, chance: random.Random) -> Row:
    """Cut a window of some words out of a long passage, around a mention of an answer if it has
    one, and sometimes put its sentences into another order."""
    text, size = row.passage, chance.randint(*WINDOW)
    words = [match.span() for match in re.finditer(r"\S+", text)]
    if len(words) > size:
        places = [place for answer in row.answers for place in mentions(answer, text)]
        first = chance.randrange(len(words) - size + 1)
        if places:
            begin, end = chance.choice(places)
            begins = sum(stop <= begin for _, stop in words)
            earliest = max(0, begins + len(text[begin:end].split()) - size)
            first = chance.randint(earliest, max(earliest, min(begins, len(words) - size)))
        text = text[words[first][0] : words[min(len(words), first + size) - 1][1]]
    if chance.random() < SHUFFLED:
        parts = sentences(text)
        chance.shuffle(parts)
        shuffled = " ".join(parts)
        # An answer of two sentences is lost in another order.
        if len(all_mentions(row.answers, shuffled)) >= len(all_mentions(row.answers, text)):
            text = shuffled
    return row._replace(passage=text)


def scatter(row: Row, other: Row, chance: random.Random) -> Row:
    """Return the sentence that answers, or any one, alone or among some of another row's."""
    own = sentences(row.passage)
    stating = [part for part in own if all_mentions(row.answers, part)]
    strange = [s for s in sentences(other.passage) if not all_mentions(row.answers, s)]
    if not strange or not own or (row.answers and not stating):
        return row
    parts = [chance.choice(stating or own), *strange[: chance.randint(0, 3)]]
    chance.shuffle(parts)
    return row._replace(passage=" ".join(parts))


def all_mentions(answers: Sequence[str], text: str) -> list[tuple[int, int]]:
    return list(dict.fromkeys(place for answer in answers for place in mentions(answer, text)))


class Encoder:
    """Turns rows into examples for an encoder whose tokenizer is in ``folder``."""

    def __init__(self, folder: Path = SHIPPED) -> None:
        self._tokenizer = load_tokenizer(folder, MAX_TOKENS)

    def encode(self, row: Row, relevant: bool | None, retrieve: bool | None = None) -> Example:
        """Encode a question with its passage, or alone if ``relevant`` is None."""
        question = " ".join(row.question.split()[:48])[:300]  # leaves room for the passage
        if relevant is None:
            found = self._tokenizer.encode(question)
            return Example(found.ids, found.type_ids, [], [], retrieve=float(bool(retrieve)))
        head = f"{row.title[:100]}. " if row.title else ""
        found = self._tokenizer.encode(question, head + row.passage)
        places = [
            (k, begin - len(head), end - len(head))
            for k, (begin, end) in enumerate(found.offsets)
            if found.sequence_ids[k] == 1 and end > begin >= len(head)
        ]
        spans = []
        for begin, stop in all_mentions(row.answers, row.passage)[:MENTIONS]:
            inside = [k for k, first, end in places if first < stop and end > begin]
            if inside and places[-1][2] >= stop:
                spans.append((inside[0], inside[-1]))
        readable = [k for k, *_ in places]
        return Example(found.ids, found.type_ids, readable, spans, float(relevant))


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to the longest and make tensors of them."""
    width = max(len(e.ids) for e in examples)

    def padded(rows: Iterable[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])

    batch = {
        "ids": padded(e.ids for e in examples),
        "types": padded(e.types for e in examples),
        "mask": padded([1] * len(e.ids) for e in examples),
        "readable": torch.zeros(len(examples), width, dtype=torch.bool),
        "spans": torch.full((len(examples), MENTIONS, 2), -1),
        "relevant": torch.tensor([e.relevant for e in examples]),
        "retrieve": torch.tensor([e.retrieve for e in examples]),
    }
    for i, example in enumerate(examples):
        batch["readable"][i, example.readable] = True
        batch["spans"][i, : len(example.spans)] = torch.tensor(example.spans).view(-1, 2)
    return batch


def batches(
    stream: Iterator[Sequence[Example]], tokens: int, shuffle: random.Random
) -> Iterator[Batch]:
    """Group a stream into batches of at most so many padded tokens, of examples of like length;
    each comes alone, or with what the teacher reads."""
    while True:
        pool = sorted((next(stream) for _ in range(POOL)), key=lambda read: len(read[0].ids))
        groups: list[list[Sequence[Example]]] = [[]]
        for read in pool:
            if (len(groups[-1]) + 1) * len(read[0].ids) > tokens:
                groups.append([])
            groups[-1].append(read)
        shuffle.shuffle(groups)
        for group in groups:
            made, *taught = map(collate, zip(*group, strict=True))
            yield made | {f"teacher_{name}": v for each in taught for name, v in each.items()}
