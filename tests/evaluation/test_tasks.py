"""Tasks: each format of the papers and of people, samples, what is left out, and real files."""

import gzip
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, BadTask, MissingExtra
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.tasks import Skipped, asked, question_hash, read_task
from selfcorrect_rag.prompts.instruct_rag import TASK_INSTRUCTIONS as INSTRUCT_INSTRUCTIONS
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS
from selfcorrect_rag.intake import source_of, title_of

SHARED = Path(__file__).parents[3] / "shared" / "data"


def written(folder: Path, *rows: object, name: str = "task.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def only(folder: Path, row: object, **options: Any) -> Question:
    task = read_task(written(folder, row), strict=True, **options)
    (question,) = task.questions
    assert question.task in ("", *TASK_INSTRUCTIONS, *INSTRUCT_INSTRUCTIONS)
    return question


def page(text: str, **metadata: str) -> Document:
    return Document(text, metadata=metadata)


def test_the_papers_rows(tmp_path: Path) -> None:
    row = {
        "question": " Who wrote Emma? ",
        "answers": ["Jane Austen", "Austen", "Austen", " "],
        "ctxs": [
            {"id": 7, "title": "Emma", "text": "By Austen.", "score": "1.5", "hasanswer": True},
            {"title": "Ulysses", "text": "By Joyce.", "url": "https://a.b", "hasanswer": False},
        ],
        "pop": 12,
    }
    question = only(tmp_path, row)
    assert question == Question(
        "row-1",
        "Who wrote Emma?",
        ("Jane Austen", "Austen"),
        (
            Document("By Austen.", metadata={"title": "Emma"}, id="7"),
            page("By Joyce.", title="Ulysses", source="https://a.b"),
        ),
        extra={"pop": 12, "relevant": (True, False)},
    )
    assert question.passages
    assert title_of(question.passages[0]) == "Emma"
    assert source_of(question.passages[1]) == "https://a.b"


def test_no_answer_and_no_passages_are_no_fault(tmp_path: Path) -> None:
    assert only(tmp_path, {"question": "Why?"}) == Question("row-1", "Why?")
    assert only(tmp_path, {"question": "Why?", "answers": None, "ctxs": []}).passages == ()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"answer": "Rome"}, ("Rome",)),
        ({"answer": 35}, ("35",)),
        ({"golden_answers": ["Rome", "Roma"]}, ("Rome", "Roma")),
        ({"possible_answers": '["Rome", "Roma"]'}, ("Rome", "Roma")),
        ({"answer": {"value": "Rome", "aliases": ["Roma", "Rome"]}}, ("Rome", "Roma")),
        ({"answers": {"text": ["Rome"], "answer_start": [3]}}, ("Rome",)),
        ({"answers": [["Rome", "Roma"], ["Oslo"]]}, ("Rome", "Roma", "Oslo")),
        ({"answer": "Rome", "answer_aliases": ["Roma"], "answerable": True}, ("Rome", "Roma")),
        ({"reference": "Rome"}, ("Rome",)),
    ],
)
def test_answers_as_data_sets_write_them(
    tmp_path: Path, answers: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert only(tmp_path, {"question": "Where?", **answers}).answers == expected


@pytest.mark.parametrize(
    ("passages", "expected"),
    [
        ({"docs": [{"title": "T", "text": "x"}]}, [page("x", title="T")]),
        ({"paragraphs": [{"title": "T", "paragraph_text": "x"}]}, [page("x", title="T")]),
        ({"contexts": ["x", "y"]}, [page("x"), page("y")]),
        ({"context": [["T", ["One.", " Two."]]]}, [page("One. Two.", title="T")]),
        (
            {"context": {"title": ["T", "U"], "sentences": [["One."], ["Two."]]}},
            [page("One.", title="T"), page("Two.", title="U")],
        ),
        ({"title": "T", "passage": "x"}, [page("x", title="T")]),
        ({"retrieval_result": [{"contents": '"T"\nx\ny'}]}, [page("x\ny", title="T")]),
        ({"ctxs": [{"contents": "x"}]}, [page("x")]),
        (
            {"ctxs": [{"page_content": "x", "metadata": {"title": "T", "source": "a.md"}}]},
            [page("x", title="T", source="a.md")],
        ),
    ],
)
def test_passages_as_data_sets_write_them(
    tmp_path: Path, passages: dict[str, Any], expected: list[Document]
) -> None:
    assert only(tmp_path, {"question": "Where?", **passages}).passages == tuple(expected)


def test_supporting_facts_say_which_passages_are_relevant(tmp_path: Path) -> None:
    row = {
        "_id": "5a7",
        "question": "What?",
        "answer": "a spirit",
        "context": [["A", ["x."]], ["B", ["y."]], ["C", ["z."]]],
        "supporting_facts": [["C", 0], ["A", 3]],
    }
    question = only(tmp_path, row)
    assert question.id == "5a7"
    assert question.extra["relevant"] == (True, False, True)
    row["supporting_facts"] = {"title": ["B"], "sent_id": [0]}
    assert only(tmp_path, row).extra["relevant"] == (False, True, False)


def test_flags_on_some_passages_alone_are_no_labels(tmp_path: Path) -> None:
    ctxs = [{"text": "x", "hasanswer": True}, {"text": "y"}]
    assert "relevant" not in only(tmp_path, {"question": "Q", "ctxs": ctxs}).extra


def test_flashrag(tmp_path: Path) -> None:
    metadata = {"type": "bridge", "context": {"title": ["T"], "content": [["One.", "Two."]]}}
    row = {"id": "dev_0", "question": "Q?", "golden_answers": ["a"], "metadata": metadata}
    expected = Question(
        "dev_0", "Q?", ("a",), (page("One. Two.", title="T"),), extra={"type": "bridge"}
    )
    assert only(tmp_path, row) == expected
    row = {"id": "1", "question": "Q?", "golden_answers": [1], "choices": ["gas", "metal"]}
    question = only(tmp_path, row)
    assert (question.answers, question.choices) == (("B",), {"A": "gas", "B": "metal"})


ARC = {"A": "gas", "B": "metal", "C": "salt"}


@pytest.mark.parametrize(
    "row",
    [
        {"choices": {"label": ["A", "B", "C"], "text": list(ARC.values())}, "answerKey": "B"},
        {"choices": {"label": ["1", "2", "3"], "text": list(ARC.values())}, "answerKey": "2"},
        {"choices": dict(zip("123", ARC.values(), strict=True)), "answer": "2"},
        {"choices": ARC, "answer": "B"},
        {"choices": ARC, "answers": ["B"]},
        {"choices": ARC, "answer": "metal"},
        {"choices": [{"label": key, "text": text} for key, text in ARC.items()], "answer": "B"},
        {"choices": list(ARC.values()), "answer": 1},
    ],
)
def test_options_have_letters_whatever_the_file_calls_them(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    question = only(tmp_path, {"id": "Mercury", "question": "What is tin?", **row})
    assert (question.answers, question.choices, question.task) == (("B",), ARC, "arc")
    assert asked(question) == "What is tin?\nA: gas\nB: metal\nC: salt"


def test_the_first_release_of_arc_has_a_stem(tmp_path: Path) -> None:
    options = [{"label": key, "text": text} for key, text in zip("1234", "wxyz", strict=True)]
    row = {"id": "M", "question": {"stem": "Which?", "choices": options}, "answerKey": "4"}
    question = only(tmp_path, row)
    assert (question.question, question.answers) == ("Which?", ("D",))
    assert question.extra == {"answerKey": "4"}  # what the official script compares with


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"claim": "Tea cures.", "label": "false"}, ("false",)),
        ({"claim": "Tea cures.", "label": "SUPPORTS"}, ("true",)),
        ({"claim": "Tea cures.", "question": "q", "answers": ["true"], "label": 2}, ("true",)),
        ({"claim": "Tea cures.", "label": True}, ("true",)),
        ({"claim": "Tea cures."}, ()),
    ],
)
def test_pubhealth(tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...]) -> None:
    question = only(tmp_path, row)
    assert (question.question, question.answers, question.task) == (
        "Tea cures.",
        answers,
        "pubhealth",
    )
    assert question.choices == {"true": "true", "false": "false"}
    assert asked(question) == "Tea cures."


