"""Rows as token ids with their targets, and batches of them."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    def encode_row(self, row: Row) -> Example | None:
        """Encode the question with its passage; None if the answer is cut off."""
        text, answers = self._window(row)
        example, found = self._pair(row.question, row.title, text)
        example.relevant = float(bool(row.answers))
        if row.answers:
            _point(example, found, row.title[:100], text, answers)
            if not example.starts:
                return None
        return example

    def encode_yes_no(self, row: Row) -> Example:
        """Encode a yes-or-no question with the passage that decides it, which has no span."""
        text, _ = self._window(row)
        example, _ = self._pair(row.question, row.title, text)
        example.relevant = 1.0
        return example

    def encode_question(self, text: str, retrieve: bool) -> Example:
        """Encode a question alone."""
        found = self._tokenizer.encode(cut_question(text))
        return Example(found.ids, found.type_ids, [], retrieve=float(retrieve))

    def _pair(self, question: str, title: str, text: str) -> tuple[Example, Any]:
        found = self._tokenizer.encode(cut_question(question), _context(title[:100], text))
        offsets, head = found.offsets, len(_context(title[:100], ""))
        readable = [
            k
            for k, kind in enumerate(found.type_ids)
            if kind == 1 and offsets[k][1] > offsets[k][0] and offsets[k][0] >= head
        ]
        return Example(found.ids, found.type_ids, readable), found

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


def _context(title: str, text: str) -> str:
    return f"{title}. {text}" if title else text


def _point(example: Example, found: Any, title: str, text: str, answers: Sequence[str]) -> None:
    """Set the targets of the answers, wherever they stand; of a long one every token inside."""
    head = len(_context(title, ""))
    for answer in answers:
        answer = answer.strip(" .,;:")
        if not answer:
            continue
        for match in re.finditer(re.escape(answer), text):
            begin, stop = match.start() + head, match.end() + head
            inside = [
                k
                for k in example.readable
                if found.offsets[k][0] < stop and found.offsets[k][1] > begin
            ]
            if not inside or found.offsets[inside[-1]][1] < stop:
                continue
            if len(answer.split()) > SHORT:
                example.starts += inside
                example.ends += inside
            else:
                example.starts.append(inside[0])
                example.ends.append(inside[-1])
        if example.starts:
            return


@dataclass
class Batch:
    """Examples as tensors."""

    ids: torch.Tensor
    types: torch.Tensor
    mask: torch.Tensor
    readable: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    relevant: torch.Tensor
    retrieve: torch.Tensor


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to the longest and make tensors of them."""
    width = max(len(e.ids) for e in examples)

    def padded(rows: Iterable[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])

    def marked(rows: Iterable[list[int]]) -> torch.Tensor:
        marks = torch.zeros(len(examples), width, dtype=torch.bool)
        for i, row in enumerate(rows):
            marks[i, row] = True
        return marks

    return Batch(
        padded(e.ids for e in examples),
        padded(e.types for e in examples),
        padded([1] * len(e.ids) for e in examples),
        marked(e.readable for e in examples),
        marked(e.starts for e in examples),
        marked(e.ends for e in examples),
        torch.tensor([e.relevant for e in examples]),
        torch.tensor([e.retrieve for e in examples]),
    )


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
