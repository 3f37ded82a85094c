"""Cutting texts and tables into passages."""

import pytest

from selfcorrect_rag.search.convert import Section
from selfcorrect_rag.search.documents import count_words, passages, split


def test_passages_end_with_sentences_and_overlap() -> None:
    text = " ".join(f"Sentence number {i} is here." for i in range(40))
    found = split(text, 30, 10)
    assert all(passage.endswith("here.") for passage in found)
    assert all(count_words(passage) <= 30 for passage in found)
    assert found[1].split(". ")[0] in found[0]


@pytest.mark.parametrize("text", ["会议每周二上午十点开始。" * 30, "x" * 5_000, "a " * 500])
def test_long_words_and_scripts_without_spaces_are_cut(text: str) -> None:
    found = split(text, 50, 0)
    assert all(count_words(passage) <= 50 for passage in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_rows_stay_whole_under_their_header() -> None:
    rows = "\n".join(f"row {i}: a b" for i in range(10))
    section = Section(rows, {"title": "Rooms"}, "the header")
    found = [passage.page_content for passage in passages([section], "/rooms.csv", 8, 2)]
    assert all(passage.startswith("the header\nrow ") for passage in found)
    assert [line for p in found for line in p.split("\n")[1:]] == rows.split("\n")


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_bad_sizes_are_refused(words: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="cannot overlap"):
        split("text", words, overlap)