def test_a_named_format_reads_what_the_fields_do_not_tell(tmp_path: Path) -> None:
    row = {"question": "Tea cures.", "answers": ["true"]}
    assert only(tmp_path, row).choices == {}
    assert only(tmp_path, row, format="pubhealth").task == "pubhealth"
    with pytest.raises(BadArgument, match="'fever' is no format of a task: give one of qa, arc"):
        read_task(written(tmp_path, row), format="fever")


def test_biographies(tmp_path: Path) -> None:
    question = only(tmp_path, {"topic": "Ada Lovelace", "cat": "rare"})
    assert question.question == "Tell me a bio of Ada Lovelace."
    assert question.extra == {"topic": "Ada Lovelace", "cat": "rare"}
    assert only(tmp_path, {"topic": "Ada", "question": "Who is Ada?"}).question == "Who is Ada?"


def test_asqa_and_eli5_keep_what_their_metrics_read(tmp_path: Path) -> None:
    pairs = [
        {"question": "In 1998?", "short_answers": ["Oslo", "Christiania"]},
        {"question": "In 2000?", "short_answers": ["Rome", "Oslo"]},
    ]
    docs = [{"id": "9", "title": "T", "text": "x"}]
    row = {"sample_id": -3, "question": "Where?", "qa_pairs": pairs, "docs": docs, "answer": "Long"}
    question = only(tmp_path, row)
    assert question == Question(
        "-3",
        "Where?",
        ("Oslo", "Christiania", "Rome"),
        (Document("x", metadata={"title": "T"}, id="9"),),
        "asqa",
        extra={"qa_pairs": pairs, "docs": docs, "answer": "Long"},
    )
    question = only(tmp_path, {"question": "Why?", "claims": ["c"], "answer": "Long", "docs": docs})
    assert (question.task, question.answers) == ("eli5", ())
    assert question.extra == {"claims": ["c"], "answer": "Long"}


