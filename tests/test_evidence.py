"""docs/evidence.md is what its figures say, and no training saw its questions."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from benchmarks.evidence.figures import figures_of
from benchmarks.evidence.page import draw, render
from benchmarks.evidence.runs import NAMED, Runs
from benchmarks.evidence.sets import Asked, Set, read_sets
from nano_training.reader.mixture import selfrag_questions, yes_no_rows
from nano_training.reader.relations import relation_rows
from nano_training.reader.rows import DATA, real_rows
from nano_training.reader.written import written_rows
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished
from selfcorrect_rag.evaluation.tasks import question_hash
from tests.test_docs import ROOT

PAGE = ROOT / "docs" / "evidence.md"
FOLDER = PAGE.with_suffix("")
needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads((FOLDER / "evidence.json").read_text(encoding="utf-8"))


def test_the_page_and_its_plots_are_made_from_the_figures(made: Any) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(made, FOLDER.name)
    drawn = draw(made)
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)
    assert all((FOLDER / name).read_text(encoding="utf-8") == svg for name, svg in drawn.items())
    assert all(f"({FOLDER.name}/{name})" in render(made, FOLDER.name) for name in drawn)


@needs_data
def test_its_questions_are_those_of_the_sets_and_no_training_saw_one(made: Any) -> None:
    for found in read_sets(300):
        hashes = [question_hash(a.question.question)[:16] for a in found.asked]
        assert made["sets"][found.name]["hashes"] == hashes
    rows = [*real_rows().train, *relation_rows(DATA), *written_rows().train, *yes_no_rows()]
    trained = {
        question_hash(question) for question in [*(r.question for r in rows), *selfrag_questions()]
    }
    seen = {short[:16] for short in trained}
    asked = {short for found in made["sets"].values() for short in found["hashes"]}
    assert len(asked) > 500
    assert not asked & seen


@needs_data
def test_each_question_has_passages_that_answer_it() -> None:
    """Without them, removing them would change nothing."""
    for found in read_sets(20):
        if found.corpus == "pages":
            title, text = "no such title", "no such text"
            assert not any(
                a.is_gold(Document(text, metadata={"title": title})) for a in found.asked
            )
    (popqa,) = (found for found in read_sets(20) if found.name == "popqa")
    row = next(json.loads(line) for line in (DATA / "popqa_dev_741.jsonl").open(encoding="utf-8"))
    (asked,) = (a for a in read_sets()[0].asked if a.question.id == f"popqa-{row['id']}")
    gold = Document("any", metadata={"title": row["paragraphs"][0]["title"]})
    assert asked.is_gold(gold)
    assert len(popqa.asked) == 20


QUESTIONS = [Question(str(n), f"Who is number {n}?", ("Ada",)) for n in range(10)]


def finished(methods: Sequence[str], answer: str) -> Finished:
    """Every method gives every question this answer."""
    outcomes = [Outcome(q.id, method, answer) for method in methods for q in QUESTIONS]
    return Finished(QUESTIONS, outcomes)


@pytest.fixture
def runs() -> Runs:
    whole, without = finished([*NAMED, "rag:passages=3"], "Ada"), finished(NAMED, "Bob")
    return Runs(whole, without, shipped=whole, alone=whole)


def test_a_share_of_the_questions_gets_the_answers_without_gold(runs: Runs) -> None:
    gone = []
    for share in (0.0, 0.2, 0.4, 1.0):
        removed = runs.removed(share)
        assert removed.methods == list(NAMED)
        of_rag = removed.of("rag")
        assert [outcome.id for outcome in of_rag] == [question.id for question in QUESTIONS]
        gone.append({outcome.id for outcome in of_rag if outcome.answer == "Bob"})
        assert len(gone[-1]) == round(share * len(QUESTIONS))
        assert all(
            {o.id for o in removed.of(method) if o.answer == "Bob"} == gone[-1] for method in NAMED
        )
    assert gone[1] < gone[2] < gone[3]


def test_figures_are_of_the_answerable_questions(runs: Runs) -> None:
    asked = [Asked(q, lambda passage: False) for q in QUESTIONS]
    asked[0] = asked[0]._replace(question=QUESTIONS[0]._replace(unanswerable=True))
    found = figures_of(Set("made-up", "Made up", "pages", asked, "No training."), runs)
    assert (found["questions"], found["answerable"]) == (10, 9)
    assert found["whole"]["methods"]["crag"] == {"value": 1.0, "interval": [1.0, 1.0]}
    assert found["by_share"]["crag"][-1]["value"] == 0.0
    assert [point["value"] for point in found["by_share"]["rag"]][:2] == [
        1.0,
        pytest.approx(7 / 9, abs=0.12),
    ]
    assert [share["value"] for share in found["alike"]] == [1.0] * 3
    assert found["sweeps"] == []


def test_a_pair_that_is_reversed_is_named(made: Any) -> None:
    pair = made["sets"]["popqa"]["whole"]["pairs"][0]
    pair.update(told_apart=True, difference=-0.2)
    text = render(made, FOLDER.name)
    assert "Self-CRAG > Self-RAG: over the whole index on no set, reversed on PopQA; " in text
    assert "| Self-CRAG > Self-RAG | **-0.200**; " in text
