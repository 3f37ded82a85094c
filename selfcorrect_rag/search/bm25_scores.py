"""BM25's scores of all passages, computed on the disk: no corpus has to fit into memory.

What is written here is what bm25s searches; its own way there holds the words of all passages as
lists. Here the words of each passage are counted and spilled to a file, and sorted by word from
there, a block at a time.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import require

_IDS = "ids"
_DATA, _INDICES, _STARTS = (f"{name}.csc.index.npy" for name in ("data", "indices", "indptr"))
_VOCABULARY, _PARAMETERS = "vocab.index.json", "params.index.json"
_ID_LENGTH = 32
_TEXTS = 1000
"""Tokenised at once."""
_BLOCK = 2**20
"""Counts sorted at once, which takes some 100 MB."""


class Scores(NamedTuple):
    """What a search needs; its arrays stay on the disk."""

    ids: Any
    """As bytes, in the order of the scores."""
    bm25: Any
    """None where there are no words to score."""


class _Counts(NamedTuple):
    """How often each passage has each of its words, in a file of pairs (word, count)."""

    path: Path
    vocabulary: dict[str, int]
    holders: "array[int]"
    """Passages that have a word, by word."""
    words: "array[int]"
    """All words of a passage, by passage."""
    different: "array[int]"
    """Different words of a passage, by passage."""


def tokenize(texts: list[str]) -> list[list[str]]:
    """The words of texts: runs of two or more letters and digits, no English stop words."""
    tokens: list[list[str]] = require("bm25s", "bm25").tokenize(
        texts, stopwords="en", return_ids=False, show_progress=False
    )
    return [[word for word in words if word] for words in tokens]


def load_scores(folder: Path) -> Scores:
    """What `write_scores` wrote.

    Raises:
        OSError, ValueError: it is not there, or not whole.
    """
    numpy = require("numpy", "bm25")
    passages = json.loads((folder / _PARAMETERS).read_text())["num_docs"]
    if not passages:
        return Scores([], None)
    ids = numpy.memmap(folder / _IDS, dtype=f"S{_ID_LENGTH}", mode="r")
    if len(ids) != passages:
        raise ValueError(f"{len(ids)} ids for the scores of {passages} passages")
    return Scores(ids, require("bm25s", "bm25").BM25.load(folder, mmap=True))


def write_scores(folder: Path, passages: Iterable[tuple[str, str]]) -> None:
    """Write Lucene's BM25 of ``passages``, given as (id, text), into an empty folder.

    Ids are ASCII of at most 32 characters.
    """
    numpy = require("numpy", "bm25")
    bm25 = require("bm25s", "bm25").BM25()
    counts = _count(folder, passages)
    size = sum(counts.holders)
    if not size:
        _write_parameters(folder, 0)
        return
    holders, words = numpy.array(counts.holders), numpy.array(counts.words)
    rarity = numpy.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
    damping = bm25.k1 * (1 - bm25.b + bm25.b * words / words.mean())
    ends = numpy.cumsum(counts.different)
    starts = numpy.concatenate([[0], numpy.cumsum(holders)])
    numpy.save(folder / _STARTS, starts)
    for name, kind in ((_DATA, "float32"), (_INDICES, "int32")):
        numpy.lib.format.open_memmap(folder / name, "w+", kind, (size,))
    free = starts[:-1].copy()  # where the next score of a word goes
    with counts.path.open("rb") as file:
        for begin in range(0, size, _BLOCK):
            pairs = numpy.fromfile(file, "int32", 2 * _BLOCK).reshape(-1, 2)
            holder = numpy.searchsorted(ends, numpy.arange(begin, begin + len(pairs)), "right")
            order = numpy.argsort(pairs[:, 0], kind="stable")
            (word, count), holder = pairs[order].T, holder[order]
            found, first, times = numpy.unique(word, return_index=True, return_counts=True)
            places = free[word] + numpy.arange(len(word)) - numpy.repeat(first, times)
            free[found] += times
            # Opened for each block: what is mapped counts as memory until it is closed.
            numpy.load(folder / _INDICES, "r+")[places] = holder
            scores = rarity[word] * count / (count + damping[holder])
            numpy.load(folder / _DATA, "r+")[places] = scores
    counts.path.unlink()
    (folder / _VOCABULARY).write_text(json.dumps(counts.vocabulary))
    _write_parameters(folder, len(words))


def _write_parameters(folder: Path, passages: int) -> None:
    (folder / _PARAMETERS).write_text(json.dumps({"num_docs": passages}))


def _count(folder: Path, passages: Iterable[tuple[str, str]]) -> _Counts:
    counts = _Counts(folder / "counts", {}, array("q"), array("q"), array("q"))
    with (folder / _IDS).open("wb") as ids, counts.path.open("wb") as file:
        for id_, tokens in _tokenized(passages):
            pairs = array("i")
            for token, times in Counter(tokens).items():
                word = counts.vocabulary.setdefault(token, len(counts.vocabulary))
                if word == len(counts.holders):
                    counts.holders.append(0)
                counts.holders[word] += 1
                pairs.extend((word, times))
            file.write(pairs.tobytes())
            counts.words.append(len(tokens))
            counts.different.append(len(pairs) // 2)
            ids.write(id_.encode().ljust(_ID_LENGTH, b"\0"))
    return counts


def _tokenized(passages: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    rest = iter(passages)
    while batch := list(islice(rest, _TEXTS)):
        ids, texts = zip(*batch, strict=True)
        yield from zip(ids, tokenize(list(texts)), strict=True)
