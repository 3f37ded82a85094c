"""Reads passages for a question: the spans that answer it, and how sure that is."""

import math
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from selfcorrect_rag.models.batching import MicroBatcher, batches
from selfcorrect_rag.models.identity import weights
from selfcorrect_rag.models.off_loop import LONG, off_loop
from selfcorrect_rag.prompts.sentences import sentence_place
from selfcorrect_rag.reader.torch_network import HeadLogits, ReaderNetwork, fastest_dtype
from selfcorrect_rag.reader.weights import SHIPPED, ReaderCalibration, load_weights
from selfcorrect_rag.search.minilm import minilm_tokenizer

MAX_TOKENS = 192
"""Tokens of a window, with question and title."""
QUESTION_TOKENS, TITLE_TOKENS = 64, 24
"""Most tokens of each; what is longer is cut at its end."""
ANSWER_TOKENS, ANSWER_CHARACTERS = 40, 400
"""Most tokens and characters of a span: a token may be very long."""
OVERLAP = 48
"""Tokens that windows of a passage share at least, so that no answer is cut by both."""
MOST_WINDOWS = 16
"""Most windows that are read of a passage: those with most of the question's words."""
MOST_MARKS = 8
"""Most accents of a letter."""
SPANS = 5
"""Most spans of a passage."""
FLOOR = 1e-9
"""Least probability of a sentence."""
BATCH_TOKENS, PASS_TOKENS = 4096, 48
"""Most padded tokens of a forward pass, and what a pass costs in tokens."""


class Passage(NamedTuple):
    """A text to read, with its title."""

    title: str
    text: str


class Span(NamedTuple):
    """An answer as it stands in a passage."""

    text: str
    start: int
    """Its first character in the passage."""
    probability: float
    """That it is the answer, if the passage has it."""
    confidence: float
    """That it is right, calibrated."""
    sentence: tuple[int, int]
    """First character of the sentence or line that it stands in, and the end."""
    sentence_confidence: float
    """That the sentence holds the answer, wherever its edges are, calibrated."""

    @property
    def place(self) -> tuple[int, int]:
        """Its first character in the passage, and the end behind its last."""
        return self.start, self.start + len(self.text)


class PassageReading(NamedTuple):
    """What the reader finds in a passage."""

    relevant: float
    """Probability that the passage answers the question, calibrated."""
    spans: tuple[Span, ...]
    """Best first; no two overlap. Empty where there is nothing to read."""
    tokens: int
    """That were read."""


class Need(NamedTuple):
    """Whether a question needs a passage to be answered."""

    probability: float
    tokens: int
    """That were read."""


class _Row(NamedTuple):
    """Token ids of one forward pass, and where a window lies in its passage."""

    ids: list[int]
    types: list[int]
    first: int
    """Index of the window's first token; behind its last one comes [SEP]."""
    offsets: list[tuple[int, int]]


class _Window(NamedTuple):
    logit: float
    retrieve: float
    spans: list[tuple[int, int, float]]
    """First character, end, and log-probability."""
    tokens: int


_Found = tuple[float, tuple[int, int], float, _Window]
"""Confidence, first character and end, log-probability, and the window of a span."""


