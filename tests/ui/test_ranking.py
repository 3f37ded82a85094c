"""Candidates in their order, and how far each has moved."""

import re
from typing import Any

from selfcorrect_rag.ui.ranking import MOST_ROWS, ranking
from selfcorrect_rag.ui.replay import Replay


def candidate(score: float, **rest: Any) -> dict[str, Any]:
    terms = [{"name": "ISREL", "weight": 1.0, "value": score}]
    of = {"text": "The same.", "passage": None, "depth": 0, "beam": 0, "parent": None}
    return {**of, "path_score": score, "score": score, "terms": terms, **rest}


def rows(shown: object) -> list[tuple[str, str]]:
    """The key of each row, and how it has moved."""
    found = str(shown).split('data-key="')[1:]
    return [
        (row.partition('"')[0], "".join(re.findall("[\u2191\u2193] \\d+", row))) for row in found
    ]


def test_candidates_of_the_same_text_move_each_for_itself() -> None:
    run = {"candidates": [candidate(score) for score in (0.9, 0.8, 0.1)]}
    assert rows(ranking(run)) == [("0", ""), ("1", ""), ("2", "")]
    now = {"candidates": [candidate(score) for score in (0.1, 0.8, 0.9)]}
    moved = [("2", "\u2191 2"), ("1", ""), ("0", "\u2193 2")]
    assert rows(ranking(run, Replay(now, [], origins=range(3)))) == moved


def test_a_candidate_is_the_same_where_others_are_left_out() -> None:
    run = {"candidates": [candidate(score) for score in (0.9, 0.8, 0.1)]}
    now = {"candidates": [candidate(score) for score in (0.8, 0.1)]}
    found = rows(ranking(run, Replay(now, [], origins=[1, 2])))
    assert found == [("1", "\u2191 1"), ("2", "\u2191 1")]


def test_rows_beyond_the_first_are_folded() -> None:
    few = {"candidates": [candidate(0.5)] * MOST_ROWS}
    assert "<details" not in str(ranking(few))
    many = {"candidates": [candidate(0.5)] * (MOST_ROWS + 3)}
    assert "3 more" in str(ranking(many))
    assert f'start="{MOST_ROWS + 1}"' in str(ranking(many))
