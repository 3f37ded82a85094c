"""What is said for the spans that were found."""

import pytest

from selfcorrect_rag.prompts.sentences import sentence_place
from selfcorrect_rag.reader.answers import LONGEST_SENTENCE, stated
from selfcorrect_rag.reader.questions import asks_for_several
from selfcorrect_rag.reader.reader import Span

TEXT = "It runs in Oslo. Backups go to Bergen, Bodø and Molde at night. Ask Ida Berg first."


def span(
    text: str, sure: float, sentence: float | None = None, p: float = 0.5, passage: str = TEXT
) -> Span:
    start = passage.index(text)
    around = sentence_place(passage, start, start + len(text))
    return Span(text, start, p, sure, around, sure if sentence is None else sentence)


@pytest.mark.parametrize(
    ("sure", "sentence", "said", "confidence"),
    [
        (0.6, 0.9, "Ida Berg", 0.6),
        (0.5, 0.51, "Ask Ida Berg first.", 0.51),
        (0.2, 0.9, "Ask Ida Berg first.", 0.9),
        (0.2, 0.5, "Ida Berg", 0.2),  # neither is above: the guess is the span
    ],
)
def test_the_sentence_is_said_where_only_that_is_sure(
    sure: float, sentence: float, said: str, confidence: float
) -> None:
    answer = stated("Whom do I ask?", TEXT, [span("Ida Berg", sure, sentence)], 0.5)
    assert answer == (said, confidence)


def test_a_long_sentence_is_not_said_for_a_span() -> None:
    passage = "Ask Ida Berg " + "at once " * (LONGEST_SENTENCE // 8) + "please."
    unsure = span("Ida Berg", 0.2, 0.9, passage=passage)
    assert stated("Whom do I ask?", passage, [unsure], 0.5) == ("Ida Berg", 0.2)
    longest = f"Ask Ida Berg {'x' * (LONGEST_SENTENCE - 14)}."
    unsure = span("Ida Berg", 0.2, 0.9, passage=longest)
    assert stated("Whom do I ask?", longest, [unsure], 0.5) == (longest, 0.9)


@pytest.mark.parametrize("question", ["How do I reach it?", "Does Ida Berg know?"])
def test_how_to_and_yes_or_no_get_the_sentence(question: str) -> None:
    answer = stated(question, TEXT, [span("Ida Berg", 0.3, 0.8)], 0.9)
    assert answer == ("Ask Ida Berg first.", 0.8)
    answer = stated(question, TEXT, [span("Ida Berg", 0.8, 0.3)], 0.5)
    assert answer == ("Ask Ida Berg first.", 0.8)


def test_several_spans_answer_what_asks_for_several() -> None:
    spans = [
        span("Molde", 0.9, p=0.5),
        span("Bergen", 0.4, p=0.15),
        span("Bodø", 0.4, p=0.16),
        span("Oslo", 0.3, p=0.14),
    ]
    asked = "Which towns do backups go to?"
    assert stated(asked, TEXT, spans, 0.5) == ("Bergen, Bodø, Molde", 0.9)
    assert stated("Which town do backups go to?", TEXT, spans, 0.5).text == "Molde"


def test_a_span_is_said_once() -> None:
    passage = "Molde, and again Molde."
    first = span("Molde", 0.9, passage=passage)
    again = first._replace(start=17)
    assert stated("Which towns are there?", passage, [first, again], 0.5).text == "Molde"


@pytest.mark.parametrize(
    "question",
    [
        "Which ASGI servers can I install as extras?",
        "On which network file systems may it never succeed?",
        "Which packages let a maintainer declare users?",
        "which of the options are safe",
        "What are the extras?",
        "Who were the founders?",
        "Name all the ports.",
    ],
)
def test_plurals_ask_for_several(question: str) -> None:
    assert asks_for_several(question)


@pytest.mark.parametrize(
    "question",
    [
        "Which class does it have?",
        "Which status does it exit with?",
        "What was his job?",
        "Which process runs?",
        "What happens if it fails?",
        "Which company stands behind it?",
        "Which of the ports is open?",
        "What is listed?",
        "Who is it?",
    ],
)
def test_singulars_do_not(question: str) -> None:
    assert not asks_for_several(question)
