"""docs/evidence.md says what its figures say, and its questions are those of the benchmark."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from benchmarks import evidence
from benchmarks.own_documents.files import QUESTIONS as OWN
from docs.evidence_tables import interval, tables
from reader_training.rows import DATA, lines, real_rows, split_of
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run
from selfcorrect_rag.reader.network import SHIPPED

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence.md"
CARD = ROOT / "selfcorrect_rag" / "reader" / "weights" / "README.md"
QUESTIONS = [Question(str(n), f"Who is number {n}?", ("Ada",)) for n in range(10)]
needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads((PAGE.with_suffix("") / "evidence.json").read_text(encoding="utf-8"))


def test_the_tables_of_the_page_are_the_figures(made: Any) -> None:
    small = json.loads((PAGE.with_suffix("") / "smollm2.json").read_text(encoding="utf-8"))
    text, found = PAGE.read_text(encoding="utf-8"), tables(small)
    assert not [subject for subject, table in tables(made).items() if table not in text]
    unshown = {subject for subject, table in found.items() if table not in text}
    assert unshown == {"sets", "shipped", "cost", "confidence", "evaluator"}
    twice = small["sets"]["nq"]["whole"]["methods"]["self_rag:weight_isrel=2"]["match"]
    assert f"| {interval(twice)} |\n| ISSUP |" in found["sweeps"]
    chat = tables(json.loads((PAGE.with_suffix("") / "instruct.json").read_text("utf-8")))
    assert all(chat[subject] in text for subject in ("match", "differences"))


def test_the_large_reader_has_its_rows() -> None:
    large = json.loads((PAGE.with_suffix("") / "reader-base.json").read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for found in large["sets"].values():
        shipped, match = found["shipped"]["self_rag"], found["whole"]["methods"]["self_rag"]
        cells = shipped["right"], shipped["wrong"], match["match"], found["evaluator"]["grades"]
        assert f", large | {' | '.join(map(interval, cells))} |" in text


def test_another_readers_weights_are_measured(tmp_path: Path, monkeypatch: Any) -> None:
    folder = shutil.copytree(SHIPPED, tmp_path / "weights")
    told = json.loads((folder / "reader.json").read_text(encoding="utf-8"))
    told["calibration"] |= {"answer": [0, 0, -9], "sentence": [0, 0, -9]}
    (folder / "reader.json").write_text(json.dumps(told), encoding="utf-8")
    passage = Document("Priya Raman approves the deployments.", metadata={"title": "Staging"})
    question = Question("1", "Who approves the deployments?", ("Priya Raman",), (passage,))
    sets = {"popqa": [evidence.Asked(question, lambda _: True)]}
    monkeypatch.setattr(evidence, "read_sets", lambda most: sets)
    for reader, refused in ((SHIPPED, 0), (folder, 1)):
        options = f"--reader {reader} --work {tmp_path}/{refused} --sets popqa --methods rag"
        monkeypatch.setattr("sys.argv", ["evidence", *options.split()])
        evidence.main()
        made = json.loads((tmp_path / str(refused) / "evidence.json").read_text(encoding="utf-8"))
        assert made["sets"]["popqa"]["shipped"]["rag"]["refused"][0] == refused


def test_tables_of_some_methods_lack_the_others(made: Any) -> None:
    popqa = made["sets"]["popqa"]
    methods = {name: found for name, found in popqa["whole"]["methods"].items() if name != "crag"}
    some = {"whole": {**popqa["whole"], "methods": methods}, "seconds": {"rag": 1}}
    found = tables({"sets": {"popqa": {**popqa, **some, "evaluator": None}}})
    assert "evaluator" not in found
    assert "| CRAG |" not in found["match"] + found["shipped"] + found["cost"]
    assert "| Self-RAG, likelihood alone | Self-RAG's, weighed again |" in found["cost"]


def test_likelihood_weighs_what_self_rag_wrote() -> None:
    asked = [evidence.NAMES["likelihood"], "self_rag"]
    assert evidence.choose_specs(asked, is_model=True)[0].reweighs == "self_rag"
    for some, is_model in ((asked[:1], True), (asked, False)):
        assert not any(spec.reweighs for spec in evidence.choose_specs(some, is_model=is_model))


def test_the_card_has_the_figures_of_real_retrieval(made: Any) -> None:
    card = CARD.read_text(encoding="utf-8")
    for found in (made["sets"][name] for name in ("popqa", "triviaqa", "multihop")):
        shipped = found["shipped"]["self_rag"]
        cells = [interval(shipped[key]) for key in ("right", "wrong")]
        cells.append(f"{shipped['refused_unheld'][0]:.3f} of {shipped['unheld']}")
        cells += [interval(found["evaluator"][key]) for key in ("grades", "title_rule")]
        assert f"| {' | '.join(cells)} |" in card


@pytest.mark.slow
@needs_data
def test_its_questions_are_those_of_the_sets_and_were_not_trained_on(made: Any) -> None:
    sets = evidence.read_sets(300)
    hashes = {
        name: [evidence.question_hash(a.question.question)[:16] for a in s]
        for name, s in sets.items()
    }
    own = {evidence.question_hash(row["question"])[:16] for row in lines(OWN)}
    for name, found in made["sets"].items():
        # Which questions on own files are asked depends on the files of the machine.
        assert set(found["hashes"]) <= own if name == "files" else found["hashes"] == hashes[name]
    trained = {evidence.question_hash(row.question)[:16] for row in real_rows().train}
    assert not trained & {each for found in hashes.values() for each in found}
    for name in ("popqa", "triviaqa", "multihop"):
        assert {split_of(a.question.question) for a in sets[name]} == {evidence.SPLIT}
        assert all(len(a.question.passages or ()) == 5 for a in sets[name])


def test_a_share_of_the_questions_loses_the_passages_that_answer() -> None:
    class Found:
        def search(self, query: str, k: int) -> list[Document]:
            return [Document(f"{query} {n}", metadata={"gold": n < 2}) for n in range(k)]

    asked = [evidence.Asked(question, lambda d: d.metadata["gold"]) for question in QUESTIONS]
    whole, without = evidence.retrieve(asked, Found())  # type: ignore[arg-type]
    assert [len(q.passages or ()) for q in whole] == [5] * 10
    assert len(without) == 4
    for question in without:
        kept = [document.page_content for document in question.passages or ()]
        assert kept == [f"{question.question} {n}" for n in range(2, 7)]


def test_outcomes_without_gold_replace_those_with_it() -> None:
    def run(answer: str, some: list[Question]) -> Run:
        return Run(some, [Outcome(q.id, name, answer) for name in evidence.NAMES for q in some])

    replaced = evidence.replace(run("Ada", QUESTIONS), run("Bob", QUESTIONS[:4]))
    assert [o.answer for o in replaced.of("rag")] == ["Bob"] * 4 + ["Ada"] * 6
    found = evidence.figures(replaced)
    assert found["methods"]["crag"]["match"][0] == 0.6
    assert found["pairs"][0]["difference"] == 0.0


def test_shares_of_right_wrong_and_refused_and_the_evaluators_auc() -> None:
    texts = ("Ada wrote it", "Bob wrote it")
    passages = tuple(Document(text, metadata={"title": text.split()[0]}) for text in texts)
    questions = [Question(str(n), "Did Bob write it?", ("Ada",), passages) for n in range(4)]
    answers = ("Ada", "Bob", "", "Cid")
    judged, made = {"depth": 0, "sequence_probability": 0.75}, ((1, "Ada", 0.8), (0, "Bob", 0.2))
    first, second = (
        {**judged, "passage": n, "text": t, "score": p, "critique": {"ISREL": p}, "chosen": n == 1}
        for n, t, p in made
    )
    given: Any = {"candidates": (first, second, {**second, "depth": 1, "score": 9.0})}
    outcomes = [
        Outcome(str(n), method, answer, refused=not answer, grades=(0.5, -0.5), **given)
        for method in ("self_rag", "crag")
        for n, answer in enumerate(answers)
    ]
    run = Run(questions, outcomes)
    holds = {"0": [True, False], "1": [True, False], "2": [False, False], "3": [False, False]}
    shipped = evidence.shipped_figures(run, holds)["crag"]
    assert [shipped[key][0] for key in ("right", "wrong", "refused")] == [0.25, 0.5, 0.25]
    assert (shipped["refused_unheld"][0], shipped["unheld"]) == (0.5, 2)
    sure = evidence.confidence_figures(run)
    assert (sure["confidence"][0], sure["right"][0], sure["error"]) == (0.75, 0.25, 0.5)
    graded = evidence.evaluator_figures(run, {q.id: [True, False] for q in questions})
    assert (graded["grades"][0], graded["title_rule"][0]) == (1.0, 0.0)
    assert graded["difference"] == [1.0, 1.0, 1.0]
    assert evidence.segment_figures(run)["difference"][0] == -0.5, "p(y) is the same for all"
    unlike = {"0": [True, True], "1": [False, True], "2": [False, True], "3": [False, False]}
    assert evidence.isrel_figures(run, unlike)["isrel"][0] == 0.75
    assert evidence.isrel_figures(run, {key: [True, True] for key in unlike})["isrel"] is None