def test_yes_no_and_maybe(tmp_path: Path) -> None:
    question = only(tmp_path, {"qid": "e0", "question": "Is it?", "answer": False, "facts": ["f"]})
    assert (question.answers, list(question.choices)) == (("no",), ["yes", "no"])
    assert question.passages is None  # facts are the evidence, not what was retrieved
    row = {"QUESTION": "Is it?", "CONTEXTS": ["x"], "final_decision": "maybe", "LONG_ANSWER": "l"}
    question = only(tmp_path, row)
    assert (question.answers, question.passages) == (("maybe",), (page("x"),))
    assert list(question.choices) == ["yes", "no", "maybe"]


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = (
        '\ufeff,question,answers,topic\r\n0,"Who, when?","[""a"", ""b""]",x\r\n\r\n1,Why?,[c,y\r\n'
    )
    path.write_text(rows, encoding="utf-8", newline="")
    task = read_task(path)
    assert task.questions == (Question("row-1", "Who, when?", ("a", "b"), extra={"topic": "x"}),)
    reason = "has '[c' as its answers, which is no JSON list"
    assert task.skipped == (Skipped(f"{path}:4", reason),)
    for name, rows in (
        ("a.csv", "question;answer\nWho, when?;a\n"),
        ("a.tsv", "question\tanswer\nWho, when?\ta\n"),
        ("b.csv", 'question,answer\n"Who,\n when?",a\n'),
    ):
        path = tmp_path / name
        path.write_text(rows, encoding="utf-8")
        (question,) = read_task(path, strict=True).questions
        assert (" ".join(question.question.split()), question.answers) == ("Who, when?", ("a",))


