"""The scores on the disk are those that bm25s computes in memory."""

import random
from pathlib import Path

import bm25s
import numpy
import pytest

from selfcorrect_rag.search import bm25
from selfcorrect_rag.search.bm25 import load_scores, tokenize, write_scores


def corpus(size: int) -> list[str]:
    generator = random.Random(7)
    words = [f"word{n}" for n in range(200)]
    weights = [1 / (n + 1) for n in range(200)]
    return [" ".join(generator.choices(words, weights, k=1 + n % 40)) for n in range(size)]


@pytest.mark.parametrize("block", [1, 7, 2**20])
def test_scores_are_those_of_bm25s(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "_BLOCK", block)
    monkeypatch.setattr(bm25, "_TEXTS", 10)
    texts = corpus(60)
    write_scores(tmp_path, ((f"{n:032}", text) for n, text in enumerate(texts)))
    ours, theirs = load_scores(tmp_path), bm25s.BM25()
    theirs.index(tokenize(texts), show_progress=False)
    assert [int(id_) for id_ in ours.ids] == list(range(60))
    for query in ("word0 word3", "word150 word7 word7", "word199"):
        scores = [index.get_scores(query.split()) for index in (ours.bm25, theirs)]
        assert numpy.allclose(*scores, rtol=1e-5)
    assert not (tmp_path / "counts").exists()


@pytest.mark.parametrize("texts", [[], ["", "the of"]])
def test_without_words_there_is_nothing_to_score(tmp_path: Path, texts: list[str]) -> None:
    write_scores(tmp_path, ((f"{n:032}", text) for n, text in enumerate(texts)))
    assert load_scores(tmp_path).bm25 is None
