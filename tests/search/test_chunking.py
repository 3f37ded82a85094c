import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.search.chunking import chunk


def sentences(count: int, words: int = 10) -> str:
    return " ".join(f"S{i} " + " ".join(["word"] * (words - 2)) + " end." for i in range(count))


def test_short_text_is_one_passage() -> None:
    assert list(chunk("  One sentence. Another.\n")) == ["One sentence. Another."]


def test_nothing_gives_no_passage() -> None:
    assert list(chunk("")) == list(chunk(" \n\n ")) == []


def test_passages_end_with_sentences_and_stay_within_the_limit() -> None:
    passages = list(chunk(sentences(50), words=35, overlap=0))
    assert all(passage.endswith("end.") for passage in passages)
    assert all(len(passage.split()) == 30 for passage in passages[:-1])
    assert " ".join(passages) == sentences(50)


def test_overlap_repeats_whole_sentences() -> None:
    first, second, *_ = chunk(sentences(20), words=40, overlap=15)
    assert first.split("S3")[1] == second.split("S4")[0].removeprefix("S3").rstrip()


def test_a_short_tail_stays_with_the_passage_before() -> None:
    assert [len(p.split()) for p in chunk(sentences(9), words=40, overlap=0)] == [40, 50]
    assert [len(p.split()) for p in chunk(sentences(10), words=40, overlap=0)] == [40, 40, 20]


def test_a_long_sentence_is_cut() -> None:
    assert [len(p.split()) for p in chunk("word " * 250, words=100, overlap=0)] == [100, 100, 50]


def test_abbreviated_words_before_lower_case_end_no_sentence() -> None:
    text = "He likes fruit, e.g. apples and pears. " * 2
    assert list(chunk(text, words=7, overlap=0)) == ["He likes fruit, e.g. apples and pears."] * 2


def test_scripts_without_spaces_count_by_character() -> None:
    passages = list(chunk("東京は日本の首都です。" * 30, words=55, overlap=0))
    assert all(len(passage) == 55 and passage.endswith("。") for passage in passages)


def test_a_line_without_spaces_is_cut() -> None:
    passages = list(chunk("x" * 100_000, words=100, overlap=0))
    assert "".join(passages) == "x" * 100_000
    assert max(map(len, passages)) <= 125 * 30


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_sizes_that_make_no_sense_are_refused(words: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        list(chunk("text", words, overlap))


@given(st.text(alphabet="ab .!?\n\"')東。", max_size=300), st.integers(1, 12), st.integers(0, 11))
def test_every_word_is_in_a_passage_and_every_passage_in_the_text(
    text: str, words: int, overlap: int
) -> None:
    passages = list(chunk(text, words, min(overlap, words - 1)))
    assert all(passage and passage in text for passage in passages)
    if overlap == 0:
        assert "".join("".join(passages).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["." * 200_000, ". " * 100_000, "\n" * 200_000, '.")' * 70_000])
def test_hostile_punctuation_is_cut_like_any_text(text: str) -> None:
    """A pattern that went over it again and again would not come to an end."""
    passages = list(chunk(text, overlap=0))
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert all(len(passage) <= 150 * 30 for passage in passages)
