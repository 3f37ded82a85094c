"""Knowledge refinement: split documents into strips, and join the kept ones into knowledge.

(CRAG section 4.4, appendix B.2.) Pure text: scoring is the evaluator's.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from langchain_core.documents import Document

from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.state.crag import Strip

Decomposition = Literal["sentences", "windows", "passage"]
SENTENCES = 3
"""Sentences per strip: "a few" (appendix B.2)."""
WINDOW_WORDS, SHORTEST_TAIL = 50, 10
"""The official code's fixed windows: words per window, and fewest words of the last one."""
SHORTEST_SENTENCE = 5
"""Sentences of up to this many words join their neighbour: a heading, an initial, "No."."""


def decompose(text: str, how: Decomposition = "sentences") -> list[str]:
    """The strips of a document, in its order.

    ``sentences``: a text of one or two sentences is one strip, a longer one is cut into groups of
    three (the last may have two to four); a paragraph ends with a sentence, and keeps its line.
    ``windows``: fifty words each. ``passage``: the whole.
    """
    words = text.split()
    if not words:
        return []
    match how:
        case "passage":
            return [" ".join(words)]
        case "windows":
            return _windows(words)
        case "sentences":
            return _grouped(_joined(list(_sentences(text))))


def _sentences(text: str) -> Iterator[str]:
    """Sentences, each with the space behind it: a line break at the end of a paragraph."""
    for paragraph in text.split("\n\n"):
        *some, last = ["", *sentences(" ".join(paragraph.split()))]
        yield from (f"{sentence} " for sentence in some if sentence)
        if last:
            yield f"{last}\n"


def _windows(words: list[str]) -> list[str]:
    starts = list(range(0, len(words), WINDOW_WORDS))
    if len(starts) > 1 and len(words) - starts[-1] < SHORTEST_TAIL:
        starts.pop()
    return [" ".join(words[start:end]) for start, end in pairwise([*starts, len(words)])]


def _joined(found: Sequence[str]) -> list[str]:
    """Sentences, with very short ones joined to the previous one (the next one at the
    beginning)."""
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


def _grouped(found: Sequence[str]) -> list[str]:
    groups = [list(found[i : i + SENTENCES]) for i in range(0, len(found), SENTENCES)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        last = groups.pop()
        groups[-1] += last
    return ["".join(group).strip() for group in groups]


def keep(strips: Sequence[Strip], above: float, most: int) -> list[Strip]:
    """The same strips, with ``kept`` set on the best ``most`` of those that score above ``above``.

    The best are kept; ties go to the earlier one. A text that occurs twice is kept once.
    """
    scores = {i: s["score"] for i, s in enumerate(strips) if s["score"] is not None}
    ranked = sorted(scores, key=lambda i: (-scores[i], i))
    kept: set[int] = set()
    texts: set[str] = set()
    for i in ranked:
        text = re.sub(r"\W+", " ", strips[i]["text"].lower()).strip()
        if len(kept) < most and scores[i] > above and text not in texts:
            kept.add(i)
            texts.add(text)
    return [{**strip, "kept": i in kept} for i, strip in enumerate(strips)]


def fair_shares(counts: Sequence[int], most: int) -> list[int]:
    """How many strips of each document are scored, when at most ``most`` are in total.

    Documents with many strips lose theirs first; among equals the earlier one keeps more.
    """
    shares, fewest_first = [0] * len(counts), sorted(range(len(counts)), key=counts.__getitem__)
    for place, i in enumerate(fewest_first):
        shares[i] = min(counts[i], -(-most // (len(counts) - place)))
        most -= shares[i]
    return shares


def recompose(strips: Sequence[Strip], documents: Sequence[Document]) -> list[Document]:
    """Knowledge: for each document, its kept strips in the order of its text.

    A document without kept strips is left out; metadata and id are unchanged.
    """
    knowledge = []
    for index, document in enumerate(documents):
        texts = [s["text"] for s in strips if s["document"] == index and s["kept"]]
        if texts:
            knowledge.append(
                Document(" ".join(texts), metadata=dict(document.metadata), id=document.id)
            )
    return knowledge
