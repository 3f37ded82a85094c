"""Documents into strips and back (CRAG section 4.4, appendix B.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import EvaluatorFailed
from selfcorrect_rag.nodes.refine_strips import (
    Decomposition,
    decompose_text,
    keep,
    recompose_knowledge,
    refine_strips,
    select_web_strips,
)
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import FREE, Strip
from tests.crag_runs import WordEvaluator, document
from tests.nodes.parts import beam, candidate


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
        ([5, 6, 6, 6, 6], [[5, 6, 6, 6, 6]]),  # four: the opening goes with the one after it
        ([6, 6, 6, 5, 6, 6], [[6, 6, 6, 5], [6, 6]]),
        ([5, 5, 6, 6, 6, 6], [[5, 5, 6, 6], [6, 6]]),
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


class Asked(WordEvaluator):
    def score(self, question: str, passages: Any) -> list[float]:
        assert question == "Who?"
        return super().score(question, passages)


def refine(
    texts: list[str], strip_filter: Any = None, rewriter_calls: Any = (), **given: Any
) -> Any:
    """Refine documents with these texts; ``given`` are settings, ``spent`` calls, branches."""
    spent, branches = given.pop("spent", 0), given.pop("branches", ["refine"])
    parts = Asked(), CRAGSettings.of(given), strip_filter
    before = {**FREE, "model_calls": spent, "turn": "1"}
    state = {"question": "Who?", "branches": branches, "route": [before]}
    documents = [document(text) for text in texts]
    found = refine_strips(*parts, *rewriter_calls).invoke({**state, "passages": documents})
    web = select_web_strips(*parts).invoke({**state, "web_results": documents})
    assert rewriter_calls or web["web_strips"] == found["strips"]
    return found


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({}, 2),
        ({"decomposition": "passage"}, 1),
        ({"refine": False, "select": False}, 1),
        ({"max_model_calls": 1}, 1),
    ],
    ids=str,
)
def test_documents_are_cut_as_the_settings_and_limits_say(given: Any, number: int) -> None:
    found = refine([text(7)], **given)
    assert len(found["strips"]) == number
    assert bool(found.get("stopped")) is ("max_model_calls" in given)


def test_long_documents_lose_their_strips_first() -> None:
    found = refine([text(12), "Gold is one.", "Gold is two."], scored_strips=5)["strips"]
    assert [each["document"] for each in found] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("branches", "rewriter_calls", "given", "fits"),
    [
        (["refine", "search"], (), {"max_model_calls": 2}, True),
        (["refine", "search"], (1,), {"max_model_calls": 2}, False),
        (["refine", "search"], (1,), {"max_model_calls": 2, "rewrite": False}, True),
        (["refine"], (1,), {"max_model_calls": 2}, True),
        (["refine", "search"], (1,), {"max_model_calls": 3}, True),
    ],
)
def test_a_call_is_left_for_the_rewriter_that_runs_at_the_same_time(
    branches: list[str], rewriter_calls: Any, given: Any, fits: bool
) -> None:
    found = refine(["Gold."], None, rewriter_calls, branches=branches, **given)
    assert (found["strips"][0]["score"] is not None) is fits


def test_a_filter_asks_no_model_so_no_limit_stops_it() -> None:
    asked: list[str] = []
    found = refine(
        ["Gold."], lambda q, strips: asked.append(q) or [True], spent=1, max_model_calls=1
    )
    assert (asked, found["strips"][0]["score"]) == (["Who?"] * 2, 1.0)
    assert "stopped" not in found
    assert "stopped" not in refine([], spent=1, max_model_calls=1)
    with pytest.raises(EvaluatorFailed, match="the strip filter raised TypeError"):
        refine(["Gold."], lambda question, strips: 5)
    with pytest.raises(EvaluatorFailed, match="gave 0 values for 1 strips; give one for each"):
        refine(["Gold."], lambda question, strips: [])


def test_a_late_fault_ends_what_was_written() -> None:
    class Broken(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            raise ConnectionError("down")

    state = {"question": "Who?", "branches": ["refine"], "passages": [document("Gold.")]}
    with pytest.raises(EvaluatorFailed, match="ConnectionError: down"):
        refine_strips(Broken()).invoke(state)
    update = refine_strips(Broken()).invoke({**state, "beams": [beam(candidate("One."))]})
    assert "the answer ends after segment 1" in update["notes"][0]


def recompose(strips: list[Strip], grades: list[float], lower: float | None = 0.0) -> Any:
    state = {
        "question": "Who?",
        "branches": ["refine"],
        "passages": [document(f"{i}") for i in range(len(grades))],
        "strips": strips,
        "grades": [{"document": i, "title": "", "score": s} for i, s in enumerate(grades)],
        "thresholds": {} if lower is None else {"lower": lower, "upper": 0.5},
    }
    return recompose_knowledge().invoke(state)


def test_a_piece_is_judged_by_the_best_score_of_its_document_and_its_strips() -> None:
    every: list[Strip] = [{**strip(i, f"{i}", s), "kept": True} for i, s in ((0, 0.9), (1, -0.1))]
    both = recompose(every, [-0.9, -0.2])
    assert both["judged"] == ["relevant", "irrelevant"]
    assert recompose(every[1:], [0.9, 0.0])["judged"] == ["relevant"], "the border is relevant"
    assert recompose(every[:1], [-0.5], lower=None)["judged"] == ["relevant"]
    two = recompose([every[0], {**every[0], "text": "More."}], [0.9])
    assert [piece.page_content for piece in two["knowledge"]] == ["0 More."]
    fallback = recompose([], [-0.9, -0.2])
    assert [piece.page_content for piece in fallback["knowledge"]] == ["1"]
    assert fallback["judged"] == ["irrelevant"]
    why = "no knowledge was left: written from the best document retrieved"
    assert fallback["notes"] == [why]
    assert recompose([], [])["notes"] == ["no knowledge was found: written without"]


def test_an_abandoned_turn_makes_no_knowledge() -> None:
    assert "knowledge" not in recompose_knowledge().invoke({"question": "Who?", "branches": []})
