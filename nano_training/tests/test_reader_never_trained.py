"""Sets that are only measured: in small, and as they are in the real data."""

import json
from pathlib import Path
from typing import Any

import pytest

from nano_training.reader.never_trained import hotpotqa, musique_hops, pages, popqa
from nano_training.reader.rows import Row
from selfcorrect_rag.evaluation.matching import contains_answer


def hop(question: str, answer: str, page: int) -> dict[str, Any]:
    return {"question": question, "answer": answer, "paragraph_support_idx": page}


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """Two questions of PopQA, three of HotpotQA and two of MuSiQue."""
    asked = [
        {
            "question": f"Who made {name}?",
            "answers": ["Ann", "Ann Lee"],
            "paragraphs": [
                {"title": name, "text": f"{name} , by Ann ."},
                {"title": "Other", "text": f"Not {name}"},
            ],
        }
        for name in ("Film", "Song")
    ]
    (tmp_path / "popqa_dev_741.jsonl").write_text("".join(json.dumps(r) + "\n" for r in asked))
    answers = ("Oslo", "yes", "no")
    hotpot = [{"question": f"Which {a}?", "answer": a, "context": []} for a in answers]
    (tmp_path / "hotpotqa_train100.json").write_text(json.dumps(hotpot))
    corpus = {"Oslo": ["Oslo is", " a town ."], "Bo": ["Bo ."]}
    (tmp_path / "hotpotqa_train100_corpus.json").write_text(json.dumps(corpus))
    paragraphs = [
        {"title": "Mill", "paragraph_text": "The mill ( of Ann ) ."},
        {"title": "Ann", "paragraph_text": "Ann was born in Faro."},
    ]
    hops = [
        hop("Who owns the mill?", "Ann", 0),
        hop("Where was #1 born?", "Faro", 1),
        hop("Ann >> place of birth", "Faro", 1),
        hop("Where was Ann born?", "Faro", 1),
        hop("Who else was born there?", "Bo", 1),
    ]
    row = {"question": "Where?", "paragraphs": paragraphs, "question_decomposition": hops}
    (tmp_path / "musique_train100.json").write_text(json.dumps([row, row]))
    return tmp_path


def test_popqa_has_the_subjects_page(by_hand: Path) -> None:
    assert popqa(by_hand) == [
        Row(f"Who made {name}?", name, f"{name}, by Ann.", ("Ann", "Ann Lee"), "popqa")
        for name in ("Film", "Song")
    ]


def test_hotpotqa_is_not_for_yes_or_no(by_hand: Path) -> None:
    assert hotpotqa(by_hand) == [Row("Which Oslo?", "", "", ("Oslo",), "hotpotqa")]


def test_hops_of_musique_stand_alone_and_their_paragraph_states_the_answer(by_hand: Path) -> None:
    assert musique_hops(by_hand) == [  # each once
        Row("Who owns the mill?", "Mill", "The mill (of Ann).", ("Ann",), "musique"),
        Row("Where was Ann born?", "Ann", "Ann was born in Faro.", ("Faro",), "musique"),
    ]


def test_pages_are_those_of_all_three_sets(by_hand: Path) -> None:
    assert set(pages(by_hand)) == {
        ("Film", "Film, by Ann."),
        ("Song", "Song, by Ann."),
        ("Other", "Not Film"),
        ("Other", "Not Song"),
        ("Oslo", "Oslo is a town."),
        ("Bo", "Bo."),
        ("Mill", "The mill (of Ann)."),
        ("Ann", "Ann was born in Faro."),
    }


def test_real_sets(real: Path) -> None:
    assert len(popqa(real)) == 741
    assert 80 < len(hotpotqa(real)) < 100
    assert 40 < len(musique_hops(real)) < 100
    for row in (*popqa(real), *hotpotqa(real), *musique_hops(real)):
        assert row.question.strip()
        assert all(row.answers)
    for row in musique_hops(real):
        assert contains_answer(row.passage, row.answers)


def test_real_pages_have_the_rows_passages(real: Path) -> None:
    found = set(pages(real))
    assert {(row.title, row.passage) for row in (*popqa(real), *musique_hops(real))} <= found
    assert len(found) > 3000
    assert all(text for _, text in found)
