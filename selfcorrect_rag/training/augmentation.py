"""Algorithm 3 of Self-RAG: a critic's reflection tokens and retrieved passages for outputs.

Rows go through the steps together, so that critic and retriever get large batches.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from selfcorrect_rag.errors import require
from selfcorrect_rag.prompts.critic import Instance
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.reflection import (
    CONTINUE,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARAGRAPH,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
)
from selfcorrect_rag.training.generator import GeneratorRow
from selfcorrect_rag.training.labelling import MALFORMED

SUPPORTING = (FULLY_SUPPORTED, PARTIALLY_SUPPORTED)


class Critique(NamedTuple):
    """A judgement that a critic is asked for."""

    prompt: str
    """A key of :data:`~selfcorrect_rag.prompts.critic.CRITIQUE_PROMPTS`."""
    instance: Instance


@dataclass(frozen=True)
class Label:
    """The answer of a critic."""

    token: str | None
    """A reflection token; None if there is none, for a ``reason``."""
    probability: float | None = None
    """Probability of the token among the allowed ones, in [0, 1]; None if the critic gives none."""
    reason: str = ""


UNLABELLED = Label(None)


@dataclass
class Passage:
    """A retrieved passage and its labels."""

    id: str
    title: str
    text: str
    score: float | None = None
    isrel: Label = UNLABELLED
    issup: Label = UNLABELLED

    @property
    def whole(self) -> str:
        """Title and text as a generator reads them."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass
class OutputSegment:
    """A sentence of an output, and what was decided about it."""

    text: str
    preceding_sentences: str = ""
    retrieve: Label = UNLABELLED
    """By the first passage of the whole output."""
    query: str = ""
    passages: list[Passage] = field(default_factory=list)
    chosen: int | None = None
    """The passage that the sentence is written from."""
    token: str = NO_RETRIEVAL
    """The Retrieve token before the sentence."""


@dataclass
class Decisions:
    """Everything that was decided about one row."""

    row: GeneratorRow
    retrieve: Label = UNLABELLED
    utility: Label = UNLABELLED
    query: str = ""
    passages: list[Passage] = field(default_factory=list)
    """Found for the whole output; the first is the evidence by which sentences are judged."""
    segments: list[OutputSegment] = field(default_factory=list)
    """Empty if the row needs no retrieval."""
    augmented: GeneratorRow | None = None
    """The row with passages and reflection tokens in its output; None after a :attr:`failure`."""

    @property
    def failure(self) -> str:
        """Why there is no augmented output; failed calls before malformed labels; empty if none."""
        labels = [self.retrieve, self.utility, *(segment.retrieve for segment in self.segments)]
        reasons = [label.reason for label in labels if label.reason]
        for passage in (passage for segment in self.segments for passage in segment.passages):
            # A passage may stay without a label, and is not chosen then; but only for good.
            found = (passage.isrel.reason, passage.issup.reason)
            reasons += [reason for reason in found if reason not in ("", MALFORMED)]
        return min(reasons, key=lambda reason: reason == MALFORMED, default="")

    def ask(
        self, prompt: str, segment: OutputSegment | None = None, evidence: Passage | None = None
    ) -> Critique:
        """A question about the whole output, or about a segment of it and a passage."""
        whole = Instance(self.row.instruction, self.row.input, self.row.output)
        if segment is None or evidence is None:
            return Critique(prompt, whole._replace(segment=self.row.output))
        about = {"segment": segment.text, "preceding_sentences": segment.preceding_sentences}
        return Critique(prompt, whole._replace(**about, evidence=evidence.whole))


Judge = Callable[[list[Critique]], list[Label]]
Retrieve = Callable[[list[str]], list[list[Passage]]]