class Reader:
    """Reads many passages in common batches; threads and event loops may share one.

    Long passages are read in windows of like length that overlap. A window holds plain text only:
    no text becomes a special token.
    """

    def __init__(
        self, network: ReaderNetwork, calibration: ReaderCalibration | None = None
    ) -> None:
        self._network, self._calibration = network, calibration or ReaderCalibration()
        tokenizer: Any = minilm_tokenizer()
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._start, self._stop = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
        self._batcher: MicroBatcher[_Row, _Window] = MicroBatcher(
            self._forward, most=64, name="reader"
        )

    @classmethod
    def load(cls, folder: Path = SHIPPED) -> Self:
        """The reader in ``folder``; by default the shipped one.

        Raises:
            ModelNotFound: there is none.
        """
        network, calibration = load_weights(folder)
        torch.nn.Module.to(network.bert, fastest_dtype())
        return cls(network, calibration)

    @property
    def calibration(self) -> ReaderCalibration:
        """How its logits become probabilities."""
        return self._calibration

    @property
    def network(self) -> ReaderNetwork:
        """The network that reads."""
        return self._network

    @property
    def identity(self) -> str:
        """A fingerprint of weights and calibration."""
        return f"reader {weights(self._network)} {tuple(self._calibration)}"

    def read(self, asked: Sequence[tuple[str, Passage]]) -> list[PassageReading]:
        """What each passage says about its question."""
        rows = self._all_rows(asked)
        given = iter(self._batcher.run([row for some in rows for row in some]))
        return [self._reading(p, some, given) for (_, p), some in zip(asked, rows, strict=True)]

    async def aread(self, asked: Sequence[tuple[str, Passage]]) -> list[PassageReading]:
        """The async twin of :meth:`read`."""
        long = sum(len(passage.text) for _, passage in asked) > LONG
        rows = await off_loop(self._all_rows, asked, long=long)
        given = iter(await self._batcher.arun([row for some in rows for row in some]))
        return [self._reading(p, some, given) for (_, p), some in zip(asked, rows, strict=True)]

    def needs_evidence(self, questions: Sequence[str]) -> list[Need]:
        """Whether each question needs a passage to be answered."""
        return _needs(self._batcher.run([self._alone(question) for question in questions]))

    async def aneeds_evidence(self, questions: Sequence[str]) -> list[Need]:
        """The async twin of :meth:`needs_evidence`."""
        return _needs(await self._batcher.arun([self._alone(question) for question in questions]))

    def _ids(self, text: str, most: int | None = None) -> tuple[list[int], list[tuple[int, int]]]:
        # Half a surrogate pair, which JSON may hold, is an error to the tokenizer; "?" is as long.
        readable = text.encode(errors="replace").decode()
        found = self._tokenizer.encode(readable, add_special_tokens=False)
        return found.ids[:most], found.offsets[:most]

    def _alone(self, question: str) -> _Row:
        ids = [self._start, *self._ids(question, QUESTION_TOKENS)[0], self._stop]
        return _Row(ids, [0] * len(ids), len(ids), [])

    def _all_rows(self, asked: Sequence[tuple[str, Passage]]) -> list[list[_Row]]:
        return [self._rows(question, passage) for question, passage in asked]

    def _rows(self, question: str, passage: Passage) -> list[_Row]:
        """The windows of a passage; none of a blank one."""
        asked, _ = self._ids(question, QUESTION_TOKENS)
        title = self._ids(passage.title, TITLE_TOKENS)[0]
        title += self._ids(".")[0] if title else []
        text, offsets = self._ids(passage.text)
        size = MAX_TOKENS - len(asked) - len(title) - 3
        starts = _starts(len(text), size)
        if len(starts) > MOST_WINDOWS:
            words = set(asked)
            shared = {at: len(words.intersection(text[at : at + size])) for at in starts}
            starts = sorted(sorted(starts, key=lambda at: -shared[at])[:MOST_WINDOWS])
        head = [self._start, *asked, self._stop]
        return [
            _Row(
                [*head, *title, *text[at : at + size], self._stop],
                [0] * len(head) + [1] * (len(title) + len(text[at : at + size]) + 1),
                len(head) + len(title),
                offsets[at : at + size],
            )
            for at in starts
        ]

    def _forward(self, rows: list[_Row]) -> list[_Window]:
        """The windows' readings, on the worker's thread."""
        found: dict[int, _Window] = {}
        with torch.inference_mode():
            for batch in batches([len(row.ids) for row in rows], BATCH_TOKENS, PASS_TOKENS):
                some = [rows[i] for i in batch]
                found.update(zip(batch, _windows(some, self._logits(some)), strict=True))
        return [found[i] for i in range(len(rows))]

    def _logits(self, rows: Sequence[_Row]) -> HeadLogits:
        width = max(len(row.ids) for row in rows)
        ids, types, mask = (
            torch.tensor([values + [0] * (width - len(values)) for values in each])
            for each in (
                [row.ids for row in rows],
                [row.types for row in rows],
                [[1] * len(row.ids) for row in rows],
            )
        )
        logits: HeadLogits = self._network(ids, types, mask)
        return logits

    def _reading(self, passage: Passage, rows: Sequence[_Row], given: Any) -> PassageReading:
        windows: list[_Window] = [next(given) for _ in rows]
        if not windows:
            return PassageReading(0.0, (), 0)
        best = max(windows, key=lambda window: window.logit)
        slope, offset = self._calibration.relevant
        found = [
            (
                _linear(self._calibration.answer, window.logit, logprob),
                (start, end),
                logprob,
                window,
            )
            for window in windows
            for start, end, logprob in window.spans
        ]
        chosen = _apart(passage.text, found)
        return PassageReading(
            _sigmoid(slope * best.logit + offset),
            tuple(self._span(passage.text, *each) for each in chosen),
            sum(window.tokens for window in windows),
        )

    def _span(
        self, text: str, confidence: float, at: tuple[int, int], logprob: float, window: _Window
    ) -> Span:
        first, last = sentence_place(text, *at)
        mass = sum(math.exp(p) for start, end, p in window.spans if start >= first and end <= last)
        sure = _linear(self._calibration.sentence, window.logit, math.log(max(mass, FLOOR)))
        return Span(text[slice(*at)], at[0], math.exp(logprob), confidence, (first, last), sure)


