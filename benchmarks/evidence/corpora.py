"""The indexes of docs/evidence.md: all passages, and all but those that answer.

CRAG's figure 3 removes accurate retrieval results at random. Here each question is asked of a
whole index and of one without the passages that answer any question of its set; a share of
removed results is then a choice among answers that are there, and asks no model.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from langchain_core.documents import Document

from benchmarks.evidence.sets import Set
from reader_training import never_trained
from reader_training.kept_out import write_texts
from reader_training.rows import encyclopedia
from reader_training.rows import natural_questions
from selfcorrect_rag.search import Index
from selfcorrect_rag.search.index import passage_id
from selfcorrect_rag.search import load


def whole_index(found: Set, work: Path) -> Path:
    """The folder of the index of all passages of the set's corpus, made once."""
    folder = work / "indexes" / found.corpus
    if not folder.exists():
        part = _part(folder)
        with Index(part) as index:
            index.add(_passages(found, work))
        part.rename(folder)
    return folder


def index_without_gold(found: Set, work: Path) -> Path:
    """The folder of the same index without the passages that answer a question of the set."""
    folder = work / "indexes" / f"{found.name}-without-gold-of-{len(found.asked)}"
    if not folder.exists():
        part = _part(folder)
        shutil.copytree(whole_index(found, work), part)
        gold = [d for d in _passages(found, work) if any(a.is_gold(d) for a in found.asked)]
        with Index(part) as index, index.writing():
            index.remove([passage_id(document) for document in gold])
        part.rename(folder)
    return folder


def _part(folder: Path) -> Path:
    """Where an index is made, so that one under its own name is whole."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    return part


def _passages(found: Set, work: Path) -> Iterator[Document]:
    """The pooled passages of NQ-open, of the sets never trained on and of Wikipedia; or the thirty
    files, cut as ``selfcorrect-rag index`` cuts them."""
    if found.corpus == "pages":
        rows = [(row.title, row.passage) for row in natural_questions()]
        for title, text in dict.fromkeys([*rows, *never_trained.pages(), *encyclopedia()]):
            yield Document(text, metadata={"title": title})
        return
    folder = work / "files"
    folder.mkdir(parents=True, exist_ok=True)
    write_texts(folder)
    yield from load([folder], print)
