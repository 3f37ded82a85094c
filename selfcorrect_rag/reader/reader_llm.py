"""The reader as a ReflectionLLM: every answer stands in a passage."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.chat import SegmentRequest, segment_request
from selfcorrect_rag.prompts.parts import Prompt
from selfcorrect_rag.reader.questions import (
    is_how_to,
    is_readable,
    is_yes_no,
    plain_question,
    sentence_at,
)
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader, Span
from selfcorrect_rag.reader.weights import SHIPPED
from selfcorrect_rag.reflection import (
    FULLY_SUPPORTED,
    IRRELEVANT,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    RETRIEVAL,
    TOKENS,
    UTILITY,
    Group,
    Reflection,
)
from selfcorrect_rag.state.self_rag import Piece, Segment

REFUSAL = "The documents do not say."
NOT_ENGLISH = "I cannot answer: I read questions in English only."
NO_DOCUMENTS = "I cannot answer this without documents."
ANSWER_ABOVE = 0.4
"""Confidence above which an answer is stated."""
FLOOR = 1e-6
"""Least probability of a token."""
SENTENCES = 3
"""Most sentences of a long answer."""


class ReaderLLM(ReflectionLLM):
    """Answers with spans of the passage in a prompt, and refuses where it is not confident.

    It writes no word that does not stand in a passage, except its refusals. ISREL is the
    probability that the passage answers; the text's probability is the span's; ISSUP and ISUSE
    follow from the confidence that the span is right. Questions how to do something get the
    sentence or the line, and so do questions that yes or no would answer.
    """

    answer_above: float = Field(default=ANSWER_ABOVE, ge=0, le=1)
    """Confidence, calibrated, above which an answer is stated."""
    show_guess: bool = False
    """Whether a refusal names the best guess and its confidence."""

    sentences: bool = False
    """Whether a segment is one sentence, after which further evidence is retrieved for another, in
    long form; no segment repeats one before it. By default the whole answer is one segment."""

    _reader: Reader = PrivateAttr()

    def __init__(self, reader: Reader, **fields: Any) -> None:
        """Answer with ``reader``; ``fields`` are the fields of this class."""
        super().__init__(**fields)
        self._reader = reader

    @classmethod
    def load(cls, folder: Path = SHIPPED, **fields: Any) -> Self:
        """With the reader in ``folder``; by default the shipped one.

        Raises:
            ModelNotFound: there is none.
        """
        return cls(Reader.load(folder), **fields)

    @property
    def _llm_type(self) -> str:
        return "reader"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"reader": self._reader.identity}

    @property
    def reads_apart(self) -> bool:
        return True

    @property
    def reader(self) -> Reader:
        """What reads."""
        return self._reader

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        requests = [segment_request(prompt) for prompt in prompts]
        readings = iter(self._reader.read([_asked(r) for r in requests if _reads(r)]))
        return self._written(requests, readings, **options)

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        requests = [segment_request(prompt) for prompt in prompts]
        readings = iter(await self._reader.aread([_asked(r) for r in requests if _reads(r)]))
        return self._written(requests, readings, **options)

    def _written(
        self,
        requests: Sequence[SegmentRequest],
        readings: Any,
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        critique: bool = False,
        **sampling: Any,
    ) -> list[Segment]:
        given = [next(readings) if _reads(request) else None for request in requests]
        best = max((reading.relevant for reading in given if reading), default=0.0)
        segments = []
        for request, reading in zip(requests, given, strict=True):
            if choose is not None:
                segments.append(_choice(choose, request, reading))
            elif reading is None:
                text = NO_DOCUMENTS if is_readable(_question(request)) else NOT_ENGLISH
                segments.append(_segment(text, [], None, 1.0, 0))
            elif prune_below is not None and reading.relevant < min(prune_below, best):
                segments.append(
                    _segment("", [_isrel(reading.relevant)], "pruned", 1.0, reading.tokens)
                )
            else:
                segments.append(
                    self._answer(request, reading, self.sentences and stop_at_retrieval)
                )
        return segments

    def _answer(self, request: SegmentRequest, reading: PassageReading, sentence: bool) -> Segment:
        """The best span that was not written before, or a refusal."""
        question, passage = _asked(request)
        written = request.instance.preceding_sentences
        whole = sentence or is_how_to(question) or is_yes_no(question)
        for span in reading.spans:
            text = _shaped(passage.text, span, whole=whole)
            if text and text not in written:
                break
        else:
            return self._refusal(reading, None, again=bool(written))
        if span.confidence < self.answer_above:
            return self._refusal(reading, span, again=bool(written))
        sure = span.confidence
        reflections = [
            _isrel(reading.relevant),
            _reflection(
                Group.ISSUP,
                {
                    FULLY_SUPPORTED: sure,
                    PARTIALLY_SUPPORTED: (1 - sure) / 2,
                    NO_SUPPORT: (1 - sure) / 2,
                },
                position=1,
            ),
            _isuse(sure),
        ]
        segment = _segment(text, reflections, None, span.probability, reading.tokens)
        if sentence and written.count(". ") + 1 < SENTENCES:
            segment["next"] = _reflection(Group.RETRIEVE, {RETRIEVAL: 0.9, NO_RETRIEVAL: 0.1}, 1)
            segment["finish_reason"] = "retrieval"
        return segment

    def _refusal(self, reading: PassageReading, guess: Span | None, *, again: bool) -> Segment:
        """A refusal, or nothing where the answer has begun."""
        text = "" if again else REFUSAL
        if text and self.show_guess and guess is not None:
            text += f" Best guess, with a probability of {guess.confidence:.2f}: {guess.text}"
        sure = guess.confidence if guess else 0.0
        reflections = [_isrel(reading.relevant), _isuse(0.0)]
        return _segment(text, reflections, None, 1 - sure, reading.tokens)


def _question(request: SegmentRequest) -> str:
    return plain_question(request.instance.instruction)


def _reads(request: SegmentRequest) -> bool:
    """Whether there is a passage, and a question that the reader understands."""
    return bool(request.instance.evidence.strip()) and is_readable(_question(request))


def _asked(request: SegmentRequest) -> tuple[str, Passage]:
    """Question and passage; behind a title comes a line break."""
    title, evidence = request.title, request.instance.evidence
    return _question(request), Passage(title, evidence[len(title) + 1 :] if title else evidence)


def _shaped(text: str, span: Span, *, whole: bool) -> str:
    if whole:
        return sentence_at(text, span.start, span.start + len(span.text))
    return " ".join(span.text.split()).strip(" ,;:")


def _choice(group: str, request: SegmentRequest, reading: PassageReading | None) -> Segment:
    """One reflection of a group, without text."""
    if group == Group.RETRIEVE:
        reflection = _reflection(group, {RETRIEVAL: 1 - FLOOR, NO_RETRIEVAL: FLOOR}, 0)
    elif group == Group.ISREL:
        reflection = _isrel(reading.relevant if reading else 0.0)
    elif group == Group.ISUSE:
        reflection = _isuse(reading.relevant if reading else 0.0)
    else:
        sure = reading.relevant if reading else 0.0
        given = {FULLY_SUPPORTED: sure, NO_SUPPORT: 1 - sure}
        reflection = _reflection(group, given, 0)
    return _segment("", [reflection], None, 1.0, reading.tokens if reading else 0)


def _isrel(relevant: float) -> Reflection:
    return _reflection(Group.ISREL, {RELEVANT: relevant, IRRELEVANT: 1 - relevant}, 0)


def _isuse(sure: float) -> Reflection:
    """All of it between the ends of the scale: nothing tells 2 from 4."""
    return _reflection(Group.ISUSE, {UTILITY[-1]: sure, UTILITY[0]: 1 - sure}, 1)


def _reflection(group: str, given: Mapping[str, float], position: int) -> Reflection:
    logprobs = {token: math.log(max(given.get(token, 0.0), FLOOR)) for token in TOKENS[group]}
    token = max(logprobs, key=lambda token: logprobs[token])
    return Reflection(group=group, position=position, token=token, logprobs=logprobs)


def _segment(
    text: str,
    reflections: list[Reflection],
    reason: str | None,
    probability: float,
    prompt_tokens: int,
) -> Segment:
    control = [Piece(kind="control", text=r["token"]) for r in reflections]
    words = [Piece(kind="text", text=text)] if text else []
    tokens = len(text.split()) + len(reflections)
    return Segment(
        text=text,
        pieces=[*control[:1], *words, *control[1:]],
        reflections=reflections,
        next=None,
        finish_reason=reason or "end",  # type: ignore[typeddict-item]
        tokens=tokens,
        logprob=tokens * math.log(max(probability, FLOOR)),
        prompt_tokens=prompt_tokens,
        shortened=0,
        requests=0,
    )
