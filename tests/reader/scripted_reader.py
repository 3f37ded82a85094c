"""A reader whose findings are written down, for exact cases without weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfcorrect_rag.prompts.reading import sentence_place
from selfcorrect_rag.reader.reader import Passage, PassageReading, Span
from selfcorrect_rag.reader.reader_llm import ReaderLLM

Findings = Mapping[str, float]
"""Confidence by answer; those that stand in a passage are its spans."""
Read = Callable[[str, Passage], PassageReading]


def reading(text: str, findings: Findings, relevant: float | None = None) -> PassageReading:
    """Return the reading of a reader that knows these answers."""
    spans = [
        Span(
            answer,
            text.index(answer),
            probability=sure,
            confidence=sure,
            sentence=sentence_place(text, text.index(answer), text.index(answer) + len(answer)),
            sentence_confidence=sure,
        )
        for answer, sure in findings.items()
        if answer in text
    ]
    spans.sort(key=lambda span: -span.confidence)
    best = max((span.confidence for span in spans), default=0.01)
    return PassageReading(best if relevant is None else relevant, tuple(spans), len(text.split()))


class ScriptedReader:
    """Finds given answers in passages, and remembers what it was asked."""

    identity = "scripted reader"

    def __init__(self, findings: Findings | Read) -> None:
        self._findings = findings
        self.calls: list[list[tuple[str, Passage]]] = []

    def read(self, asked: Sequence[tuple[str, Passage]]) -> list[PassageReading]:
        self.calls.append(list(asked))
        return [self._reading(question, passage) for question, passage in asked]

    def needs_evidence(self, questions: Sequence[str]) -> list[tuple[float, int]]:
        """It does for what ends in a question mark; a word is a token."""
        return [(0.9 if q.endswith("?") else 0.1, len(q.split())) for q in questions]

    def _reading(self, question: str, passage: Passage) -> PassageReading:
        if callable(self._findings):
            return self._findings(question, passage)
        return reading(passage.text, self._findings)


def reader_llm(findings: Findings | Read, **fields: Any) -> tuple[ReaderLLM, ScriptedReader]:
    """A ReaderLLM over a scripted reader, and that reader."""
    scripted: Any = ScriptedReader(findings)
    return ReaderLLM(scripted, **fields), scripted
