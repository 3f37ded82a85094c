"""Passages and questions that look alike and do not answer: near misses, namesakes, pages without
the fact."""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import bm25s

from reader_training.rows import QUESTIONS, Row, mentions

RETRIEVED, KEPT = 12, 8
"""Passages retrieved for a question; at most so many of them that do not state its answer."""
SHORT_ANSWER = 6
"""Words up to which the rest of a page does not answer once the answer's sentences are left out."""
MIN_WORDS = 8
"""Fewest words of such a rest."""
CONTRASTS = (QUESTIONS / "contrasts.txt").read_text(encoding="utf-8").splitlines()
"""Lines of words of which none can stand for another."""
_OTHERS = {word: line.split() for line in CONTRASTS for word in line.split()}


def sentences(text: str) -> list[str]:
    """Split a text into sentences or lines."""
    return [part for part in re.split(r"(?<=[.!?]) +|\n+", text) if part.strip()]


def drop_answer(row: Row) -> Row | None:
    """Return the row without the sentences that state an answer; None if the rest is short, or may
    answer in other words."""
    if min(len(answer.split()) for answer in row.answers) > SHORT_ANSWER:
        return None
    every = sentences(row.passage)
    rest = " ".join(s for s in every if not any(mentions(a, s) for a in row.answers))
    return _unanswered(row, passage=rest) if len(rest.split()) >= MIN_WORDS else None


def near_miss(row: Row, names: Sequence[str], chance: random.Random) -> Row | None:
    """Return the row with a question about something near by, of which the passage says nothing:
    another number, season, role or direction, or one of ``names`` in place of the title."""
    words = row.question.split()
    passage = {*re.findall(r"\w+", f"{row.title} {row.passage}".lower())}
    found = []
    for i, word in enumerate(words):
        bare = re.sub(r"\W+$", "", word)
        others = _OTHERS.get(bare.lower(), [])
        if bare.isdigit():
            others = [str(int(bare) + step) for step in (-2, -1, 1, 2, 3, 10) if int(bare) > 2]
        found += [(i, bare, other) for other in others if other not in passage]
    if found:
        i, bare, other = chance.choice(found)
        swapped = other.capitalize() if bare[0].isupper() else other
        words[i] = swapped + words[i][len(bare) :]
        return _unanswered(row, question=" ".join(words))
    title = re.sub(r" *\(.*", "", row.title)
    if len(title) > 3 and names and (places := mentions(title, row.question)):
        begin, stop = places[0]
        name = chance.choice(names)
        if not mentions(name, f"{row.title} {row.passage}"):
            question = f"{row.question[:begin]}{name}{row.question[stop:]}"
            return _unanswered(row, question=question)
    return None


def _unanswered(row: Row, **changed: str) -> Row:
    return row._replace(answers=(), source=f"{row.source}, near", **changed)


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
    """For answerable rows, rows like them that are not answered."""

    def __init__(self, rows: Sequence[Row], further: Sequence[tuple[str, str]]) -> None:
        """Index the passages of the rows, and further ones: pairs of title and text."""
        self._index = Passages([*((row.title, row.passage) for row in rows), *further])
        self._names = sorted({re.sub(r" *\(.*", "", title) for title, _ in further})
        self._by_word: dict[str, list[int]] = defaultdict(list)
        for i, (title, _) in enumerate(self._index.passages):
            for word in _title_words(title):
                self._by_word[word].append(i)

    def find(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return for each of these rows the retrieved passages that do not state its answer."""
        found = self._index.retrieve([row.question for row in rows], RETRIEVED)
        return [list(self._wrong(row, some))[:KEPT] for row, some in zip(rows, found, strict=True)]

    def draw(self, row: Row, retrieved: Sequence[Row], chance: random.Random) -> Row | None:
        """Return a row without an answer: a namesake's page, the page without the fact, a near
        miss, or, mostly and if there is none of these, one of ``retrieved``."""
        kind, found = chance.random(), None
        if kind < 0.2:
            found = drop_answer(row)
        elif kind < 0.45:
            found = near_miss(row, self._names, chance)
        elif kind < 0.6:
            found = self._namesake(row, chance)
        return found or (chance.choice(retrieved) if retrieved else None)

    def _namesake(self, row: Row, chance: random.Random) -> Row | None:
        words = [w for w in sorted(_title_words(row.title)) if 1 < len(self._by_word[w]) < 200]
        if not words:
            return None
        some = self._by_word[chance.choice(words)]
        passages = [self._index.passages[i] for i in chance.sample(some, min(4, len(some)))]
        wrong = self._wrong(row, [each for each in passages if each[0] != row.title])
        return next(wrong, None)

    def _wrong(self, row: Row, passages: Sequence[tuple[str, str]]) -> Iterator[Row]:
        answers = [answer.lower() for answer in row.answers]
        for title, text in passages:
            if not any(answer in text.lower() for answer in answers):
                yield Row(row.question, title, text, (), f"{row.source}, retrieved")


def _title_words(title: str) -> set[str]:
    return {word for word in re.findall(r"\w+", title.lower()) if len(word) > 3}
