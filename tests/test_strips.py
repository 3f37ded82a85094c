"""Documents into strips and back (CRAG section 4.4, appendix B.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.nodes.refine_strips import Decomposition, decompose_text, keep
from selfcorrect_rag.state import Strip


def text(count: int) -> str:
    return " ".join(f"This is the sentence with number {i} of the text." for i in range(count))


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (4, [4]), (5, [3, 2]), (7, [3, 4])])
def test_groups_of_three_and_no_sentence_alone(count: int, sizes: list[int]) -> None:
    strips = decompose_text(text(count))
    assert [strip.count("sentence") for strip in strips] == sizes
    assert " ".join(strips) == text(count)


@pytest.mark.parametrize(
    ("words", "strips"),
    [
        ([5, 6, 6, 6], [[5, 6, 6, 6]]),  # three: the opening goes with the one after it
        ([6, 6, 6, 5, 6, 6], [[6, 6, 6, 5], [6, 6]]),
        ([5, 5, 6, 6, 6], [[5, 5, 6, 6, 6]]),
    ],
)
def test_five_words_are_short_and_six_are_not(words: list[int], strips: list[list[int]]) -> None:
    found = decompose_text(" ".join("Word" + " word" * (n - 1) + "." for n in words))
    sizes = [[len(sentence.split()) for sentence in s.split(".")[:-1]] for s in found]
    assert sizes == strips


@pytest.mark.parametrize(("words", "sizes"), [(59, [59]), (60, [50, 10]), (109, [50, 59])])
def test_windows_have_fifty_words_and_no_short_tail(words: int, sizes: list[int]) -> None:
    strips = decompose_text("  ".join(map(str, range(words))), "windows")
    assert [len(strip.split()) for strip in strips] == sizes


def test_a_passage_is_one_strip() -> None:
    assert decompose_text(f" {text(4)}\n{text(4)}", "passage") == [f"{text(4)} {text(4)}"]


@given(
    st.lists(st.sampled_from(["One.", "Is it two?", "a", "This is a longer sentence. ", "\n"])),
    st.sampled_from(["sentences", "windows", "passage"]),
)
def test_no_word_is_lost_or_said_twice(parts: list[str], how: Decomposition) -> None:
    whole = " ".join(parts)
    assert " ".join(decompose_text(whole, how)).split() == whole.split()


def strip(document: int, words: str, score: float) -> Strip:
    return Strip(document=document, text=words, score=score, kept=False)


def kept(*strips: Strip, above: float = -0.5, most: int = 9) -> list[str]:
    return [s["text"] for s in keep(strips, above, most) if s["kept"]]


def test_what_scores_exactly_the_border_is_not_kept() -> None:
    scored = [strip(0, str(score), score) for score in (-0.51, -0.5, -0.49)]
    assert kept(*scored) == ["-0.49"]


@pytest.mark.parametrize(("most", "expected"), [(1, ["b"]), (3, ["a", "b", "d"])])
def test_the_best_are_kept_and_of_equals_the_earlier(most: int, expected: list[str]) -> None:
    scored = [strip(0, "a", 0.1), strip(0, "b", 0.9), strip(0, "c", 0.1), strip(1, "d", 0.5)]
    assert kept(*scored, most=most) == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("So, it is.", " so it -- is", True), ("best", "the best", False), ("is it", "isit", False)],
)
def test_a_text_is_kept_once_in_any_case_and_punctuation(one: str, other: str, same: bool) -> None:
    assert kept(strip(0, one, 0.1), strip(1, other, 0.2)) == ([other] if same else [one, other])


def test_a_paragraph_ends_a_sentence_and_keeps_its_line() -> None:
    """An option and the next one are not one sentence, and a reader can quote either."""
    text = "OPTIONS\n\n  -a, --all  count all\n    files too\n\n  -b, --bytes  print bytes. No."
    (strip,) = decompose_text(text)
    assert strip == "OPTIONS\n-a, --all count all files too\n-b, --bytes print bytes. No."
