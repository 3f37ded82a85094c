"""Documents into strips and back (CRAG section 4.4, appendix B.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from selfcorrect_rag.crag_state import Strip
from selfcorrect_rag.strips import Decomposition, decompose, keep, recompose


def text(count: int) -> str:
    return " ".join(f"This is the sentence with number {i} of the text." for i in range(count))


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (1, [1]),
        (2, [2]),
        (3, [3]),
        (4, [4]),
        (5, [3, 2]),
        (6, [3, 3]),
        (7, [3, 4]),
        (10, [3, 3, 4]),
    ],
)
def test_groups_of_three_and_no_sentence_alone(count: int, sizes: list[int]) -> None:
    strips = decompose(text(count))
    assert [strip.count("sentence") for strip in strips] == sizes
    assert " ".join(strips) == text(count)


def test_short_sentences_stay_with_a_neighbour() -> None:
    strips = decompose(f"A heading. {text(3)} No. {text(3)}")
    assert [strip.count("sentence") for strip in strips] == [3, 3]
    assert strips[0].startswith("A heading. This")
    assert strips[0].endswith("No.")


def test_windows_have_fifty_words_and_no_short_tail() -> None:
    words = [str(i) for i in range(108)]
    assert [len(s.split()) for s in decompose(" ".join(words), "windows")] == [50, 58]
    assert [len(s.split()) for s in decompose(" ".join(words + ["x"] * 2), "windows")] == [
        50,
        50,
        10,
    ]
    assert decompose("five words and no more", "windows") == ["five words and no more"]


@given(
    st.lists(st.sampled_from(["One.", "Is it two?", "a", "This is a longer sentence. ", "\n"])),
    st.sampled_from(["sentences", "windows", "passage"]),
)
def test_no_word_is_lost_or_said_twice(parts: list[str], how: Decomposition) -> None:
    whole = " ".join(parts)
    assert " ".join(decompose(whole, how)).split() == whole.split()


def strip(document: int, words: str, score: float) -> Strip:
    return Strip(document=document, text=words, score=score, kept=False)


def test_the_best_are_kept_once_and_stand_in_the_order_of_the_text() -> None:
    strips = [
        strip(0, "low", -0.6),
        strip(0, "fair", 0.1),
        strip(0, "best", 0.9),
        strip(1, "Best!", 0.8),
        strip(1, "good", 0.5),
        strip(1, "at the border", -0.5),
    ]
    kept = keep(strips, above=-0.5, most=3)
    assert [s["text"] for s in kept if s["kept"]] == ["fair", "best", "good"]
    documents = [Document("", id="a"), Document("", metadata={"title": "B"}), Document("")]
    knowledge = recompose(kept, documents)
    assert [(k.page_content, k.id, k.metadata) for k in knowledge] == [
        ("fair best", "a", {}),
        ("good", None, {"title": "B"}),
    ]
