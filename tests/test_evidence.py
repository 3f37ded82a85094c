"""docs/evidence.md says what its figures say, and its questions are those of the benchmark."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from benchmarks.evidence import METHODS, figures, question_hash, read_sets, remove_gold
from reader_training.rows import DATA, real_rows
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run

PAGE = Path(__file__).parents[1] / "docs" / "evidence.md"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")
NAMES = [method.split("=")[0] if "=" in method else method for method in METHODS]


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads((PAGE.with_suffix("") / "evidence.json").read_text(encoding="utf-8"))


def test_the_main_tables_are_the_figures(made: Any) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for table in ("whole", "removed"):
        for found in made["sets"].values():
            assert list(found[table]["methods"]) == NAMES
            for mean in found[table]["methods"].values():
                low, high = mean["interval"]
                assert f"{mean['value']:.3f} [{low:.3f}, {high:.3f}]" in text
            for pair in found[table]["pairs"]:
                low, high = pair["interval"]
                assert f"{pair['difference']:+.3f} [{low:.3f}, {high:.3f}]" in text


@pytest.mark.slow
@needs_data
def test_its_questions_are_those_of_the_sets_and_were_not_trained_on(made: Any) -> None:
    sets = read_sets(300)
    hashes = {
        name: [question_hash(a.question.question)[:16] for a in s] for name, s in sets.items()
    }
    assert hashes == {name: found["hashes"] for name, found in made["sets"].items()}
    trained = {question_hash(row.question)[:16] for row in real_rows().train}
    assert not trained & {each for found in hashes.values() for each in found}
    popqa = next(a for a in sets["popqa"])
    row = next(
        row
        for row in map(json.loads, (DATA / "popqa_dev_741.jsonl").open(encoding="utf-8"))
        if popqa.question.id == f"popqa-{row['id']}"
    )
    assert popqa.is_gold(Document("x", metadata={"title": row["paragraphs"][0]["title"]}))
    assert not popqa.is_gold(Document("x", metadata={"title": "no such title"}))


def test_a_share_of_the_questions_gets_the_answers_without_gold() -> None:
    questions = [Question(str(n), f"Who is number {n}?", ("Ada",)) for n in range(10)]

    def run(answer: str) -> Run:
        return Run(questions, [Outcome(q.id, name, answer) for name in NAMES for q in questions])

    gone = []
    for share in (0.0, 0.2, 0.4, 1.0):
        removed = remove_gold(run("Ada"), run("Bob"), share)
        gone.append({o.id for o in removed.of("rag") if o.answer == "Bob"})
        assert len(gone[-1]) == round(share * 10)
        assert {o.id for o in removed.of("crag") if o.answer == "Bob"} == gone[-1]
    assert gone[1] < gone[2] < gone[3]
    found = figures(remove_gold(run("Ada"), run("Bob"), 0.4))
    assert found["methods"]["crag"]["value"] == 0.6
    assert found["pairs"][0]["difference"] == 0.0
