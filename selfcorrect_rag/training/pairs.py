"""Questions with relevant and irrelevant passages: reading them, splitting them, hard negatives."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData, require
from selfcorrect_rag.models.retrieval_evaluator import titled

Part = Literal["train", "development", "test"]


def part_of(question: str) -> Part:
    """Which part of the data a question belongs to: by its words, so that the same question always
    goes the same way (seven tenths, one, two)."""
    bucket = zlib.crc32(" ".join(question.lower().split()).encode(errors="replace")) % 10
    return "test" if bucket < 2 else "development" if bucket == 2 else "train"


@dataclass(frozen=True)
class Graded:
    """A question and passages known to be relevant to it, or not."""

    question: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()

    @property
    def part(self) -> Part:
        """Which part of the data it belongs to."""
        return part_of(self.question)

    @property
    def labelled(self) -> Iterator[tuple[str, float]]:
        """Its passages with the paper's labels, +1 and -1 (CRAG appendix B.2)."""
        yield from ((passage, 1.0) for passage in self.positives)
        yield from ((passage, -1.0) for passage in self.negatives)


def read_graded(path: Path) -> list[Graded]:
    """Rows ``{"question": ..., "positives": [...], "negatives": [...]}`` of a JSONL file.

    A passage is a text, or ``{"title": ..., "text": ...}``, and is read as an evaluator reads it
    (:func:`~selfcorrect_rag.models.retrieval_evaluator.titled`). Rows of one question are put
    together; a passage that is positive in one of them is no negative of the others.

    Raises:
        BadTrainingData: the file or a row is not so, a passage is blank, or one is both positive
            and negative in a row; the message names the line.
    """
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for number, line in lines(read_text(path)):
        try:
            row = json.loads(line)
            question, lists = row["question"], (row.get("positives"), row.get("negatives"))
            good = isinstance(question, str) and question.strip()
            found = [_passages(given) for given in lists]
        except (ValueError, KeyError, TypeError, AttributeError):
            good = ""
        if not good or not any(found):
            raise BadTrainingData(
                f'{path}:{number}: not {{"question": ..., "positives": [...], "negatives": [...]}}'
            )
        if not all(passage.strip() for passages in found for passage in passages):
            raise BadTrainingData(f"{path}:{number}: a passage is blank")
        if not set(found[0]).isdisjoint(found[1]):
            raise BadTrainingData(f"{path}:{number}: a passage is both positive and negative")
        kept = rows.setdefault(question.strip(), ([], []))
        for passages, more in zip(kept, found, strict=True):
            passages += [passage for passage in more if passage not in passages]
    return [
        Graded(question, tuple(p), tuple(passage for passage in n if passage not in p))
        for question, (p, n) in rows.items()
    ]


def read_corpus(path: Path) -> list[str]:
    """Passages of a JSONL file: rows ``{"text": ..., "title": ...}`` or strings, read as those of
    :func:`read_graded`.

    Raises:
        BadTrainingData: the file or a row is not so.
    """
    passages = []
    for number, line in lines(read_text(path)):
        try:
            passages += _passages([json.loads(line)])
        except (ValueError, KeyError, TypeError) as error:
            raise BadTrainingData(f'{path}:{number}: not {{"text": ...}}') from error
    return passages


def _passages(given: Any) -> list[str]:
    """A list of texts, or of texts with titles; ValueError or the like where it is none."""
    given = given or []
    if not isinstance(given, list):
        raise TypeError
    passages = []
    for one in given:
        text, title = (one, None) if isinstance(one, str) else (one["text"], one.get("title"))
        if not isinstance(text, str):
            raise TypeError
        passages.append(titled(Document(text, metadata={"title": title})))
    return passages


def read_text(path: Path) -> str:
    """The text of a file of training data.

    Raises:
        BadTrainingData: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrainingData(f"cannot read {path}: {error}") from error


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, numbered from 1.

    JSON may hold what `str.splitlines` takes for the end of a line, such as U+2028.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def parted(rows: Sequence[Graded], corpus: Sequence[str], k: int) -> dict[Part, list[Graded]]:
    """The rows by part, with up to ``k`` hard negatives more each.

    Those of the training part are none of what is relevant to a question held out from it.

    Args:
        rows: all of them.
        corpus: where negatives are looked for; the positives of all rows by default.
        k: see :func:`mine_negatives`.

    Raises:
        BadTrainingData: ``k`` is below 0.
    """
    corpus = corpus or [passage for row in rows for passage in row.positives]
    held_out = {p for row in rows if row.part != "train" for p in row.positives}
    open_to: dict[Part, Sequence[str]] = {
        "train": [passage for passage in corpus if passage not in held_out],
        "development": corpus,
        "test": corpus,
    }
    return {
        part: mine_negatives([row for row in rows if row.part == part], passages, k)
        for part, passages in open_to.items()
    }


def mine_negatives(rows: Sequence[Graded], corpus: Sequence[str], k: int) -> list[Graded]:
    """The rows with up to ``k`` hard negatives more each: passages of the corpus that look right
    to BM25, the likest first, and are not known to be.

    A passage that is blank, equals a positive, holds one or is part of one is no negative.

    Raises:
        BadTrainingData: ``k`` is below 0.
    """
    if k < 0:
        raise BadTrainingData(f"hard negatives {k}: it must be 0 or more")
    bm25s = require("bm25s", "bm25")
    passages = [passage for passage in dict.fromkeys(corpus) if passage.strip()]
    if not rows or not passages or not k:
        return list(rows)
    quiet = {"show_progress": False}
    words = bm25s.tokenize(passages, stopwords="en", **quiet)
    if not words.vocab:  # nothing but stop words: nothing looks like anything
        return list(rows)
    index = bm25s.BM25()
    index.index(words, **quiet)
    queries = bm25s.tokenize([row.question for row in rows], stopwords="en", **quiet)
    # More than k, since the positives are among the best.
    wanted = k + max(len(row.positives) + len(row.negatives) for row in rows)
    found, _ = index.retrieve(queries, k=min(wanted, len(passages)), **quiet)
    mined = []
    for row, best in zip(rows, found.tolist(), strict=True):
        near = [passages[i] for i in best if passages[i] not in row.negatives]
        positives = [p for p in row.positives if p.strip()]  # a blank one is part of any passage
        hard = [n for n in near if not any(p in n or n in p for p in positives)]
        mined.append(Graded(row.question, row.positives, (*row.negatives, *hard[:k])))
    return mined
