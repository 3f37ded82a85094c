"""Algorithm 3 of Self-RAG: reflection tokens and passages for the outputs of many rows at once.

Nothing is asked or searched here: :func:`augment` yields what it wants to know of all rows, and
goes on with the answers.
"""

import copy
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import ne
from random import Random
from typing import Any, NamedTuple

from selfcorrect_rag.prompts.critic import registered_prompts
from selfcorrect_rag.prompts.critique import Instance
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
    ReflectionGroup,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow, segments
from selfcorrect_rag.training.labelling import MALFORMED


class CritiqueRequest(NamedTuple):
    """A judgement that a critic is asked for."""

    prompt: str
    """Name of its prompt in :func:`~selfcorrect_rag.prompts.critic.critique_prompts`."""
    instance: Instance


class Judge(NamedTuple):
    """Asks for a :class:`Label` for each request."""

    requests: list[CritiqueRequest]


class Retrieve(NamedTuple):
    """Asks for a list of :class:`Passage`, best first, for each query."""

    queries: list[str]


@dataclass(frozen=True)
class Label:
    """The answer of a critic to one request."""

    token: str | None
    """A reflection token; None where there is none, for a ``reason``."""
    probability: float | None = None
    """Probability of the token among those allowed, in [0, 1]; None where a critic gives none."""
    reason: str = ""