def test_fields_of_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "Why?", "gold": ["a"], "question": "other"})
    fields = {"question": "prompt", "answers": "gold"}
    (question,) = read_task(path, fields=fields).questions
    assert (question.question, question.answers) == ("Why?", ("a",))


# Which questions


def many(folder: Path, count: int = 200) -> Path:
    return written(folder, *({"id": i, "question": f"Question {i}?"} for i in range(count)))


def test_the_first_questions_and_no_more_are_read(tmp_path: Path) -> None:
    path = many(tmp_path, 20)
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    task = read_task(path, limit=3, strict=True)
    assert [question.id for question in task.questions] == ["0", "1", "2"]
    assert task.sample == "the first 3"
    assert read_task(path).sample == "all"


def test_a_drawn_sample_is_stable(tmp_path: Path) -> None:
    task = read_task(many(tmp_path), limit=20, seed=1)
    ids = [question.id for question in task.questions]
    assert len(ids) == 20
    assert ids == sorted(ids, key=int)
    assert task.sample == "20 of 200, drawn with seed 1"
    assert ids != [str(i) for i in range(20)]
    lines = many(tmp_path).read_text(encoding="utf-8").splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    (tmp_path / "task.jsonl").write_text("".join(lines), encoding="utf-8")
    again = read_task(tmp_path / "task.jsonl", limit=20, seed=1)
    assert {question.id for question in again.questions} == set(ids)
    fewer = read_task(many(tmp_path), limit=5, seed=1)
    assert {question.id for question in fewer.questions} < set(ids)
    other = read_task(many(tmp_path), limit=20, seed=2)
    assert {question.id for question in other.questions} != set(ids)
    with pytest.raises(BadArgument, match="limit is 0"):
        read_task(many(tmp_path), limit=0)


def test_questions_seen_in_training_are_kept_out(tmp_path: Path) -> None:
    seen = {question_hash("question 1"), question_hash("  QUESTION, 3 ")}
    task = read_task(many(tmp_path, 6), without=seen, limit=3)
    assert [question.id for question in task.questions] == ["0", "2", "4"]
    assert task.kept_out == ("1", "3")
    assert question_hash("?!") != question_hash("!!")


def test_the_fingerprint_is_of_the_questions(tmp_path: Path) -> None:
    rows = [{"id": 1, "question": "A?", "ctxs": [{"text": "x"}]}, {"id": 2, "question": "B?"}]
    plain = read_task(written(tmp_path, *rows))
    assert plain.name == "task"
    path = tmp_path / "other.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows, indent=1).encode("utf-8-sig")))
    assert read_task(path).fingerprint == plain.fingerprint
    assert read_task(path).questions == plain.questions
    changed = json.loads(json.dumps(rows))
    changed[0]["ctxs"][0]["text"] = "y"
    for other in (rows[:1], rows[::-1], changed):
        assert read_task(written(tmp_path, *other)).fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"answerable": False, "answer_aliases": ["Roma"]}, True),
        ({"is_impossible": True}, True),
        ({"unanswerable": "True"}, True),
        ({"answerable": True, "is_impossible": False, "unanswerable": None}, False),
        ({"answerable": "false"}, True),
        ({}, False),
    ],
)
def test_a_question_for_which_a_refusal_is_right(
    tmp_path: Path, fields: dict[str, object], expected: bool
) -> None:
    question = only(tmp_path, {"question": "A?", "answer": "Rome", **fields})
    assert question.unanswerable == expected
    assert question.answers == (() if expected else ("Rome",))


# Data sets by name


def test_the_real_library_reads_a_local_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "own"
    folder.mkdir()
    for split in ("test", "train"):
        written(folder, {"question": f"A {split}?", "answers": ["a"]}, name=f"{split}.jsonl")
    assert [q.question for q in read_task(f"hf:{folder}").questions] == ["A test?"]
    assert [q.question for q in read_task(f"hf:{folder}:train").questions] == ["A train?"]
    with pytest.raises(BadTask, match="cannot read split dev of the Hugging Face data set"):
        read_task(f"hf:{folder}:dev")


