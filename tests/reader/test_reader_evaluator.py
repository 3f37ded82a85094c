"""The reader as CRAG's evaluator: grades in their range, blanks, titles, thresholds."""

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.models.retrieval_evaluator import grade, grading, titled
from selfcorrect_rag.reader.reader import Passage, ReaderCalibration
from selfcorrect_rag.reader.reader_llm import ReaderEvaluator
from selfcorrect_rag.thresholds import Thresholds
from tests.reader.scripted_network import word_reader
from tests.reader.scripted_reader import ScriptedReader, reading


def evaluator(relevant: dict[str, float]) -> tuple[ReaderEvaluator, ScriptedReader]:
    """Over a reader that finds passages with these words so relevant."""

    def found(question: str, passage: Passage) -> Any:
        sure = max((p for word, p in relevant.items() if word in passage.text), default=0.0)
        return reading(passage.text, {}, relevant=sure)

    scripted: Any = ScriptedReader(found)
    scripted.calibration = ReaderCalibration(thresholds=(0.5, -0.25))
    return ReaderEvaluator(scripted), scripted


def test_grades_go_from_one_end_of_the_scale_to_the_other_and_blanks_are_not_read() -> None:
    judge, reader = evaluator({"gold": 1.0, "vague": 0.4})
    passages = ["gold", "", "vague", " \n", "noise"]
    assert grade(judge, "Which?", passages) == pytest.approx([1.0, -1.0, -0.2, -1.0, -1.0])
    asked = {"question": "Which?", "passages": passages}
    assert asyncio.run(grading(judge).ainvoke(asked)) == {"scores": judge.score(**asked)}
    assert [passage.text for _, passage in reader.calls[0]] == ["gold", "vague", "noise"]
    assert grade(judge, "Which?", []) == []


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        (titled(Document("A novel.", metadata={"title": "Emma"})), ("Emma", "A novel.")),
        ("A // B // C", ("A", "B // C")),
        ("See https://a.org/b//c for it", ("", "See https://a.org/b//c for it")),
        ("int x;\nint y; // the port", ("", "int x;\nint y; // the port")),
        (f"{'long ' * 60}// text", ("", f"{'long ' * 60}// text")),
    ],
)
def test_a_title_stands_before_its_mark(text: str, passage: tuple[str, str]) -> None:
    judge, reader = evaluator({})
    judge.score("Which?", [text])
    assert reader.calls == [[("Which?", passage)]]


def test_its_thresholds_are_those_of_the_weights_and_its_identity_the_readers() -> None:
    judge, _ = evaluator({})
    assert judge.thresholds == Thresholds(upper=0.5, lower=-0.25)
    one, other = (ReaderEvaluator(word_reader(word)[0]) for word in ("port", "host"))
    assert one.identity != other.identity
    assert one.identity == ReaderEvaluator(one.reader).identity
