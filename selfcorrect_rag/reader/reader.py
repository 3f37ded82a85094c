"""Read passages for a question: the spans that answer it, and how sure that is."""

import json
import math
import operator
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.prompts.reading import sentence_place
from selfcorrect_rag.reader.network import READER, SHIPPED, Network, Row, load_tokenizer

CONFIG = "reader.json"
MAX_TOKENS, QUESTION_TOKENS, TITLE_TOKENS = 192, 64, 24
"""Tokens of a window, and most of them for question and title, which are cut at their end."""
ANSWER_TOKENS, ANSWER_CHARACTERS = 40, 400
"""Most tokens and characters of a span: a token may be very long."""
OVERLAP, MAX_WINDOWS = 48, 16
"""Tokens that windows of a passage share at least, so that no answer is cut by both, and most
windows that are read of a passage: those with most of the question's words."""
MAX_SPANS, EDGES = 5, 16
"""Most spans of a passage, and starts and ends of a window that are combined into spans."""
MAX_ACCENTS = 8
"""Most combining characters of a letter."""
FLOOR = 1e-9
"""Least probability of a sentence."""
_BEHIND_TITLE = re.compile(r"(?<=\w)(?:\s*\(|,\s).*$", re.DOTALL)
_NAME = re.compile(r"(?<!^)\b[A-Z][\w'’.-]*(?:,? (?:(?:of|the|de|in|von|van) )*[A-Z][\w'’.-]*)*")


class Passage(NamedTuple):
    """A text to read, with its title."""

    title: str
    text: str


class Span(NamedTuple):
    """An answer as it stands in a passage.

    ``probability`` is that it is the answer, if the passage has it; ``confidence`` that it is
    right, and ``sentence_confidence`` that the sentence around it holds the answer, calibrated.
    """

    text: str
    start: int
    """Its first character in the passage."""
    probability: float
    confidence: float
    sentence: tuple[int, int]
    """First character of the sentence or line that it stands in, and the end."""
    sentence_confidence: float


class PassageReading(NamedTuple):
    """The reader's findings in a passage: the calibrated probability that it answers the question,
    spans that do not overlap, best first, and the number of tokens that were read."""

    relevant: float
    spans: tuple[Span, ...]
    tokens: int


class ReaderCalibration(NamedTuple):
    """From logits to probabilities, fitted on questions that were set aside from training.

    Slopes and an offset for each probability: ``relevant`` of the logit that a passage answers;
    ``answer`` of that logit and of the span's log-probability; ``sentence`` likewise, with the
    log-probability of all spans in the sentence. ``thresholds``, upper and lower, turn grades from
    -1 to 1 into CRAG's actions. ``title``: slopes of `compare_title`, added to the first logit.
    """

    relevant: tuple[float, float] = (1.0, 0.0)
    answer: tuple[float, float, float] = (1.0, 1.0, 0.0)
    sentence: tuple[float, float, float] = (1.0, 1.0, 0.0)
    thresholds: tuple[float, float] = (0.2, -0.8)
    title: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load it from reader.json in ``folder``; `ModelNotFound` if that is missing or corrupt."""
        path = folder / CONFIG
        try:
            given: Any = json.loads(path.read_text(encoding="utf-8"))["calibration"]
            numbers: Any = {name: tuple(map(float, values)) for name, values in given.items()}
            return cls(**numbers)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            told = f"{path} is not a reader's calibration ({type(error).__name__}: {error})"
            raise ModelNotFound(told) from error


class _Window(NamedTuple):
    """Token ids of one forward pass, and where they lie in the passage."""

    row: Row
    first: int
    """Index of the passage's first token; behind its last one comes [SEP]."""
    offsets: list[tuple[int, int]]


