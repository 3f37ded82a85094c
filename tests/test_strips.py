"""Documents into strips: every sentence once, in order, whatever their number."""

import pytest

from selfcorrect_rag.strips import decompose


@pytest.mark.parametrize(
    ("sentences", "sizes"),
    [(1, [1]), (2, [2]), (3, [3]), (4, [4]), (5, [3, 2]), (7, [3, 4]), (10, [3, 3, 4])],
)
def test_a_last_sentence_alone_joins_the_group_before(sentences: int, sizes: list[int]) -> None:
    text = [f"This is the sentence with number {i} here." for i in range(sentences)]
    strips = decompose(" ".join(text))
    assert " ".join(strips) == " ".join(text)
    assert [strip.count("This") for strip in strips] == sizes