@dataclass
class Passage:
    """A passage that was found, and what the critic says of it."""

    id: str
    title: str
    text: str
    score: float | None
    """Score of the retriever, the higher the better; None where it gives none."""
    isrel: Label | None = None
    """None where it was not asked, as is the next."""
    issup: Label | None = None

    @property
    def whole(self) -> str:
        """Title and text as a generator reads them."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass
class OutputSegment:
    """A sentence of an output, and what was decided about it."""

    text: str
    preceding_sentences: str
    retrieve: Label | None = None
    """By the first passage of the whole output; None where there is none to judge by."""
    query: str = ""
    """Empty where nothing was searched for."""
    passages: list[Passage] = field(default_factory=list)
    chosen: int | None = None
    """Which of the passages is read."""
    why: str = ""
    token: str = NO_RETRIEVAL
    """Token of the group Retrieve that stands before it."""
    groups: dict[str, Label] = field(default_factory=dict)
    """By name of a registered group that judges a segment, or the passage it is written from."""


@dataclass
class Decisions:
    """Everything that was decided about one row."""

    row: GeneratorRow
    retrieve: Label | None = None
    utility: Label | None = None
    groups: dict[str, Label] = field(default_factory=dict)
    """By name of a registered group that judges the answer."""
    query: str = ""
    passages: list[Passage] = field(default_factory=list)
    """Found for the whole output; the first is the evidence by which sentences are judged."""
    segments: list[OutputSegment] = field(default_factory=list)
    augmented: GeneratorRow | None = None
    """The row with passages and reflection tokens in its output; None after a :attr:`failure`."""
    look_alikes: int = 0
    """Marks in the texts of the augmented row, such as control tokens, that were quoted."""

    @cached_property
    def _undivided(self) -> OutputSegment:
        return OutputSegment(self.row.output, "")

    @property
    def written(self) -> list[OutputSegment]:
        """The segments, or the whole output as one where it needs no retrieval."""
        return self.segments or [self._undivided]

    @property
    def failure(self) -> str:
        """Why there is no augmented output, :data:`MALFORMED` among others; empty if there is."""
        labels = [self.retrieve, self.utility, *(segment.retrieve for segment in self.segments)]
        reasons = [label.reason for label in labels if label and label.reason]
        for passage in (passage for segment in self.segments for passage in segment.passages):
            # A passage that stays without a label is none to choose; one that may get it is.
            found = [label.reason for label in (passage.isrel, passage.issup) if label]
            reasons += [reason for reason in found if reason not in ("", MALFORMED)]
        for groups in (self.groups, *(segment.groups for segment in self.written)):
            found = [label.reason for label in groups.values()]
            reasons += [reason for reason in found if reason not in ("", MALFORMED)]
        return next(iter(sorted(reasons, key=lambda reason: reason == MALFORMED)), "")

    def instance(
        self, segment: OutputSegment | None = None, evidence: Passage | None = None
    ) -> Instance:
        """The instance for a critic: the whole output, or a segment of it and a passage."""
        whole = Instance(self.row.instruction, self.row.input, self.row.output)
        if segment is None:
            return whole._replace(segment=self.row.output)
        return whole._replace(
            preceding_sentences=segment.preceding_sentences,
            segment=segment.text,
            evidence=evidence.whole if evidence else "",
        )


def augment(
    rows: Sequence[GeneratorRow], *, passages: int, language: str, seed: int
) -> Generator[Judge | Retrieve, list[Any], list[Decisions]]:
    """Decide about ``rows``, in step, with one batch of cases or queries for all at a time.

    Args:
        rows: any number.
        passages: most of a query.
        language: see :func:`~.generator_rows.segments`.
        seed: of the choice among passages of which none supports a sentence.

    Yields:
        What has to be known next; to be sent an answer for each case or query, in their order.
    """
    every = [Decisions(row) for row in rows]
    registered = [group for group, _ in registered_prompts()]
    about_answer = [group.name for group in registered if group.judges == "answer"]
    names = ("retrieval", "utility", *about_answer)
    labels = yield Judge([CritiqueRequest(name, one.instance()) for name in names for one in every])
    by_name = {name: labels[i * len(every) :] for i, name in enumerate(names)}
    for i, one in enumerate(every):
        one.retrieve, one.utility = by_name["retrieval"][i], by_name["utility"][i]
        one.groups = {name: by_name[name][i] for name in about_answer}
    retrieving = [one for one in every if _is(one.retrieve, RETRIEVAL) and not one.failure]
    for one in retrieving:
        one.query = _query(one.row, one.row.output)
        one.segments = list(_segments(one.row.output, language))
    found = yield Retrieve([one.query for one in retrieving])
    for one, documents in zip(retrieving, found, strict=True):
        one.passages = documents[:passages]
    yield from _decide(retrieving)
    yield from _retrieve([one for one in retrieving if not one.failure], passages)
    yield from _critique([one for one in retrieving if not one.failure])
    for one in every:
        if not one.failure:
            _choose(one, seed)
    for group in registered:
        if group.judges != "answer":
            yield from _judge_segments([one for one in every if not one.failure], group)
    for one in every:
        if not one.failure:
            _write(one)
    return every


_Step = Generator[Judge | Retrieve, list[Any], None]


def _decide(every: Sequence[Decisions]) -> _Step:
    """Whether a sentence wants passages of its own, by the first of the whole output's (A.2)."""
    each = [(one, segment) for one in every if one.passages for segment in one.segments]
    cases = [CritiqueRequest("multi_retrieval", o.instance(s, o.passages[0])) for o, s in each]
    labels = yield Judge(cases)
    for (_, segment), label in zip(each, labels, strict=True):
        segment.retrieve = label


def _retrieve(every: Sequence[Decisions], passages: int) -> _Step:
    wanting = []
    for one in every:
        is_read = False
        for segment in one.segments:
            if segment.retrieve is None or segment.retrieve.token == RETRIEVAL:
                segment.query = _query(one.row, segment.text)
                wanting.append(segment)
                is_read = False
            elif segment.retrieve.token == CONTINUE:
                if not is_read:
                    # What the critic saw; the generator has read another passage, or none.
                    segment.passages = [copy.copy(one.passages[0])]
                is_read = True
    found = yield Retrieve([segment.query for segment in wanting])
    for segment, documents in zip(wanting, found, strict=True):
        segment.passages = documents[:passages]


def _critique(every: Sequence[Decisions]) -> _Step:
    """ISREL of each passage, and ISSUP of those that are relevant (section 3.2.2)."""
    each = [(o, s, passage) for o in every for s in o.segments for passage in s.passages]
    labels = yield Judge([CritiqueRequest("relevance", o.instance(s, p)) for o, s, p in each])
    for (_, _, passage), label in zip(each, labels, strict=True):
        passage.isrel = label
    relevant = [(o, s, p) for o, s, p in each if _is(p.isrel, RELEVANT)]
    labels = yield Judge([CritiqueRequest("groundness", o.instance(s, p)) for o, s, p in relevant])
    for (_, _, passage), label in zip(relevant, labels, strict=True):
        passage.issup = label