class Reader:
    """Reads many passages in common batches; threads and event loops may share one.

    Long passages are read in windows of like length that overlap. A window holds plain text only:
    no text becomes a special token.
    """

    def __init__(self, network: Network, calibration: ReaderCalibration, tokenizer: Any) -> None:
        self.network, self.calibration, self._tokenizer = network, calibration, tokenizer
        # [CLS], [SEP] and [SEP], or with MPNet <s>, </s> twice, and </s>.
        self._start, *self._between, self._stop = tokenizer.encode("", "").ids

    @classmethod
    def load(cls, folder: str | Path = SHIPPED) -> Self:
        """Load the reader in ``folder``, by default the shipped one; `ModelNotFound` if there is
        none, or a corrupt one."""
        folder = Path(folder)
        calibration = ReaderCalibration.load(folder)
        return cls(Network(folder / READER), calibration, load_tokenizer(folder))

    @property
    def identity(self) -> str:
        """A fingerprint of weights and calibration."""
        return f"reader {self.network.digest} {tuple(self.calibration)}"

    def read(self, asked: Sequence[tuple[str, Passage]]) -> list[PassageReading]:
        """Read each passage for its question."""
        windows = [self._windows(question, passage) for question, passage in asked]
        outputs = iter(self.network.run([w.row for some in windows for w in some]))
        return [
            self._reading(*each, some, outputs) for each, some in zip(asked, windows, strict=True)
        ]

    def needs_evidence(self, questions: Sequence[str]) -> list[tuple[float, int]]:
        """Return for each question the probability that it needs a passage, and tokens read."""
        every = [[self._start, *self._ids(q)[0][:QUESTION_TOKENS], self._stop] for q in questions]
        outputs = self.network.run([Row(ids, [0] * len(ids)) for ids in every])
        return [
            (_sigmoid(float(retrieve)), len(ids))
            for ids, (*_, retrieve) in zip(every, outputs, strict=True)
        ]

    def _ids(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        # Half a surrogate pair, which JSON may hold, is an error to the tokenizer; "?" is as long.
        valid = text.encode(errors="replace").decode()
        encoded = self._tokenizer.encode(valid, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def _windows(self, question: str, passage: Passage) -> list[_Window]:
        """Split a passage into windows; a blank one has none."""
        asked = self._ids(question)[0][:QUESTION_TOKENS]
        title = self._ids(passage.title)[0][:TITLE_TOKENS]
        title += self._ids(".")[0] if title else []
        text, offsets = self._ids(passage.text)
        size = MAX_TOKENS - len(asked) - len(title) - len(self._between) - 2
        starts = _window_starts(len(text), size)
        if len(starts) > MAX_WINDOWS:
            shared = {at: len({*asked}.intersection(text[at : at + size])) for at in starts}
            starts = sorted(sorted(starts, key=lambda at: -shared[at])[:MAX_WINDOWS])
        head = [self._start, *asked, *self._between]
        windows = []
        for at in starts:
            body = [*title, *text[at : at + size], self._stop]
            row = Row([*head, *body], [0] * len(head) + [1] * len(body))
            windows.append(_Window(row, len(head) + len(title), offsets[at : at + size]))
        return windows

    def _reading(
        self, question: str, passage: Passage, windows: Sequence[_Window], outputs: Iterator[Any]
    ) -> PassageReading:
        if not windows:
            return PassageReading(0.0, (), 0)
        text, told = passage.text, compare_title(question, *passage)
        shift = sum(map(operator.mul, self.calibration.title, told))
        read = [next(outputs) for _ in windows]
        logits = [float(output[2]) + shift for output in read]
        found = list(map(_find_spans, windows, read))
        ranked = sorted(
            (
                (_linear(self.calibration.answer, logits[i], logprob), start, end, logprob, i)
                for i, some in enumerate(found)
                for start, end, logprob in some
            ),
            reverse=True,
        )
        spans: list[Span] = []
        for confidence, start, token_end, logprob, i in ranked:
            end = _include_accents(text, token_end)
            if all(end <= s.start or start >= s.start + len(s.text) for s in spans):
                first, last = sentence_place(text, start, end)
                inside = (each[2] for each in found[i] if each[0] >= first and each[1] <= last)
                mass = math.log(max(sum(map(math.exp, inside)), FLOOR))
                sure = _linear(self.calibration.sentence, logits[i], mass)
                p = math.exp(logprob)
                spans.append(Span(text[start:end], start, p, confidence, (first, last), sure))
            if len(spans) == MAX_SPANS:
                break
        slope, offset = self.calibration.relevant
        return PassageReading(
            _sigmoid(slope * max(logits) + offset),
            tuple(spans),
            sum(len(window.row.ids) for window in windows),
        )


def compare_title(question: str, title: str, text: str = "") -> tuple[float, float]:
    """Return whether the question names the title, and whether title and text lack a third of the
    only name, a run of capitalised words, in the question: each 0 or 1, both 0 without a title.

    Brackets and what follows a comma in a title only distinguish namesakes.
    """
    texts = (question, f"{title} {text}", _BEHIND_TITLE.sub("", title), *_NAME.findall(question))
    asked, known, plain, *names = (
        re.findall(r"\w+", re.sub(r"['’]s\b", "", each).casefold()) for each in texts
    )
    is_named = bool(plain) and f" {' '.join(plain)} " in f" {' '.join(asked)} "
    words = names[0] if plain and len(names) == 1 and not is_named else []
    return float(is_named), float(sum(word not in known for word in words) > len(words) / 3)


def _find_spans(window: _Window, outputs: Sequence[Any]) -> list[tuple[int, int, float]]:
    """Combine the likeliest starts and ends of a window into its likeliest spans: first character,
    end, log-probability."""
    count = len(window.offsets)
    logits = np.asarray(outputs[:2], np.float64)[:, window.first : window.first + count]
    starts, ends = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    start_at, end_at = (np.argsort(-each, kind="stable")[:EDGES] for each in (starts, ends))
    joint = starts[start_at][:, None] + ends[end_at][None, :]
    length = end_at[None, :] - start_at[:, None]
    joint[(length < 0) | (length >= ANSWER_TOKENS)] = -np.inf
    spans = []
    for pick in np.argsort(-joint, axis=None, kind="stable")[: 4 * MAX_SPANS]:
        i, j = divmod(int(pick), len(end_at))
        begin, end = window.offsets[start_at[i]][0], window.offsets[end_at[j]][1]
        if math.isfinite(joint[i, j]) and end - begin <= ANSWER_CHARACTERS:
            spans.append((begin, end, float(joint[i, j])))
    return spans


def _window_starts(tokens: int, size: int) -> list[int]:
    """Spread the starts of windows of ``size`` evenly over so many tokens."""
    if tokens <= size:
        return [0] if tokens else []
    last = math.ceil((tokens - OVERLAP) / (size - OVERLAP)) - 1
    return [round(i * (tokens - size) / last) for i in range(last + 1)]


def _include_accents(text: str, end: int) -> int:
    """Move an end behind the accents of the last letter, which the tokenizer leaves out."""
    marks = (unicodedata.category(each)[0] == "M" for each in text[end : end + MAX_ACCENTS])
    return end + sum(takewhile(bool, marks))


def _linear(weights: tuple[float, float, float], logit: float, logprob: float) -> float:
    return _sigmoid(sum(map(operator.mul, weights, (logit, logprob, 1.0))))


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -60.0), 60.0)))