def test_a_hugging_face_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load_dataset(
        path: str, name: str | None = None, *, split: str | None = None, streaming: bool = False
    ) -> Any:
        calls.append((path, name, split, streaming))
        if split == "validation":
            raise ValueError("Bad split: validation. Available splits: ['test']")
        return iter([{"question": "A?", "answer": ["a"]}, {"question": None}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    task = read_task("hf:google/nq")
    assert task.name == "hf:google/nq"
    assert task.questions == (Question("row-1", "A?", ("a",)),)
    assert task.skipped == (Skipped("hf:google/nq: row 2", "has no question"),)
    read_task("hf:google/nq:train")
    read_task("hf:google/nq:open:train")
    assert calls == [
        ("google/nq", None, "test", True),
        ("google/nq", None, "train", True),
        ("google/nq", "open", "train", True),
    ]
    with pytest.raises(BadTask, match=r"split validation .* Available splits: \['test'\]"):
        read_task("hf:google/nq:validation")
    for name in ("hf:", "hf:a:b:c:d", "hf:a:"):
        with pytest.raises(BadTask, match="is no data set: write hf:NAME"):
            read_task(name)


def test_a_langsmith_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def list_examples(self, dataset_id: Any = None, dataset_name: str | None = None) -> Any:
            if dataset_name != "mine":
                raise LookupError(f"Dataset {dataset_name} not found")
            yield SimpleNamespace(
                id=7, inputs={"question": "A?"}, outputs={"answer": "a"}, metadata={"level": 2}
            )
            yield SimpleNamespace(id=8, inputs={"question": "B?"}, outputs=None, metadata=None)

    monkeypatch.setitem(sys.modules, "langsmith", SimpleNamespace(Client=Client))
    assert read_task("langsmith:mine").questions == (
        Question("7", "A?", ("a",), extra={"level": 2}),
        Question("8", "B?"),
    )
    with pytest.raises(BadTask, match=r"LangSmith data set other .*not found"):
        read_task("langsmith:other")
    with pytest.raises(BadTask, match="write langsmith:NAME"):
        read_task("langsmith:")


@pytest.mark.parametrize(("source", "module"), [("hf:a", "datasets"), ("langsmith:a", "langsmith")])
def test_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, source: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtra, match=f"{module} is not installed: .*selfcorrect-rag.datasets"
    ):
        read_task(source)


# Real files


@pytest.mark.parametrize(
    ("name", "questions", "with_answers", "passages", "relevant"),
    [
        ("popqa_dev_741.jsonl", 741, 741, 1482, 741),
        ("nq_open_oracle_2655.jsonl.gz", 2655, 2655, 2655, 2655),
        ("arc_challenge_dev_299.jsonl", 299, 299, 0, 0),
        ("hotpotqa_train100.json", 100, 100, 994, 100),
        ("musique_train100.json", 100, 100, 2000, 100),
        ("pubmedqa_pqal_1000.json", 1000, 1000, 3358, 0),
        ("strategyqa_dev_229.json", 229, 229, 0, 0),
        ("reading/qed.jsonl.gz", 1188, 1188, 1188, 0),
    ],
)
def test_real_files(
    name: str, questions: int, with_answers: int, passages: int, relevant: int
) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is not here")
    task = read_task(SHARED / name, strict=True)
    assert len(task.questions) == questions
    assert sum(bool(question.answers) for question in task.questions) == with_answers
    assert sum(len(question.passages or ()) for question in task.questions) == passages
    assert sum("relevant" in question.extra for question in task.questions) == relevant
    for question in task.questions:
        if question.choices:
            assert set(question.answers) <= question.choices.keys()


def test_real_files_of_no_questions_are_named_line_by_line() -> None:
    path = SHARED / "selfrag_generator_train_50samples.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    task = read_task(path)
    assert not task.questions
    assert task.skipped[49] == Skipped(f"{path}:50", "has no question")
