"""What the reader is trained on, and what is set aside: on data by hand, and on the real data."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nano_training.reader import mixture
from nano_training.reader.kept_out import FILES
from nano_training.reader.mixture import (
    PUBMED_HELD_OUT,
    own_documents,
    requests_without_evidence,
    selfrag_questions,
    training_rows,
    yes_no_rows,
)
from nano_training.reader.never_trained import hotpotqa, musique_hops, popqa
from nano_training.reader.relations import relations
from nano_training.reader.rows import (
    HELD_OUT,
    NQ_HELD_OUT,
    READING,
    Row,
    Split,
    drawn,
    lines,
    real_rows,
    tidy,
)
from nano_training.reader.written import written_rows


@pytest.fixture(scope="module")
def split(real: Path) -> Split:
    return real_rows(real)


def written(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """Two hundred questions of NQ-open; QED has the same ones, each in an article of its own."""
    gold = [
        {"question": f"who sang song {k}", "answers": ["Nobody", f"Jo {k}"], "ctxs": [page]}
        for k in range(200)
        for page in [{"title": f"Song {k}", "text": f"Song {k} , by Jo {k} ."}]
    ]
    gold.append({"question": "what", "answers": ["x"], "ctxs": [{"title": "T", "text": "Silent."}]})
    written(tmp_path / "nq_open_oracle_2655.jsonl.gz", gold)
    for name in READING:
        rows = [
            {"question": asked, "title": f"{name} {k}", "passage": text, "answers": answers}
            for k in range(100)
            for asked, text, answers in [
                (f"Who sang  song {k}?" if name == "qed" else f"Who? {k}", "A B C.", ["A B", "A"]),
                (f"Which? {k}", "Not said.", ["Said"]),
            ]
        ]
        written(tmp_path / "reading" / f"{name}.jsonl.gz", rows)
    return tmp_path


def words(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))


def test_rows_are_those_whose_passage_states_the_answer(by_hand: Path) -> None:
    split = real_rows(by_hand)
    rows = [*split.train, *split.held_out]
    counts = Counter(row.source for row in rows)
    assert counts.pop("nq") == 200
    assert counts.pop("qed") < 100
    assert set(counts.values()) == {100}
    for row in rows:
        assert row.answers
        assert all(answer in row.passage for answer in row.answers)
    first = next(row for row in rows if row.source == "nq")
    assert first.passage == f"{first.title}, by {first.answers[0]}."


def test_only_qeds_answers_are_shortest_first(by_hand: Path) -> None:
    rows = real_rows(by_hand).train
    assert {row.answers for row in rows if row.source == "qed"} == {("A", "A B")}
    assert {row.answers for row in rows if row.source == "selqa"} == {("A B", "A")}


def test_a_question_of_two_sets_is_on_one_side(by_hand: Path) -> None:
    split = real_rows(by_hand)
    sides = [
        {
            name: {words(row.question) for row in side if row.source == name}
            for name in ("nq", "qed")
        }
        for side in split
    ]
    assert all(side["nq"] and side["qed"] for side in sides)
    assert not sides[0]["qed"] & sides[1]["nq"]
    assert not sides[1]["qed"] & sides[0]["nq"]


def test_shares_that_are_set_aside(by_hand: Path) -> None:
    split = real_rows(by_hand)
    held_out = Counter(row.source for row in split.held_out)
    assert held_out["nq"] == sum(drawn(f"who sang song {k}", NQ_HELD_OUT) for k in range(200))
    assert held_out["selqa"] == sum(drawn(f"selqa {k}", HELD_OUT) for k in range(100))


def test_drawing_is_for_good() -> None:
    texts = [str(number) for number in range(3000)]
    few, more = ({text for text in texts if drawn(text, share)} for share in (0.08, 0.2))
    assert few < more
    assert len(few) == pytest.approx(240, rel=0.2)
    assert len(more) == pytest.approx(600, rel=0.2)
    assert drawn("who wrote dune", 0.107) is True  # as of the first run
    assert drawn("who wrote dune", 0.106) is False


def test_tidy() -> None:
    treebank = "The dog 's ( big ) \n bone , [ he  said ] , `` is n't '' -- costs $ 5 !"
    assert tidy(treebank) == "The dog's (big) bone, [he said], \"isn't\" – costs $5!"
    assert tidy(" a  b ") == "a b"


def test_lines(tmp_path: Path) -> None:
    rows = [{"a": "č\u2028d"}, {"a": 2}]
    for name in ("x.jsonl", "x.jsonl.gz"):
        written(tmp_path / name, rows)
        assert list(lines(tmp_path / name)) == rows


def test_requests_that_need_no_passage() -> None:
    requests = list(requests_without_evidence())
    assert len(requests) > 100
    assert "What is 17 + 5?" in requests
    assert not [text for text in requests if re.search(r"[{}]", text)]


ROWS = [
    Row("Wer \u2028 'x'?", "", 'A "č" b\nc', ("č", "b\nc"), "options"),
    Row("Why?", "T", "Nothing.", (), "relations"),
]
WRITTEN = Row("Who?", "rota.md", "Ann has it.", ("Ann",), "written: notes")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What manuals are to be left out, of each time that rows are made."""
    asked: list[Any] = []

    def manual_rows(*, exclude: Any) -> list[Row]:
        asked.append(exclude)
        return ROWS[:1]

    monkeypatch.setattr(mixture, "real_rows", lambda: Split([ROWS[1]], [ROWS[0]]))
    monkeypatch.setattr(mixture, "relation_rows", lambda data: ROWS[1:])
    monkeypatch.setattr(mixture, "written_rows", lambda: Split([WRITTEN], [ROWS[0]]))
    monkeypatch.setattr(mixture, "manual_rows", manual_rows)
    return asked