def _judge_segments(every: Sequence[Decisions], group: ReflectionGroup) -> _Step:
    """A registered group's token for each segment, or for each that is written from a passage."""
    each = [
        (one, segment, None if segment.chosen is None else segment.passages[segment.chosen])
        for one in every
        for segment in one.written
        if group.judges == "segment" or segment.chosen is not None
    ]
    labels = yield Judge([CritiqueRequest(group.name, o.instance(s, p)) for o, s, p in each])
    for (_, segment, _), label in zip(each, labels, strict=True):
        segment.groups[group.name] = label


def _segments(output: str, language: str) -> Iterator[OutputSegment]:
    preceding = ""
    for text in segments(output, language):
        yield OutputSegment(text, preceding)
        preceding += text


def _query(row: GeneratorRow, text: str) -> str:
    return " ".join(part.strip() for part in (row.instruction, row.input, text) if part.strip())


def _is(label: Label | None, *tokens: str) -> bool:
    return label is not None and label.token in tokens


def _tokens(*labels: Label | None) -> list[str]:
    return [label.token for label in labels if label and label.token]


def choose(passages: Sequence[Passage], random: Random) -> tuple[int | None, str]:
    """Which passage a sentence is written from, and why (A.2).

    The first, and so the one with the highest retrieval score, that is relevant and supports the
    sentence fully or in part; where there is none, any that the critic has judged.
    """
    for number, passage in enumerate(passages):
        if _is(passage.issup, FULLY_SUPPORTED, PARTIALLY_SUPPORTED):
            return number, "the best retrieved that is relevant and supports the sentence"
    judged = [
        number
        for number, passage in enumerate(passages)
        if _is(passage.isrel, IRRELEVANT) or _is(passage.issup, NO_SUPPORT)
    ]
    if judged:
        return random.choice(judged), "any, since none is relevant and supports the sentence"
    return None, "no passage could be judged" if passages else "no passage was found"


def _choose(one: Decisions, seed: int) -> None:
    """Decide which passage, if any, each segment is written from."""
    last = ""
    for number, segment in enumerate(one.segments):
        if _is(segment.retrieve, CONTINUE) and last == one.passages[0].whole:
            segment.token, segment.why = CONTINUE, "the passage before supports the sentence too"
        elif _is(segment.retrieve, NO_RETRIEVAL):
            segment.why = "the sentence needs no passage"
        else:
            random = Random(f"{seed}:{one.row.digest}:{number}")
            segment.chosen, segment.why = choose(segment.passages, random)
        if segment.chosen is not None:
            segment.token, last = RETRIEVAL, segment.passages[segment.chosen].whole


def _write(one: Decisions) -> None:
    about_answer = ((token, True) for token in _tokens(one.utility, *one.groups.values()))
    parts = [*_parts(one), *about_answer]
    texts = [one.row.instruction, one.row.input, *(t for t, is_control in parts if not is_control)]
    one.augmented = one.row._replace(
        instruction=quoted(one.row.instruction),
        input=quoted(one.row.input),
        output="".join(text if is_control else quoted(text) for text, is_control in parts),
    )
    one.look_alikes = sum(sum(map(ne, text, quoted(text))) for text in texts)


def _parts(one: Decisions) -> Iterator[tuple[str, bool]]:
    """The augmented output but for what judges all of it, and which parts are control tokens."""
    for segment in one.written:
        groups = [(token, True) for token in _tokens(*segment.groups.values())]
        text = segment.text.rstrip(" ") if one.segments else segment.text
        if segment.chosen is None:
            yield from ((segment.token, True), (text, False), *groups)
            continue
        passage = segment.passages[segment.chosen]
        yield from ((RETRIEVAL, True), (PARAGRAPH, True), (passage.whole, False))
        isrel, *issup = _tokens(passage.isrel, passage.issup)
        yield from ((END_PARAGRAPH, True), (isrel, True), (text, False))
        yield from (*((token, True) for token in issup), *groups)
