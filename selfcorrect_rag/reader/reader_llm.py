"""The reader as a ReflectionLLM: every answer stands in a passage."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.chat import SegmentRequest, segment_request
from selfcorrect_rag.prompts.instruct_rag import InferenceRequest, inference_request
from selfcorrect_rag.prompts.parts import Prompt, in_one_text
from selfcorrect_rag.prompts.refusals import REFUSAL, is_refusal
from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.reader.answers import span_text, stated
from selfcorrect_rag.reader.questions import is_readable, plain_question
from selfcorrect_rag.reader.rationale import rationale
from selfcorrect_rag.reader.reader import Need, Passage, PassageReading, Reader, Span
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
from selfcorrect_rag.thresholds import ANSWER_ABOVE

NOT_ENGLISH = "I cannot answer: I read questions in English only."
NO_DOCUMENTS = "I cannot answer this: I answer from documents alone."
FLOOR = 1e-6
"""Least probability of a token."""
SENTENCES = 3
"""Most sentences of a long answer."""


class ReaderLLM(ReflectionLLM):
    """Answers with spans of the passage in a prompt, and refuses where it is not confident.

    It writes no word that does not stand in a passage, except its refusals. Whether to retrieve is
    judged by the question alone. ISREL is the probability that the passage answers. The text's
    probability is the confidence that it is right, for a span's own says nothing of whether its
    passage answers; ISSUP and ISUSE follow from it too.
    Questions how to do something get the sentence or the line, and so do questions that yes or no
    would answer; see :func:`stated`.

    InstructRAG's inference prompts get a rationale: what each document says, and the conclusion. In
    those without its instruction, such as in-context RALM's, all documents are read as one text.
    Answers are short by themselves: ``max_tokens`` and ``stop`` cut none.
    """

    answer_above: float = Field(default=ANSWER_ABOVE, ge=0, le=1)
    """Confidence, calibrated, above which an answer is stated."""
    show_guess: bool = False
    """Whether a refusal names the best guess at its question, of all passages of a batch, and the
    confidence in it."""

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

    def is_independent(self, prune_below: float | None = None) -> bool:
        return prune_below is None and not self.show_guess

    @property
    def reader(self) -> Reader:
        """What reads."""
        return self._reader

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        requests = [_request(prompt) for prompt in prompts]
        if options.get("choose") == Group.RETRIEVE:
            return _decisions(self._reader.needs_evidence([_question(r) for r in requests]))
        readings = iter(self._reader.read([asked for r in requests for asked in _asked(r)]))
        return self._written(requests, readings, **options)

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        requests = [_request(prompt) for prompt in prompts]
        if options.get("choose") == Group.RETRIEVE:
            return _decisions(await self._reader.aneeds_evidence([_question(r) for r in requests]))
        readings = iter(await self._reader.aread([asked for r in requests for asked in _asked(r)]))
        return self._written(requests, readings, **options)

    def _written(
        self,
        requests: Sequence[SegmentRequest | InferenceRequest],
        readings: Iterator[PassageReading],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        critique: bool = False,
        **sampling: Any,
    ) -> list[Segment]:
        given = [[next(readings) for _ in _asked(request)] for request in requests]
        best = max((reading.relevant for found in given for reading in found), default=0.0)
        refusals = self._refusals_with_guesses(requests, given) if self.show_guess else {}
        segments = []
        for request, found in zip(requests, given, strict=True):
            reading = found[0] if found else None
            if choose is not None:
                segments.append(_choice(choose, reading))
            elif reading is None:
                text = NO_DOCUMENTS if is_readable(_question(request)) else NOT_ENGLISH
                segments.append(_segment(text, [], None, 1.0, 0))
            elif isinstance(request, InferenceRequest):
                refusal = refusals.get(request.question, REFUSAL)
                segments.append(self._rationale(request, found, refusal))
            elif prune_below is not None and reading.relevant < min(prune_below, best):
                segments.append(
                    _segment("", [_isrel(reading.relevant)], "pruned", 1.0, reading.tokens)
                )
            else:
                refusal = refusals.get(_question(request), REFUSAL)
                sentence = self.sentences and stop_at_retrieval
                segments.append(self._answer(request, reading, refusal, sentence=sentence))
        return segments

    def _refusals_with_guesses(
        self,
        requests: Sequence[SegmentRequest | InferenceRequest],
        given: Sequence[Sequence[PassageReading]],
    ) -> dict[str, str]:
        """A refusal for each question, with the most confident of the spans that are no answers."""
        guesses: dict[str, Span] = {}
        for request, found in zip(requests, given, strict=True):
            question = _question(request)
            for span in (span for reading in found for span in reading.spans[:1]):
                known = guesses.get(question)
                is_better = known is None or span.confidence > known.confidence
                if is_better and span.confidence <= self.answer_above:
                    guesses[question] = span
        return {question: _with_guess(span) for question, span in guesses.items()}

    def _rationale(
        self, request: InferenceRequest, readings: Sequence[PassageReading], refusal: str
    ) -> Segment:
        documents = [passage for _, passage in _asked(request)]
        if request.instructed:
            text, probability = rationale(
                request.question, documents, readings, self.answer_above, refusal
            )
        else:
            (document,), (reading,) = documents, readings
            text, sure = self._stated(request.question, document, reading.spans)
            probability = sure if text else 1 - sure
        return _segment(
            text or refusal, [], None, probability, sum(each.tokens for each in readings)
        )

    def _stated(self, question: str, passage: Passage, spans: Sequence[Span]) -> tuple[str, float]:
        """What a passage states, or nothing, and the confidence in it."""
        if not spans:
            return "", 0.0
        text, sure = stated(question, passage.text, spans, self.answer_above)
        return (text if sure > self.answer_above else ""), sure

    def _answer(
        self, request: SegmentRequest, reading: PassageReading, refusal: str, *, sentence: bool
    ) -> Segment:
        """The best span that was not written before, or ``refusal``, or nothing where the answer
        has begun."""
        ((question, passage),) = _asked(request)
        written = request.instance.preceding_sentences
        refusal = "" if written else refusal
        for number in range(len(reading.spans)):
            spans = reading.spans[number:]
            text, sure = stated(question, passage.text, spans, self.answer_above, sentence=sentence)
            if text and text not in written:
                break
        else:
            return _refusal(refusal, reading, 0.0)
        if sure <= self.answer_above:
            return _refusal(refusal, reading, sure)
        reflections = [
            _isrel(reading.relevant),
            _reflection(
                Group.ISSUP,
                {
                    FULLY_SUPPORTED: sure,
                    PARTIALLY_SUPPORTED: (1 - sure) / 2,
                    NO_SUPPORT: (1 - sure) / 2,
                },
            ),
            _isuse(sure),
        ]
        segment = _segment(text, reflections, None, sure, reading.tokens)
        if sentence and len(sentences(written)) + 1 < SENTENCES:
            going_on = _reflection(Group.RETRIEVE, {RETRIEVAL: 0.9, NO_RETRIEVAL: 0.1})
            going_on["position"] = segment["tokens"]
            segment["next"] = going_on
            segment["finish_reason"] = "retrieval"
        return segment


def _refusal(text: str, reading: PassageReading, sure: float) -> Segment:
    """The refusal of a passage whose best span is an answer with the confidence ``sure``."""
    reflections = [_isrel(reading.relevant), _isuse(0.0)]
    return _segment(text, reflections, None, 1 - sure, reading.tokens)


def _with_guess(guess: Span) -> str:
    """A refusal that names the guess, unless it would then read as an answer and be cited."""
    told = f"(best guess, with a probability of {guess.confidence:.2f}: {span_text(guess)})"
    text = f"{REFUSAL.removesuffix('.')} {told}."
    return text if is_refusal(text) else REFUSAL


def _request(prompt: Prompt) -> SegmentRequest | InferenceRequest:
    return inference_request(prompt) or segment_request(prompt)


def _question(request: SegmentRequest | InferenceRequest) -> str:
    if isinstance(request, InferenceRequest):
        return request.question
    return plain_question(request.instance.instruction)


def _asked(request: SegmentRequest | InferenceRequest) -> list[tuple[str, Passage]]:
    """What to read for the question: nothing if the reader does not understand it."""
    question = _question(request)
    if not is_readable(question):
        return []
    if isinstance(request, InferenceRequest) and not request.instructed:
        whole = in_one_text(request.documents)
        return [(question, Passage("", whole))] if whole else []
    if isinstance(request, InferenceRequest):
        return [(question, Passage(*document)) for document in request.documents]
    title, evidence = request.title, request.instance.evidence
    text = evidence[len(title) + 1 :] if title else evidence  # behind a title comes a line break
    return [(question, Passage(title, text))] if evidence.strip() else []


def _decisions(needs: Sequence[Need]) -> list[Segment]:
    """A choice of the Retrieve group for each question."""
    segments = []
    for needed, tokens in needs:
        chosen = _reflection(Group.RETRIEVE, {RETRIEVAL: needed, NO_RETRIEVAL: 1 - needed})
        segments.append(_segment("", [chosen], None, 1.0, tokens))
    return segments


def _choice(group: str, reading: PassageReading | None) -> Segment:
    """The reflection of ISREL without text; none of a group that judges a text, for nothing reads
    a text that was written elsewhere."""
    judged = [_isrel(reading.relevant if reading else 0.0)] if group == Group.ISREL else []
    return _segment("", judged, None, 1.0, reading.tokens if reading else 0)


def _isrel(relevant: float) -> Reflection:
    return _reflection(Group.ISREL, {RELEVANT: relevant, IRRELEVANT: 1 - relevant})


def _isuse(sure: float) -> Reflection:
    """All of it between the ends of the scale: nothing tells 2 from 4."""
    return _reflection(Group.ISUSE, {UTILITY[-1]: sure, UTILITY[0]: 1 - sure})


def _reflection(group: str, given: Mapping[str, float]) -> Reflection:
    logprobs = {token: math.log(max(given.get(token, 0.0), FLOOR)) for token in TOKENS[group]}
    token = max(logprobs, key=lambda token: logprobs[token])
    return Reflection(group=group, position=0, token=token, logprobs=logprobs)


def _segment(
    text: str,
    reflections: list[Reflection],
    reason: str | None,
    probability: float,
    prompt_tokens: int,
) -> Segment:
    """A segment of this text behind its first reflection, and before the others."""
    control = [Piece(kind="control", text=r["token"]) for r in reflections]
    words = [Piece(kind="text", text=text)] if text else []
    length = len(text.split())
    for i, reflection in enumerate(reflections):
        reflection["position"] = i and length + i
    tokens = length + len(reflections)
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
