"""Rows as token ids with their targets, and batches of them."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from reader_training.rows import Row
from selfcorrect_rag.reader.network import load_tokenizer

MAX_TOKENS = 192
"""Most tokens of an example."""
WINDOW = (50, 120)
"""Fewest and most words of a window; a longer passage is cut around its answer."""
SHORT = 12
"""Words up to which an answer's edges are learned; of a longer one only the place is."""
POOL = 1000
"""Examples that are sorted by length together."""
NONE = -100
"""No target."""
Batch = dict[str, torch.Tensor]
"""Examples: ``ids``, ``types`` and ``mask`` of tokens; marks of tokens that are ``readable``, in
which answers start (``starts``) and end; and targets ``relevant`` and ``retrieve`` of each."""


@dataclass
class Example:
    """Token ids and targets of one reading."""

    ids: list[int]
    types: list[int]
    readable: list[int]
    """Indices of the tokens at which a span may start or end."""
    starts: list[int] = field(default_factory=list)
    """Indices of the tokens at which the answer starts; none: no target."""
    ends: list[int] = field(default_factory=list)
    relevant: float = NONE
    retrieve: float = NONE


class Encoder:
    """Turns rows into examples."""

    def __init__(self, seed: int = 0) -> None:
        self._tokenizer = load_tokenizer(max_tokens=MAX_TOKENS)
        self._random = random.Random(seed)

    def encode_row(self, row: Row, *, is_yes_no: bool = False) -> Example | None:
        """Encode the question with its passage; None if the answer is cut off. The passage decides
        a yes-or-no question without a span that says so."""
        text, answers = self._window(row)
        head = f"{row.title[:100]}. " if row.title else ""
        found = self._tokenizer.encode(cut_question(row.question), head + text)
        readable = [
            k
            for k, (begin, end) in enumerate(found.offsets)
            if found.type_ids[k] == 1 and end > begin >= len(head)
        ]
        is_relevant = is_yes_no or bool(row.answers)
        example = Example(found.ids, found.type_ids, readable, relevant=float(is_relevant))
        if row.answers:
            _point(example, found.offsets, len(head), text, answers)
            if not example.starts:
                return None
        return example

    def encode_question(self, text: str, retrieve: bool) -> Example:
        """Encode a question alone."""
        found = self._tokenizer.encode(cut_question(text))
        return Example(found.ids, found.type_ids, [], retrieve=float(retrieve))

    def _window(self, row: Row) -> tuple[str, Sequence[str]]:
        """Cut some words out of a long passage, around the answer if there is one."""
        words = [match.span() for match in re.finditer(r"\S+", row.passage)]
        size = self._random.randint(*WINDOW)
        if len(words) <= size:
            return row.passage, row.answers
        if not row.answers:
            first = self._random.randrange(len(words) - size + 1)
            return row.passage[words[first][0] : words[first + size - 1][1]], ()
        answer = row.answers[0]
        at = row.passage.find(answer)
        begins = sum(end <= at for _, end in words)
        stops = begins + len(answer.split())
        earliest = max(0, stops - size)
        first = self._random.randint(earliest, max(earliest, min(begins, len(words) - size)))
        last = min(len(words), first + size) - 1
        return row.passage[words[first][0] : words[last][1]], row.answers


def cut_question(question: str) -> str:
    """Cut a question that would leave no room for a passage."""
    return " ".join(question.split()[:48])[:300]


def _point(
    example: Example,
    offsets: Sequence[tuple[int, int]],
    head: int,
    text: str,
    answers: Sequence[str],
) -> None:
    """Set the targets of the answers, wherever they stand; of a long one every token inside."""
    for answer in (answer.strip(" .,;:") for answer in answers):
        for match in re.finditer(re.escape(answer), text) if answer else ():
            begin, stop = match.start() + head, match.end() + head
            inside = [k for k in example.readable if offsets[k][0] < stop and offsets[k][1] > begin]
            if inside and offsets[inside[-1]][1] >= stop:
                is_long = len(answer.split()) > SHORT
                example.starts += inside if is_long else inside[:1]
                example.ends += inside if is_long else inside[-1:]
        if example.starts:
            return


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to the longest and make tensors of them."""
    width = max(len(e.ids) for e in examples)

    def padded(rows: Iterable[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])

    def marked(rows: Iterable[list[int]]) -> torch.Tensor:
        return torch.tensor([[i in row for i in range(width)] for row in map(set, rows)])

    return {
        "ids": padded(e.ids for e in examples),
        "types": padded(e.types for e in examples),
        "mask": padded([1] * len(e.ids) for e in examples),
        "readable": marked(e.readable for e in examples),
        "starts": marked(e.starts for e in examples),
        "ends": marked(e.ends for e in examples),
        "relevant": torch.tensor([e.relevant for e in examples]),
        "retrieve": torch.tensor([e.retrieve for e in examples]),
    }


def batches(stream: Iterator[Example], tokens: int, shuffle: random.Random) -> Iterator[Batch]:
    """Group a stream into batches of at most so many padded tokens, of examples of like length."""
    while True:
        pool = sorted((next(stream) for _ in range(POOL)), key=lambda e: len(e.ids))
        groups: list[list[Example]] = [[]]
        for example in pool:
            if (len(groups[-1]) + 1) * len(example.ids) > tokens:
                groups.append([])
            groups[-1].append(example)
        shuffle.shuffle(groups)
        yield from map(collate, groups)
