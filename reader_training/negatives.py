"""Passages that were retrieved for a question and do not answer it."""

from collections.abc import Iterator, Sequence

import bm25s

from reader_training.rows import Row

POLICIES = "policyqa"
RETRIEVED = 12
"""Passages retrieved for a question; those that do not state its answer are negatives."""


class Passages:
    """Passages, as pairs of title and text, that BM25 retrieves."""

    def __init__(self, passages: Sequence[tuple[str, str]]) -> None:
        self.passages = list(dict.fromkeys(passages))
        self._index = bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self.passages]
        self._index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def retrieve(self, questions: Sequence[str], count: int) -> list[list[tuple[str, str]]]:
        """Return the ``count`` best passages of each question."""
        tokens = bm25s.tokenize(list(questions), show_progress=False)
        found, _ = self._index.retrieve(tokens, k=count, show_progress=False)
        return [[self.passages[i] for i in places] for places in found]


class Negatives:
    """For each answerable row, the passages most like its question that do not state its answer."""

    def __init__(self, rows: Sequence[Row], further: Sequence[tuple[str, str]]) -> None:
        """Index the passages of the rows, and further ones: pairs of title and text."""
        self._index = Passages([*((row.title, row.passage) for row in rows), *further])
        # Websites' policies answer each other's questions.
        self._policies = {(r.title, r.passage) for r in rows if r.source == POLICIES}

    def find(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return rows without an answer for each of these rows, most alike first."""
        found = self._index.retrieve([row.question for row in rows], RETRIEVED)
        return [list(self._wrong(row, some)) for row, some in zip(rows, found, strict=True)]

    def _wrong(self, row: Row, passages: Sequence[tuple[str, str]]) -> Iterator[Row]:
        answers = [answer.lower() for answer in row.answers]
        for title, text in passages:
            if row.source == POLICIES and (title, text) in self._policies:
                continue
            if not any(answer in text.lower() for answer in answers):
                yield Row(row.question, title, text, (), f"{row.source}, retrieved")
