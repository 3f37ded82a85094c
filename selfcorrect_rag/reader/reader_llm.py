"""The reader as a ReflectionLLM, whose answers all stand in a passage, and as CRAG's evaluator."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from langchain_core.runnables.config import run_in_executor
from pydantic import Field, PrivateAttr

from selfcorrect_rag import reflection as tokens
from selfcorrect_rag.intake import MAX_TITLE
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, with_blanks
from selfcorrect_rag.prompts.chat import segment_request
from selfcorrect_rag.prompts.instruct_rag import inference_request
from selfcorrect_rag.prompts.parts import Prompt, in_one_text
from selfcorrect_rag.prompts.reading import NO_DOCUMENTS, NOT_ENGLISH, REFUSAL
from selfcorrect_rag.reader.answers import is_readable, state_answer, write_rationale
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader
from selfcorrect_rag.reflection import Group, Reflection
from selfcorrect_rag.state import Piece, Segment
from selfcorrect_rag.thresholds import ANSWER_ABOVE, Thresholds

SEPARATOR = " // "
"""Between the title and the text of a passage, as evaluators get it."""
INPUT = "## Input:\n\n"
"""Self-RAG's mark between a task's instruction and the question."""
FLOOR = 1e-6
"""Least probability of a token."""


class ReaderLLM(ReflectionLLM):
    """Answers with spans of the passage in a prompt, and refuses if it is not confident.

    Whether to retrieve is judged by the question alone. ISREL is the probability that the passage
    answers. The text's probability is the confidence that it is right, because a span's own says
    nothing of whether its passage answers; ISSUP and ISUSE follow from it too.

    InstructRAG's inference prompts get a rationale: what each document says, and the answer. In
    those without its instruction, such as in-context RALM's, all documents are read as one text.
    Answers are short by themselves: ``max_tokens`` and ``stop`` cut none.
    """

    answer_above: float = Field(default=ANSWER_ABOVE, ge=0, le=1)
    """Confidence, calibrated, above which an answer is stated."""

    _reader: Reader = PrivateAttr()

    def __init__(self, reader: Reader, **fields: Any) -> None:
        """Answer with ``reader``; ``fields`` are the fields of this class."""
        super().__init__(**fields)
        self._reader = reader

    @classmethod
    def load(cls, folder: str | Path = SHIPPED, **fields: Any) -> Self:
        """Load the reader in ``folder``, by default the shipped one; errors as `Reader.load`."""
        return cls(Reader.load(folder), **fields)

    @property
    def reader(self) -> Reader:
        """The reader that answers."""
        return self._reader

    @property
    def _llm_type(self) -> str:
        return "reader"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"reader": self._reader.identity}

    @property
    def reads_apart(self) -> bool:
        return True

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        requests = [_parse(prompt) for prompt in prompts]
        if options.get("choose") == Group.RETRIEVE:
            needs = self._reader.needs_evidence([request.question for request in requests])
            chosen = [({tokens.RETRIEVAL: p, tokens.NO_RETRIEVAL: 1 - p}, n) for p, n in needs]
            return [_segment("", [_reflect(Group.RETRIEVE, p)], 1.0, n) for p, n in chosen]
        readings = self._reader.read([(r.question, p) for r in requests for p in r.passages])
        return self._write(requests, iter(readings), **options)

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return await run_in_executor(None, self._segments, prompts, **options)

    def _write(
        self,
        requests: Sequence["_Request"],
        readings: Iterator[PassageReading],
        *,
        choose: str | None = None,
        prune_below: float | None = None,
        **ignored: Any,
    ) -> list[Segment]:
        """Write the segment of each request, from the readings of all their passages."""
        given = [[next(readings) for _ in request.passages] for request in requests]
        best = max((reading.relevant for some in given for reading in some), default=0.0)
        segments = []
        for request, some in zip(requests, given, strict=True):
            read = sum(reading.tokens for reading in some)
            if choose is not None:  # nothing judges a text that was written elsewhere
                relevant = some[0].relevant if some else 0.0
                judged = [_judge_relevance(relevant)] if choose == Group.ISREL else []
                segments.append(_segment("", judged, 1.0, read))
            elif not some:
                text = NO_DOCUMENTS if is_readable(request.question) else NOT_ENGLISH
                segments.append(_segment(text, [], 1.0, 0))
            elif request.is_rationale:
                answer = write_rationale(
                    request.question, request.passages, some, self.answer_above, REFUSAL
                )
                segments.append(_segment(answer.text, [], answer.confidence, read))
            elif prune_below is not None and some[0].relevant < min(prune_below, best):
                segment = _segment("", [_judge_relevance(some[0].relevant)], 1.0, read)
                segments.append({**segment, "finish_reason": "pruned"})
            else:
                segments.append(self._answer(request, some[0]))
        return segments

    def _answer(self, request: "_Request", reading: PassageReading) -> Segment:
        text, sure, above = "", 0.0, self.answer_above
        asked = request.question, request.passages[0].text
        for i in range(len(reading.spans)):
            text, sure = state_answer(*asked, reading.spans[i:], above)
            if text:
                break
        judged = [_judge_relevance(reading.relevant)]
        if text and sure > above:
            support = {tokens.FULLY_SUPPORTED: sure}
            support |= dict.fromkeys(
                (tokens.PARTIALLY_SUPPORTED, tokens.NO_SUPPORT), (1 - sure) / 2
            )
            judged.append(_reflect(Group.ISSUP, support))
            useful = sure
        else:
            text, sure, useful = REFUSAL, 1 - sure, 0.0
        # Only the ends of the scale have a probability: nothing tells 2 from 4.
        utility = {tokens.UTILITY[-1]: useful, tokens.UTILITY[0]: 1 - useful}
        judged.append(_reflect(Group.ISUSE, utility))
        return _segment(text, judged if request.is_critical else [], sure, reading.tokens)


class ReaderEvaluator(RetrievalEvaluator):
    """Grades by the probability that a passage answers the question, from -1 to 1."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.thresholds = Thresholds(*reader.calibration.thresholds)

    @property
    def identity(self) -> str:
        return f"reader evaluator {self.reader.identity}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        asked = [(question, _split_title(text)) for text in passages if text.strip()]
        return with_blanks(passages, (2 * each.relevant - 1 for each in self.reader.read(asked)))


