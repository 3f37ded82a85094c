"""Knowledge refinement as pure text: cut documents into strips, join the kept ones (CRAG 4.4)."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from langchain_core.documents import Document

from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.state import Strip

Decomposition = Literal["sentences", "windows", "passage"]
SENTENCES = 3
"""Sentences per strip: "a few" (appendix B.2)."""
WINDOW_WORDS, SHORTEST_TAIL = 50, 10
"""The official code's fixed windows: words per window, and fewest words of the last one."""
SHORTEST_SENTENCE = 5
"""Sentences of up to this many words join their neighbour: a heading, an initial, "No."."""


def decompose(text: str, how: Decomposition = "sentences") -> list[str]:
    """Return the strips of a document, in its order.

    ``sentences``: groups of three (the last may have two to four); a text of one or two sentences
    is one strip. A paragraph ends with a sentence, and keeps its line. ``windows``: fifty words
    each. ``passage``: the whole.
    """
    words = text.split()
    if not words:
        return []
    if how == "passage":
        return [" ".join(words)]
    if how == "windows":
        starts = list(range(0, len(words), WINDOW_WORDS))
        if len(starts) > 1 and len(words) - starts[-1] < SHORTEST_TAIL:
            starts.pop()
        return [" ".join(words[start:end]) for start, end in pairwise([*starts, len(words)])]
    found = _join_short(_sentences(text))
    groups = [found[i : i + SENTENCES] for i in range(0, len(found), SENTENCES)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        last = groups.pop()
        groups[-1] += last
    return ["".join(group).strip() for group in groups]


def _sentences(text: str) -> Iterator[str]:
    """Yield sentences, each with the space behind it: a line break at the end of a paragraph."""
    for paragraph in text.split("\n\n"):
        *some, last = ["", *sentences(" ".join(paragraph.split()))]
        yield from (f"{sentence} " for sentence in some if sentence)
        if last:
            yield f"{last}\n"


def _join_short(found: Iterator[str]) -> list[str]:
    """Join very short sentences to the previous one, at the beginning to the next one."""
    groups: list[list[str]] = []
    words = 0  # of the last group
    for sentence in found:
        count = len(sentence.split())
        is_opening = len(groups) == 1 and words <= SHORTEST_SENTENCE
        if groups and (count <= SHORTEST_SENTENCE or is_opening):
            groups[-1].append(sentence)
            words += count
        else:
            groups.append([sentence])
            words = count
    return ["".join(group) for group in groups]


def keep(strips: Sequence[Strip], above: float, most: int) -> list[Strip]:
    """Return the strips with ``kept`` set on the best ``most`` of those that score above ``above``.

    Ties go to the earlier strip. A text that occurs twice is kept once.
    """
    scores = {i: s["score"] for i, s in enumerate(strips) if s["score"] is not None}
    kept: set[int] = set()
    texts: set[str] = set()
    for i in sorted(scores, key=lambda i: (-scores[i], i)):
        text = re.sub(r"\W+", " ", strips[i]["text"].lower()).strip()
        if len(kept) < most and scores[i] > above and text not in texts:
            kept.add(i)
            texts.add(text)
    return [{**strip, "kept": i in kept} for i, strip in enumerate(strips)]


def fair_shares(counts: Sequence[int], most: int) -> list[int]:
    """Return how many strips of each document are scored, at most ``most`` in total.

    Documents with many strips lose theirs first; among equals the earlier one keeps more.
    """
    shares, fewest_first = [0] * len(counts), sorted(range(len(counts)), key=counts.__getitem__)
    for place, i in enumerate(fewest_first):
        shares[i] = min(counts[i], -(-most // (len(counts) - place)))
        most -= shares[i]
    return shares


def recompose(strips: Sequence[Strip], documents: Sequence[Document]) -> list[Document]:
    """Return knowledge: for each document with kept strips, these in the order of its text."""
    knowledge = []
    for index, document in enumerate(documents):
        texts = [s["text"] for s in strips if s["document"] == index and s["kept"]]
        if texts:
            metadata = dict(document.metadata)
            knowledge.append(Document(" ".join(texts), metadata=metadata, id=document.id))
    return knowledge
