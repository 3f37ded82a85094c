"""The answer for the spans that were found, and the rationale."""

from collections.abc import Mapping, Sequence

import pytest

from selfcorrect_rag.prompts.reading import REFUSAL, sentence_place
from selfcorrect_rag.reader.answers import (
    MAX_NAMED,
    MAX_SENTENCE,
    Answer,
    is_readable,
    state_answer,
    write_rationale,
)
from selfcorrect_rag.reader.reader import Passage, Span
from tests.reader.scripted_reader import reading

TEXT = "It runs in Oslo. Backups go to Bergen, Bodø and Molde at night. - Ask Ida Berg first."


def span(
    text: str, sure: float, sentence: float | None = None, p: float = 0.5, passage: str = TEXT
) -> Span:
    start = passage.index(text)
    around = sentence_place(passage, start, start + len(text))
    return Span(text, start, p, sure, around, sure if sentence is None else sentence)


@pytest.mark.parametrize(
    ("sure", "sentence", "answer"),
    [
        (0.6, 0.9, ("Ida Berg", 0.6)),
        (0.5, 0.51, ("Ask Ida Berg first.", 0.51)),
        (0.2, 0.5, ("Ida Berg", 0.2)),  # neither is above: the guess is the span
    ],
)
def test_the_sentence_is_given_if_only_that_is_sure(
    sure: float, sentence: float, answer: tuple[str, float]
) -> None:
    assert state_answer("Whom do I ask?", TEXT, [span("Ida Berg", sure, sentence)], 0.5) == answer
    passage = "Ask Ida Berg " + "at once " * (MAX_SENTENCE // 8) + "please."
    unsure = span("Ida Berg", 0.2, 0.9, passage=passage)
    assert state_answer("Whom do I ask?", passage, [unsure], 0.5) == ("Ida Berg", 0.2)


@pytest.mark.parametrize(
    ("question", "is_sentence"),
    [
        ("How do I reach it?", True),
        ("What is the command to reach it?", True),
        ("Does Ida Berg know?", True),
        ("Is it Ida Berg or Tom?", False),
        ("Who knows it?", False),
    ],
)
def test_how_to_and_yes_or_no_get_the_sentence(question: str, is_sentence: bool) -> None:
    text, sure = state_answer(question, TEXT, [span("Ida Berg", 0.8, 0.3)], 0.5)
    assert (text, sure) == ("Ask Ida Berg first." if is_sentence else "Ida Berg", 0.8)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which towns do backups go to?", "Bergen, Bodø, Molde"),
        ("What are the towns?", "Bergen, Bodø, Molde"),
        ("Name all the towns.", "Bergen, Bodø, Molde"),
        ("Which town do backups go to?", "Molde"),
        ("Which status does it have?", "Molde"),
    ],
)
def test_plurals_are_answered_by_several_spans(question: str, answer: str) -> None:
    spans = [
        span("Molde", 0.9, p=0.5),
        span("Bergen", 0.4, p=0.15),
        span("Bodø", 0.4, p=0.16),
        span("Oslo", 0.3, p=0.14),
        span("Molde", 0.2, p=0.5),
    ]
    assert state_answer(question, TEXT, spans, 0.5) == (answer, 0.9)


def test_an_answer_is_one_line_without_punctuation_around_it() -> None:
    passage = "It was  Jane\n  Austen,; of course."
    found = state_answer("Who was it?", passage, [span(" Jane\n  Austen,;", 1, passage=passage)], 0)
    assert found.text == "Jane Austen"


def test_questions_in_other_scripts_are_not_read() -> None:
    assert is_readable("Where is the Café Zürich?")
    assert not any(map(is_readable, ["どのポートですか", "На каком порту?", "8443", "?"]))


def rationale(findings: Sequence[Mapping[str, float]], texts: Sequence[str] = ()) -> Answer:
    texts = texts or [f"{next(iter(each), 'x')} is here." for each in findings]
    readings = [reading(text, each) for text, each in zip(texts, findings, strict=True)]
    return write_rationale("Where?", [Passage("", t) for t in texts], readings, 0.4, REFUSAL)


def test_a_rationale_quotes_documents_and_ends_with_the_answer() -> None:
    text, probability = rationale([{"Oslo": 0.5}, {}, {"Bergen": 0.9}, {"the Bergen": 0.8}])
    assert text.splitlines() == [
        "Document [1], set aside because it gives another answer: “Oslo is here.”",
        "Document [3]: “Bergen is here.”",
        "Document [4]: “the Bergen is here.”",
        "Without an answer: document [2].",
        "",
        "The question is answered by document [3], document [4].",
        "Answer: Bergen",
    ]
    assert probability == pytest.approx(0.98)


def test_documents_that_agree_outweigh_a_surer_one() -> None:
    assert rationale([{"Lyon": 0.7}, {"Paris": 0.6}, {"Paris": 0.5}]).text.endswith("Paris")
    assert rationale([{"Lyon": 0.7}, {"Paris": 0.6}]).text.endswith("Lyon")
    refused = rationale([{"Paris": 0.39}, {"Paris": 0.39}])
    assert refused.text == f"None of the documents answers the question.\n\n{REFUSAL}"
    assert refused.confidence == pytest.approx(0.61)


def test_a_sure_sentence_counts_as_much_as_a_sure_span() -> None:
    unsure, other = reading("It was Oslo.", {"Oslo": 0.2}), reading("Lyon.", {"Lyon": 0.5})
    unsure = unsure._replace(spans=(unsure.spans[0]._replace(sentence_confidence=0.95),))
    documents = [Passage("", "It was Oslo."), Passage("", "Lyon.")]
    made = write_rationale("Where?", documents, [unsure, other], 0.4, REFUSAL)
    assert made.text.endswith("Answer: It was Oslo.")
    assert made.confidence == pytest.approx(0.95)


def test_of_many_documents_only_some_are_named() -> None:
    text = rationale([{"Lyon": 0.95}, *[{"Paris": 0.9}] * 2000, *[{}] * 2000]).text
    assert (text.count("Document ["), text.count("document [")) == (MAX_NAMED, MAX_NAMED)
    assert text.endswith("Answer: Paris")