def _split_title(text: str) -> Passage:
    """Return a passage as evaluators get it, "title // text", with its title apart."""
    title, found, rest = text.partition(SEPARATOR)
    is_titled = found and len(title) <= MAX_TITLE and "\n" not in title
    return Passage(title, rest) if is_titled else Passage("", text)


class _Request(NamedTuple):
    """The question and the passages of a prompt."""

    question: str
    passages: list[Passage]
    """Passages to read; empty if the reader does not understand the question."""
    is_rationale: bool = False
    is_critical: bool = True
    """Whether it is a prompt of Self-RAG, whose answers come with reflection tokens."""


def _parse(prompt: Prompt) -> _Request:
    if inference := inference_request(prompt):
        passages = [Passage(*document) for document in inference.documents]
        if not inference.instructed:
            passages = [Passage("", in_one_text(inference.documents))] if passages else []
        request = _Request(inference.question, passages, inference.instructed, False)
    else:
        instance, _, title = segment_request(prompt)
        # Behind a title comes a line break.
        text = instance.evidence[len(title) + 1 :] if title else instance.evidence
        passages = [Passage(title, text)] if instance.evidence.strip() else []
        question = instance.instruction.rpartition(INPUT)[2].strip()
        request = _Request(question, passages)
    return request if is_readable(request.question) else request._replace(passages=[])


def _judge_relevance(relevant: float) -> Reflection:
    return _reflect(Group.ISREL, {tokens.RELEVANT: relevant, tokens.IRRELEVANT: 1 - relevant})


def _reflect(group: str, given: Mapping[str, float]) -> Reflection:
    logprobs = {t: math.log(max(given.get(t, 0.0), FLOOR)) for t in tokens.TOKENS[group]}
    token = max(logprobs, key=lambda token: logprobs[token])
    return Reflection(group=group, position=0, token=token, logprobs=logprobs)


def _segment(text: str, judged: list[Reflection], probability: float, read: int) -> Segment:
    """Make a segment with its text behind the first reflection and before the others."""
    length = len(text.split())
    for i, reflection in enumerate(judged):
        reflection["position"] = i and length + i
    control = [Piece(kind="control", text=reflection["token"]) for reflection in judged]
    words = [Piece(kind="text", text=text)] if text else []
    written = length + len(judged)
    return Segment(
        text=text,
        pieces=[*control[:1], *words, *control[1:]],
        reflections=judged,
        next=None,
        finish_reason="end",
        tokens=written,
        logprob=written * math.log(max(probability, FLOOR)),
        prompt_tokens=read,
        shortened=0,
        requests=0,
    )
