"""Passages that were retrieved for a question and do not answer it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s

from nano_training.reader.rows import DATA, Row, tidy

POLICIES = "policyqa"
RETRIEVED = 12
"""Passages retrieved for a question; what does not state its answer is a negative."""


class Negatives:
    """For each answerable row, the passages most like its question that do not state its answer."""

    def __init__(self, rows: Sequence[Row], further: Sequence[tuple[str, str]]) -> None:
        """Index the passages of the rows, and further ones: pairs of title and text."""
        passages = dict.fromkeys([(row.title, row.passage) for row in rows])
        passages.update(dict.fromkeys(further))
        self.passages = list(passages)
        # Websites' policies answer each other's questions.
        self._policies = {(r.title, r.passage) for r in rows if r.source == POLICIES}
        self._lower = [text.lower() for _, text in self.passages]
        self._index = bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self.passages]
        self._index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def of(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows without an answer for each of these rows, most alike first."""
        tokens = bm25s.tokenize([row.question for row in rows], show_progress=False)
        found, _ = self._index.retrieve(tokens, k=RETRIEVED, show_progress=False)
        return [list(self._wrong(row, places)) for row, places in zip(rows, found, strict=True)]

    def _wrong(self, row: Row, places: Sequence[int]) -> Iterator[Row]:
        answers = [answer.lower() for answer in row.answers]
        for place in places:
            title, text = self.passages[place]
            if row.source == POLICIES and (title, text) in self._policies:
                continue
            if not any(answer in self._lower[place] for answer in answers):
                yield Row(row.question, title, text, (), f"{row.source}, retrieved")


def encyclopedia(data: Path = DATA) -> list[tuple[str, str]]:
    """Further passages, of Wikipedia: title and text."""
    pages = json.loads((data / "2wikimultihopqa_corpus_6119.json").read_text())
    return [(page["title"], tidy(page["text"])) for page in pages]