def augment(
    rows: Sequence[GeneratorRow],
    judge: Judge,
    retrieve: Retrieve,
    *,
    top_k: int,
    language: str = "en",
    seed: int = 0,
) -> list[Decisions]:
    """Decide about ``rows`` together.

    Args:
        rows: rows without reflection tokens.
        judge: returns a label for each request, in their order.
        retrieve: returns passages for each query, best first, none of them shared.
        top_k: maximum passages of a query.
        language: ISO 639-1 code of the outputs, for the split into sentences.
        seed: decides which passage is taken if none supports a sentence.
    """
    every = [Decisions(row) for row in rows]
    labels = judge([one.ask(name) for name in ("retrieval", "utility") for one in every])
    for one, retrieval, utility in zip(every, labels, labels[len(every) :], strict=False):
        one.retrieve, one.utility = retrieval, utility
        if one.retrieve.token == RETRIEVAL and not one.failure:
            one.query = _query(one.row, one.row.output)
            one.segments = list(_segments(one.row.output, language))
    retrieving = [one for one in every if one.segments]
    for one, found in zip(retrieving, retrieve([o.query for o in retrieving]), strict=True):
        one.passages = found[:top_k]
    # Whether a sentence needs passages of its own, by the output's first passage (A.2).
    each = [(one, segment) for one in retrieving if one.passages for segment in one.segments]
    labels = judge([o.ask("multi_retrieval", s, o.passages[0]) for o, s in each])
    for (_, segment), label in zip(each, labels, strict=True):
        segment.retrieve = label
    retrieving = [one for one in retrieving if not one.failure]
    _retrieve_for_segments(retrieving, retrieve, top_k)
    # ISREL of each passage, and ISSUP of the relevant ones (section 3.2.2).
    judged = [(o, s, p) for o in retrieving for s in o.segments for p in s.passages]
    labels = judge([one.ask("relevance", s, p) for one, s, p in judged])
    for (_, _, passage), label in zip(judged, labels, strict=True):
        passage.isrel = label
    relevant = [(o, s, p) for o, s, p in judged if p.isrel.token == RELEVANT]
    labels = judge([one.ask("groundness", s, p) for one, s, p in relevant])
    for (_, _, passage), label in zip(relevant, labels, strict=True):
        passage.issup = label
    for one in every:
        if not one.failure:
            _choose_passages(one, seed)
            parts = [*_parts(one), (one.utility.token or "", True)]
            texts = {
                "instruction": quoted(one.row.instruction),
                "input": quoted(one.row.input),
                "output": "".join(text if control else quoted(text) for text, control in parts),
            }
            one.augmented = one.row.model_copy(update=texts)
    return every


def split_sentences(output: str, language: str) -> list[str]:
    """The sentences of an output, which together are the output (A.2).

    A sentence of one word, such as the number in a list, joins the next one.
    """
    whole: list[str] = []
    begun, start = "", 0
    # Each cut becomes a segment that the generator learns, so a real splitter is used. It cannot
    # read half a surrogate pair, which JSON may hold; lengths stay the same.
    readable = output.encode(errors="replace").decode()
    for found in require("sentencex", "train").segment(language, readable):
        sentence = output[start : start + len(found)]
        start += len(found)
        if whole and not begun and not sentence.strip():
            whole[-1] += sentence
        elif len(sentence.split()) < 2:
            begun += sentence
        else:
            whole.append(begun + sentence)
            begun = ""
    if whole:
        whole[-1] += begun
    return whole or [output]


def choose_passage(passages: Sequence[Passage], random: Random) -> int | None:
    """The passage that a sentence is written from (A.2): the best retrieved one that is relevant
    and supports the sentence, fully or in part; else a random one of those with a label."""
    for number, passage in enumerate(passages):
        if passage.issup.token in SUPPORTING:
            return number
    judged = [
        number
        for number, passage in enumerate(passages)
        if passage.isrel.token == IRRELEVANT or passage.issup.token == NO_SUPPORT
    ]
    return random.choice(judged) if judged else None


def _retrieve_for_segments(every: Sequence[Decisions], retrieve: Retrieve, top_k: int) -> None:
    waiting = []
    for one in every:
        is_read = False
        for segment in one.segments:
            if segment.retrieve.token in (None, RETRIEVAL):
                segment.query = _query(one.row, segment.text)
                waiting.append(segment)
                is_read = False
            elif segment.retrieve.token == CONTINUE:
                if not is_read:
                    # The critic saw this passage; the generator has read another one, or none.
                    segment.passages = [copy.copy(one.passages[0])]
                is_read = True
    for segment, found in zip(waiting, retrieve([s.query for s in waiting]), strict=True):
        segment.passages = found[:top_k]


def _choose_passages(one: Decisions, seed: int) -> None:
    last = ""
    for number, segment in enumerate(one.segments):
        if segment.retrieve.token == CONTINUE and last == one.passages[0].whole:
            segment.token = CONTINUE
        elif segment.retrieve.token != NO_RETRIEVAL:
            random = Random(f"{seed}:{one.row.digest}:{number}")
            segment.chosen = choose_passage(segment.passages, random)
        if segment.chosen is not None:
            segment.token, last = RETRIEVAL, segment.passages[segment.chosen].whole


def _parts(one: Decisions) -> Iterator[tuple[str, bool]]:
    """The augmented output up to ISUSE, and whether each part is a control token."""
    if not one.segments:
        yield from ((NO_RETRIEVAL, True), (one.row.output, False))
    for segment in one.segments:
        text = segment.text.rstrip(" ")
        yield segment.token, True
        if segment.chosen is None:
            yield text, False
            continue
        passage = segment.passages[segment.chosen]
        yield from ((PARAGRAPH, True), (passage.whole, False), (END_PARAGRAPH, True))
        yield from ((passage.isrel.token or "", True), (text, False))
        yield passage.issup.token or "", True


def _segments(output: str, language: str) -> Iterator[OutputSegment]:
    preceding = ""
    for text in split_sentences(output, language):
        yield OutputSegment(text, preceding)
        preceding += text


def _query(row: GeneratorRow, text: str) -> str:
    return " ".join(part.strip() for part in (row.instruction, row.input, text) if part.strip())