def test_rows_are_made_once_and_read_back(tmp_path: Path, made: list[Any]) -> None:
    wanted = [ROWS[1], ROWS[1], WRITTEN, ROWS[0]]
    assert training_rows(tmp_path) == training_rows(tmp_path) == wanted
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_file_that_was_cut_is_not_read(tmp_path: Path, made: list[Any]) -> None:
    (tmp_path / "rows.part").write_text('["half a row')
    assert len(training_rows(tmp_path)) == 4


def test_packages_of_own_documents_are_left_out(tmp_path: Path, made: list[Any]) -> None:
    training_rows(tmp_path)
    assert made == [own_documents()]
    assert {place.package for place in FILES.values() if place.package} <= made[0]
    assert "" not in made[0]


def test_nothing_that_is_set_aside_is_trained_on(split: Split) -> None:
    trained = {(words(row.question), row.passage) for row in split.train}
    asked = {words(row.question) for row in split.train}
    titles = {(row.source, row.title) for row in split.train}
    counts = Counter(row.source for row in split.held_out)
    assert set(counts) == {"nq", *READING}
    assert min(counts.values()) > 40
    for row in split.held_out:
        assert (words(row.question), row.passage) not in trained
        if row.source in ("nq", "qed"):
            assert words(row.question) not in asked
        else:
            assert (row.source, row.title) not in titles


def test_sets_that_are_only_measured_are_not_trained_on(real: Path, split: Split) -> None:
    asked = {words(row.question) for row in split.train}
    asked |= {words(row.question) for row in yes_no_rows(real)}
    asked |= {words(row.question) for row in written_rows().train}
    asked |= set(map(words, selfrag_questions(real)))
    measured = [row.question for row in (*popqa(real), *hotpotqa(real), *musique_hops(real))]
    measured += [
        row["question"] for row in json.loads((real / "musique_train100.json").read_text())
    ]
    measured += [row.question for row in split.held_out if row.source in ("nq", "qed")]
    measured += [row.question for row in written_rows().held_out]
    pubmed = json.loads((real / "pubmedqa_pqal_1000.json").read_text()).values()
    questions = [found["QUESTION"] for found in pubmed]
    measured += [text for text in questions if drawn(text, PUBMED_HELD_OUT)]
    assert len(measured) > 1700
    assert not asked & set(map(words, measured))


def test_no_relation_is_asked_in_the_words_of_popqa(real: Path) -> None:
    wordings = [
        re.compile(re.escape(words(asked.format(x="qqq", noun="film"))).replace("qqq", ".+"))
        for relation in relations()
        for asked in relation.ask
    ]
    measured = [words(row["question"]) for row in lines(real / "popqa_dev_741.jsonl")]
    assert len(wordings) > 300
    assert not [text for text in measured if any(form.fullmatch(text) for form in wordings)]


def test_questions_for_yes_and_no(tmp_path: Path) -> None:
    """Whatever the answer is: whether the passage decides is all that is learned."""
    asked = {
        str(k): {
            "QUESTION": f"is it {k}",
            "CONTEXTS": ["far", " a", f"b{k} ."],
            "final_decision": d,
        }
        for k, d in enumerate(("yes", "no", "maybe") * 40)
    }
    (tmp_path / "pubmedqa_pqal_1000.json").write_text(json.dumps(asked))
    facts = [{"question": "did Ann", "facts": ["Ann did.", "Bo did not."], "answer": False}]
    (tmp_path / "strategyqa_dev_229.json").write_text(json.dumps(facts))
    *medical, told = yes_no_rows(tmp_path)
    assert told == Row("did Ann", "", "Ann did. Bo did not.", (), "strategyqa")
    kept = [k for k in range(120) if not drawn(f"is it {k}", PUBMED_HELD_OUT)]
    assert 80 < len(kept) < 112
    assert medical == [Row(f"is it {k}", "", f"a b{k}.", (), "pubmedqa") for k in kept]


def test_real_questions_for_yes_and_no(real: Path) -> None:
    found = Counter(row.source for row in yes_no_rows(real))
    assert found["strategyqa"] == 229
    assert found["pubmedqa"] == pytest.approx(1000 * (1 - PUBMED_HELD_OUT), abs=40)
    assert all(row.passage and not row.answers for row in yes_no_rows(real))


def test_real_instructions_without_retrieval(real: Path) -> None:
    assert len(selfrag_questions(real)) > 5
