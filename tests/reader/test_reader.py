"""The reader around its network: windows, spans, bounds, calibration."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selfcorrect_rag.reader.network import BATCH_TOKENS, split_batches
from selfcorrect_rag.reader.reader import (
    ANSWER_CHARACTERS,
    ANSWER_TOKENS,
    MAX_SPANS,
    MAX_TOKENS,
    MAX_WINDOWS,
    OVERLAP,
    QUESTION_TOKENS,
    TITLE_TOKENS,
    Passage,
    PassageReading,
    ReaderCalibration,
    compare_title,
)
from tests.reader.scripted_network import (
    CLS,
    SEP,
    TOKENIZER,
    WordNetwork,
    ids_of,
    read_one,
    word_reader,
)

QUESTION = "Which port?"
WORDS = sorted(word for word in TOKENIZER.get_vocab() if word.isascii() and word.isalpha())
"""Each of one token."""


def words(count: int, seed: int = 0) -> list[str]:
    """Different words of one token each."""
    return random.Random(seed).sample(WORDS, count)


def windows_of(network: WordNetwork, question: str = QUESTION) -> list[list[int]]:
    """The tokens of each window, without the question."""
    head = [CLS, *ids_of(question), SEP]
    for row in network.rows:
        assert (row[: len(head)], row[-1]) == (head, SEP)
    return [row[len(head) : -1] for row in network.rows]


def test_a_short_passage_is_one_row() -> None:
    reader, network = word_reader("8443")
    (reading,) = reader.read([(QUESTION, Passage("Staging", "Port 8443 it is."))])
    ids = [CLS, *ids_of(QUESTION), SEP, *ids_of("Staging. Port 8443 it is."), SEP]
    assert network.rows == [ids]
    assert reading.tokens == len(ids)


@pytest.mark.parametrize("count", [186, 187, 188, 250, 376, 1000])
def test_windows_are_spread_evenly_and_leave_nothing_out(count: int) -> None:
    reader, network = word_reader()
    text = words(count)
    read_one(reader, " ".join(text), QUESTION)
    tokens = [token for word in text for token in ids_of(word)]
    windows = windows_of(network)
    size = MAX_TOKENS - len(ids_of(QUESTION)) - 3
    starts = [tokens.index(window[0]) for window in windows]
    assert all(window == tokens[at : at + size] for at, window in zip(starts, windows, strict=True))
    assert sorted({token for window in windows for token in window}) == sorted(tokens)
    assert {len(window) for window in windows} == {min(size, count)}
    assert all(size - (b - a) >= OVERLAP > ANSWER_TOKENS for a, b in pairwise(starts))
    assert (len(windows) - 1) * (size - OVERLAP) + OVERLAP < count, "as few as possible"


def test_of_a_very_long_passage_the_windows_with_the_questions_words_are_read() -> None:
    question = "Which port does the staging server use?"
    reader, network = word_reader("8443")
    filler = [word for word in words(9_000) if not set(ids_of(word)) & set(ids_of(question))]
    text = [*filler[:4_000], "the staging server uses port 8443", *filler[4_000:]]
    reading = read_one(reader, " ".join(text), question)
    assert reading.spans[0].text == "8443"
    assert reading.relevant > 0.9
    assert len(network.rows) == MAX_WINDOWS
    assert reading.tokens <= MAX_WINDOWS * MAX_TOKENS


def test_question_and_title_leave_room_for_the_passage() -> None:
    reader, network = word_reader("8443")
    question, title = " ".join(words(5_000, 1)), " ".join(words(300, 2))
    reading = read_one(reader, "Port 8443 it is.", question, title)
    (row,) = network.rows
    assert row[: 1 + QUESTION_TOKENS] == [CLS, *ids_of(question)[:QUESTION_TOKENS]]
    cut = ids_of(title)[:TITLE_TOKENS]
    assert row[2 + QUESTION_TOKENS :] == [*cut, *ids_of(". Port 8443 it is."), SEP]
    assert reading.spans[0].text == "8443"


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u0301", "\x00"])
def test_a_blank_passage_is_not_read(text: str) -> None:
    reader, network = word_reader("8443")
    assert read_one(reader, text, title="Ports") == (0.0, (), 0)
    assert network.rows == []
    assert reader.read([]) == []


@pytest.mark.parametrize(
    ("text", "found", "span"),
    [
        ("At the Café Zürich.", "cafe zurich", "Café Zürich"),
        ("The Zu\u0308rich Cafe\u0301\u0323.", "zurich cafe", "Zu\u0308rich Cafe\u0301\u0323"),
        ("İstanbul it is", "istanbul", "İstanbul"),
        ("a\r\nb\r\n\r\nport\t8443\r\n", "port 8443", "port\t8443"),
        ("\U0001f600 \U0001f468\u200d\U0001f469 port 8443 \U0001f600", "port 8443", "port 8443"),
        ("東京は首都です", "東 京", "東京"),
        ("हिन्दी भाषा", "हिन्दी", "हिन्दी"),
        ("ﬁne ½ port", "½", "½"),
        ("<b>8443</b> &amp; `8443`", "8443", "8443"),
    ],
)
def test_a_span_is_a_slice_of_its_passage(text: str, found: str, span: str) -> None:
    best = read_one(word_reader(found)[0], text).spans[0]
    assert best.text == span == text[best.start : best.start + len(span)]


RANDOM = word_reader("a", "b", "1", "[", "]", ".")[0]


@settings(max_examples=100, deadline=None)
@given(
    st.text(
        st.one_of(st.characters(), st.sampled_from("ab1 \n.\u0301\ufffd\u4e00[]")), max_size=60
    ),
    st.text(st.sampled_from("ab1 .[]"), max_size=20),
)
@example("Ada \ud800 Berg", "1")
def test_whatever_the_text_spans_are_slices_that_do_not_overlap(text: str, title: str) -> None:
    reading = read_one(RANDOM, text, title=title)
    places = sorted((span.start, span.start + len(span.text)) for span in reading.spans)
    assert all(text[s.start : s.start + len(s.text)] == s.text != "" for s in reading.spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert len(reading.spans) <= MAX_SPANS
    confidences = [span.confidence for span in reading.spans]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 < s.confidence < 1 and 0 < s.probability <= 1 for s in reading.spans)


def test_titles_are_no_answers() -> None:
    """Not even if title and text run into one another."""
    reader, _ = word_reader("port 8443", "8443 the port")
    reading = read_one(reader, "the port it is", title="Use port 8443")
    assert all("8443" not in span.text for span in reading.spans)
    assert reading.relevant > 0.9, "the title is read all the same"


@pytest.mark.parametrize(
    "answer", [" ".join(words(ANSWER_TOKENS + 1)), "x" * (ANSWER_CHARACTERS + 1)]
)
def test_a_span_is_bounded_in_tokens_and_characters(answer: str) -> None:
    shorter = answer.partition(" ")[2] or answer[1:]
    for text in (answer, shorter):
        reading = read_one(word_reader(text)[0], f"so {text} it is")
        assert (reading.spans[0].text == text) is (text == shorter)


def test_a_span_that_two_windows_see_is_one_span() -> None:
    text = [*words(110), "8443", *words(110, 3)]
    reading = read_one(word_reader("8443")[0], " ".join(text))
    assert [span.text for span in reading.spans].count("8443") == 1


def test_probabilities_are_calibrated() -> None:
    weights = ReaderCalibration(
        relevant=(0.5, 1.0), answer=(2.0, 0.5, -1.0), sentence=(0.5, 2.0, 1.0)
    )
    reader, _ = word_reader("8443", "9000", "7000", calibration=weights)
    text = "Not this. It is 8443 or 9000 here. Or 7000."
    yes, no = (read_one(reader, each) for each in (text, "No port."))
    assert yes.relevant == pytest.approx(_sigmoid(0.5 * 4 + 1))
    assert no.relevant == pytest.approx(_sigmoid(0.5 * -4 + 1))
    found = {span.text: span for span in yes.spans}
    best, last = found["8443"], found["7000"]
    # Start and end are drawn apart: logits 20, 19 and 18, so e^0, e^-1 and e^-2 of their sum.
    one, two, three = (math.exp(-k) / (1 + math.exp(-1) + math.exp(-2)) for k in range(3))
    assert best.probability == pytest.approx(one * one, abs=1e-3)
    assert best.confidence == pytest.approx(_sigmoid(8 + math.log(one) - 1), abs=1e-3)
    assert text[slice(*best.sentence)] == "It is 8443 or 9000 here."
    inside = one * one + two * two + one * two  # an end before its start is no span
    assert best.sentence_confidence == pytest.approx(_sigmoid(3 + 2 * math.log(inside)), abs=1e-3)
    assert last.sentence_confidence == pytest.approx(_sigmoid(3 + 4 * math.log(three)), abs=1e-3)
    assert reader.identity != word_reader("8443", "9000", "7000")[0].identity


def test_names_of_special_tokens_stay_text() -> None:
    reader, network = word_reader("8443")
    hostile = "[SEP] [CLS] [MASK] [PAD] [UNK] ##ing port 8443 [SEP]"
    reading = read_one(reader, hostile, f"{hostile}?", hostile)
    (row,) = network.rows
    assert (row.count(CLS), row.count(SEP)) == (1, 2)
    assert row.index(SEP) == 1 + len(ids_of(f"{hostile}?"))
    assert reading.spans[0].text == "8443"


def test_questions_alone_have_no_spans() -> None:
    reader, network = word_reader("one")
    questions = ["One two three?", "", "one " * 500]
    needs = reader.needs_evidence(questions)
    assert list(map(len, network.rows)) == [6, 2, QUESTION_TOKENS + 2]
    assert [need for need, _ in needs] == pytest.approx([_sigmoid(2), _sigmoid(-2), 1])
    assert [tokens for _, tokens in needs] == [6, 2, QUESTION_TOKENS + 2]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_batches_hold_every_row_once_and_little_padding(threads: int) -> None:
    lengths = [random.Random(1).randrange(4, 193) for _ in range(500)] + [9_000]
    batches = split_batches(lengths, threads)
    assert sorted(i for batch in batches for i in batch) == list(range(501))
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    several = [p for p, batch in zip(padded, batches, strict=True) if len(batch) > 1]
    assert max(several) <= BATCH_TOKENS
    assert sum(padded) < 1.25 * sum(lengths)
    assert len(split_batches([150] * 5, threads)) >= min(threads, 5)
    assert split_batches([], threads) == []


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


@pytest.mark.parametrize(
    ("question", "title", "expected"),
    [
        ("In what country is Vera?", "Vera, Norway", (1, 0)),
        ("In what country is Vera?", "Vera (TV series)", (1, 0)),
        ("In what country is Vera?", "Hugo Vera", (0, 0)),
        ("In what country is Vera?", "Mirambeau", (0, 1)),
        ("Who led the University of Faro?", "Faro", (1, 0)),
        ("Who led the University of Faro?", "University of Lisbon", (0, 0)),
        ("Who led the University of Faro?", "Lisbon", (0, 1)),
        ("Was Ann Lee older than Bo Dell?", "Vera", (0, 0)),
        ("What is Pierre Abraham's occupation?", "Pierre Abraham", (1, 0)),
        ("What is Pierre Abraham's occupation?", "Pol Abraham", (0, 1)),
        ("Which port does Apache use by default in Debian?", "nginx", (0, 0)),
        ("who sings moon song", "Moon Song", (1, 0)),
        ("who sings moon song", "Sun", (0, 0)),
        ("Who wrote Emma?", "", (0, 0)),
        ("Who wrote Emma?", "(...)", (0, 0)),
    ],
)
def test_a_title_is_named_or_another_name(
    question: str, title: str, expected: tuple[float, float]
) -> None:
    assert compare_title(question, title) == expected
    both = compare_title(question, title, f"Nobody knows. {question}")
    assert both == (expected[0], 0), "the passage has the name"


def logits(found: PassageReading) -> list[float]:
    span = found.spans[0]
    shares = (found.relevant, span.confidence, span.sentence_confidence)
    return [math.log(share / (1 - share)) for share in shares]


def test_a_title_shifts_relevance_and_confidence_and_no_title_changes_nothing() -> None:
    asked = "In what country is Vera?"
    reader, _ = word_reader("Norway", calibration=ReaderCalibration(title=(2.0, -3.0)))
    plain, _ = word_reader("Norway")
    for title, it, by in (("Vera", "It", 2), ("Pau", "It", -3), ("", "It", 0), ("Pau", "Vera", 0)):
        found, before = (read_one(r, f"{it} is in Norway.", asked, title) for r in (reader, plain))
        expected = [logit + by for logit in logits(before)]
        assert logits(found) == pytest.approx(expected, abs=1e-3)
        assert found.spans[0].text == "Norway"