def _linear(weights: tuple[float, float, float], logit: float, logprob: float) -> float:
    relevant, span, offset = weights
    return _sigmoid(relevant * logit + span * logprob + offset)


def _starts(tokens: int, size: int) -> list[int]:
    """Where windows of ``size`` begin, spread evenly over so many tokens."""
    if tokens <= size:
        return [0] if tokens else []
    last = math.ceil((tokens - OVERLAP) / (size - OVERLAP)) - 1
    return [round(i * (tokens - size) / last) for i in range(last + 1)]


def _windows(rows: Sequence[_Row], logits: HeadLogits) -> list[_Window]:
    """The best spans of each row, and the logit that it answers."""
    width = logits.start.shape[1]
    places = torch.arange(width)
    first = torch.tensor([row.first for row in rows])[:, None]
    count = torch.tensor([len(row.offsets) for row in rows])[:, None]
    outside = (places < first) | (places >= first + count)
    starts, ends = (
        each.masked_fill(outside, -torch.inf).log_softmax(-1) for each in (logits.start, logits.end)
    )
    most = min(16, width)
    (start_values, start_at), (end_values, end_at) = starts.topk(most), ends.topk(most)
    joint = start_values[:, :, None] + end_values[:, None, :]
    length = end_at[:, None, :] - start_at[:, :, None]
    joint = joint.masked_fill((length < 0) | (length >= ANSWER_TOKENS), -torch.inf).flatten(1)
    values, chosen = joint.topk(min(4 * SPANS, joint.shape[1]))
    relevant, retrieve = logits.relevant.tolist(), logits.retrieve.tolist()
    found = []
    for i, row in enumerate(rows):
        spans = []
        for value, pick in zip(values[i].tolist(), chosen[i].tolist(), strict=True):
            if math.isfinite(value):
                begin = int(start_at[i, pick // most]) - row.first
                stop = int(end_at[i, pick % most]) - row.first
                place = row.offsets[begin][0], row.offsets[stop][1]
                if place[1] - place[0] <= ANSWER_CHARACTERS:
                    spans.append((*place, value))
        found.append(_Window(relevant[i], retrieve[i], spans, len(row.ids)))
    return found


def _apart(text: str, found: Sequence[_Found]) -> list[_Found]:
    """The most confident spans of which no two overlap."""
    spans: list[_Found] = []
    for confidence, (start, token_end), logprob, window in sorted(found, reverse=True):
        end = _with_marks(text, token_end)
        if len(spans) < SPANS and all(end <= a or start >= b for _, (a, b), _, _ in spans):
            spans.append((confidence, (start, end), logprob, window))
    return spans


def _with_marks(text: str, end: int) -> int:
    """The end behind the accents of a token's last letter, which the tokenizer leaves out."""
    marks = text[end : end + MOST_MARKS]
    is_mark = (unicodedata.category(mark).startswith("M") for mark in marks)
    return end + sum(takewhile(bool, is_mark))


def _needs(windows: Sequence[_Window]) -> list[Need]:
    return [Need(_sigmoid(window.retrieve), window.tokens) for window in windows]


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -60.0), 60.0)))
