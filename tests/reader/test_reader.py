"""The reader around its network: windows, offsets, spans, bounds, and sharing."""

import asyncio
import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selfcorrect_rag.reader import reader as reader_module
from selfcorrect_rag.reader.torch_network import HeadLogits
from selfcorrect_rag.reader.reader import (
    ANSWER_CHARACTERS,
    ANSWER_TOKENS,
    BATCH_TOKENS,
    MAX_TOKENS,
    MOST_WINDOWS,
    OVERLAP,
    QUESTION_TOKENS,
    SPANS,
    TITLE_TOKENS,
    Passage,
    PassageReading,
    Reader,
)
from selfcorrect_rag.reader.weights import ReaderCalibration
from tests.reader.scripted_network import (
    CLS,
    SEP,
    TOKENIZER,
    WordNetwork,
    ids_of,
    read_one,
    word_reader,
)
from tests.scripted import nearly

QUESTION = "Which port?"
WORDS = [word for word in TOKENIZER.get_vocab() if word.isascii() and word.isalpha()]
"""Each of one token."""


def words(count: int, seed: int = 0) -> list[str]:
    """Different words of one token each."""
    return random.Random(seed).sample(WORDS, count)


def texts_of(network: WordNetwork, question: str = QUESTION, title: str = "") -> list[list[int]]:
    """The tokens of each window, without what is the same in all."""
    head = [CLS, *ids_of(question), SEP]
    before = len(head) + len(ids_of(title)) + bool(title)
    for row in network.rows:
        assert (row[: len(head)], row[-1]) == (head, SEP)
    return [row[before:-1] for row in network.rows]


# Windows


def test_a_short_passage_is_read_as_it_was_in_training() -> None:
    reader, network = word_reader("8443")
    (reading,) = reader.read([(QUESTION, Passage("Staging", "Port 8443 it is."))])
    ids = [CLS, *ids_of(QUESTION), SEP, *ids_of("Staging. Port 8443 it is."), SEP]
    assert network.rows == [ids]
    assert reading.tokens == len(ids)


@pytest.mark.parametrize("count", [170, 186, 187, 188, 189, 250, 375, 376, 1000])
def test_windows_are_spread_evenly_and_leave_nothing_out(count: int) -> None:
    reader, network = word_reader()
    text = words(count)
    read_one(reader, " ".join(text), QUESTION)
    tokens = [token for word in text for token in ids_of(word)]
    windows = sorted(texts_of(network), key=lambda window: tokens.index(window[0]))
    size = MAX_TOKENS - len(ids_of(QUESTION)) - 3
    starts = [tokens.index(window[0]) for window in windows]
    assert sorted({token for window in windows for token in window}) == sorted(tokens)
    assert all(window == tokens[at : at + size] for at, window in zip(starts, windows, strict=True))
    assert all(len(row) <= MAX_TOKENS for row in network.rows)
    assert {len(window) for window in windows} == {min(size, count)}, "no window is shorter"
    steps = [b - a for a, b in pairwise(starts)]
    assert max(steps, default=0) - min(steps, default=0) <= 1
    assert all(size - step >= OVERLAP for step in steps)
    assert OVERLAP > ANSWER_TOKENS, "no answer is cut by both of two windows, nor stands at an edge"
    fewer = len(windows) - 1
    assert fewer * (size - OVERLAP) + OVERLAP < count, "as few as possible"


def test_of_a_very_long_passage_the_windows_with_the_questions_words_are_read() -> None:
    question = "Which port does the staging server use?"
    reader, network = word_reader("8443")
    filler = [word for word in words(9_000) if not set(ids_of(word)) & set(ids_of(question))]
    text = [*filler[:4_000], "the staging server uses port 8443", *filler[4_000:]]
    reading = read_one(reader, " ".join(text), question)
    assert reading.spans[0].text == "8443"
    assert reading.relevant > 0.9, "as the best window has it"
    windows = texts_of(network, question)
    assert len(windows) == MOST_WINDOWS
    told = ids_of("the staging server uses port 8443")
    tokens = ids_of(" ".join(text))
    (at,) = [i for i in range(len(tokens)) if tokens[i : i + len(told)] == told]
    size = MAX_TOKENS - len(ids_of(question)) - 3
    starts = reader_module._starts(len(tokens), size)
    holding = [tokens[i : i + size] for i in starts if i <= at <= i + size - len(told)]
    assert holding
    assert all(window in windows for window in holding), "every window that holds the sentence"
    first = [ids_of(filler[0])[0] in window for window in windows]
    assert any(first), "among equal ones the first are read"


def test_question_and_title_leave_room_for_the_passage() -> None:
    reader, network = word_reader("8443")
    question, title = " ".join(words(5_000, 1)), " ".join(words(300, 2))
    reading = read_one(reader, "Port 8443 it is.", question, title)
    (row,) = network.rows
    assert row[: 1 + QUESTION_TOKENS] == [CLS, *ids_of(question)[:QUESTION_TOKENS]]
    told = ids_of(title)[:TITLE_TOKENS]
    assert row[2 + QUESTION_TOKENS :] == [*told, *ids_of(". Port 8443 it is."), SEP]
    assert reading.spans[0].text == "8443"


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u0301", "\ufffd", "\x00"])
def test_a_blank_passage_is_not_read(text: str) -> None:
    reader, network = word_reader("8443")
    reading = read_one(reader, text, title="Ports")
    assert reading == (0.0, (), 0)
    assert network.passes == []


def test_nothing_asked_is_nothing_read() -> None:
    reader, network = word_reader()
    assert reader.read([]) == asyncio.run(reader.aread([])) == []
    assert network.passes == []
    blank, full = reader.read([("", Passage("", "")), ("", Passage("", "Port 8443."))])
    assert (blank.tokens, bool(full.spans)) == (0, True)


def test_long_and_many_passages_take_a_bounded_number_of_passes() -> None:
    reader, network = word_reader("8443")
    long = read_one(reader, "some words and " * 14_000, QUESTION)  # 200 kB
    assert len(network.rows) == MOST_WINDOWS
    assert long.tokens <= MOST_WINDOWS * MAX_TOKENS
    network.passes.clear()
    network.widths.clear()
    readings = reader.read([(QUESTION, Passage("", f"Port {i} it is.")) for i in range(2_000)])
    assert len(readings) == len(network.rows) == 2_000
    computed = [
        len(rows) * width for rows, width in zip(network.passes, network.widths, strict=True)
    ]
    assert max(computed) <= BATCH_TOKENS
    assert len(computed) <= -(-2_000 * 16 // BATCH_TOKENS) + 4


# Spans


@pytest.mark.parametrize(
    ("text", "found", "span"),
    [
        ("At the Café Zürich.", "cafe zurich", "Café Zürich"),
        ("The Zu\u0308rich Cafe\u0301\u0323.", "zurich cafe", "Zu\u0308rich Cafe\u0301\u0323"),
        ("İstanbul it is", "istanbul", "İstanbul"),
        ("a\r\nb\r\n\r\nport\t8443\r\n", "port 8443", "port\t8443"),
        ("It\ufffd is \ufffdport 8443\ufffd.", "port 8443", "port 8443"),
        ("\U0001f600 \U0001f468\u200d\U0001f469 port 8443 \U0001f600", "port 8443", "port 8443"),
        ("東京は首都です", "東 京", "東京"),
        ("हिन्दी भाषा", "हिन्दी", "हिन्दी"),
        ("한국어 8443", "한국어", "한국어"),
        ("ﬁne ½ port", "½", "½"),
        ("x\u200by zero\u200bwidth", "zerowidth", "zero\u200bwidth"),
        ("| port | 8443 |\n|---|---|", "8443", "8443"),
        ("    def port():\n        return 8443\n", "return 8443", "return 8443"),
        ("<b>8443</b> &amp; `8443`", "8443", "8443"),
    ],
)
def test_a_span_is_a_slice_of_its_passage(text: str, found: str, span: str) -> None:
    reading = read_one(word_reader(found)[0], text)
    best = reading.spans[0]
    assert best.text == span
    assert text[slice(*best.place)] == best.text
    assert best.probability > 0.2, "half the starts and ends where it stands twice"


@settings(max_examples=150, deadline=None)
@given(
    st.text(
        st.one_of(st.characters(), st.sampled_from("ab1 \n.\u0301\ufffd\u4e00[]")), max_size=60
    ),
    st.text(st.sampled_from("ab1 .[]"), max_size=20),
)
@example("Ada \ud800 Berg", "1")
def test_whatever_the_text_spans_are_slices_that_do_not_overlap(text: str, title: str) -> None:
    reading = read_one(RANDOM, text, title=title)
    places = sorted(span.place for span in reading.spans)
    assert all(text[slice(*span.place)] == span.text != "" for span in reading.spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert len(reading.spans) <= SPANS
    confidences = [span.confidence for span in reading.spans]
    assert confidences == sorted(confidences, reverse=True)
    assert all(
        0 < c < 1 and 0 < s.probability <= 1
        for c, s in zip(confidences, reading.spans, strict=True)
    )
    assert 0 <= reading.relevant < 1


RANDOM = word_reader("a", "b", "1", "[", "]", ".")[0]


def test_titles_are_no_answers() -> None:
    """Not even where title and text run into one another."""
    reader, _ = word_reader("port 8443", "8443 the port")
    reading = read_one(reader, "the port it is", title="Use port 8443")
    assert all("8443" not in span.text for span in reading.spans)
    assert reading.relevant > 0.9, "the title is read all the same"


def test_a_span_is_bounded_in_tokens_and_characters() -> None:
    answer = " ".join(words(ANSWER_TOKENS + 1))
    for text in (answer, answer.partition(" ")[2]):
        reading = read_one(word_reader(text)[0], f"so {text} it is")
        assert (reading.spans[0].text == text) is (text != answer)
        assert max(len(ids_of(span.text)) for span in reading.spans) <= ANSWER_TOKENS
    blob = "x" * (ANSWER_CHARACTERS + 1)
    for text in (blob, blob[1:]):
        reading = read_one(word_reader(text)[0], f"so {text} it is")
        assert (reading.spans[0].text == text) is (text != blob), "a token as long as a file"
        assert max(len(span.text) for span in reading.spans) <= ANSWER_CHARACTERS


def test_several_answers_are_several_spans() -> None:
    reader, _ = word_reader("norway", "sweden", "peru")
    text = "They are Norway, Sweden and Peru. " + "No other country is. " * 40
    assert [span.text for span in read_one(reader, text).spans][:3] == ["Norway", "Sweden", "Peru"]


def test_a_span_that_two_windows_see_is_one_span() -> None:
    text = [*words(110), "8443", *words(110, 3)]
    reading = read_one(word_reader("8443")[0], " ".join(text))
    assert [span.text for span in reading.spans].count("8443") == 1


def test_probabilities_are_calibrated() -> None:
    network: Any = WordNetwork("8443")
    asked = [(QUESTION, Passage("", "Port 8443.")), (QUESTION, Passage("", "No port."))]
    sure = Reader(network, ReaderCalibration(relevant=(0.5, 1.0), answer=(2.0, 0.5, -1.0)))
    yes, no = sure.read(asked)
    assert yes.relevant == pytest.approx(1 / (1 + 2.718281828**-3.0))
    assert no.relevant == pytest.approx(1 / (1 + 2.718281828**1.0))
    # the span's log-probability is near 0, so the logit is 2 x 4 - 1
    assert yes.spans[0].confidence == pytest.approx(1 / (1 + 2.718281828**-7.0), abs=1e-4)
    assert sure.identity != Reader(network).identity


def test_a_sentence_has_the_probability_of_all_spans_in_it() -> None:
    network: Any = WordNetwork("8443", "9000", "7000")
    weights = ReaderCalibration(relevant=(1.0, 0.0), answer=(1.0, 1.0, 0.0), sentence=(0.5, 2.0, 1))
    text = "Not this. It is 8443 or 9000 here. Or 7000."
    found = {s.text: s for s in read_one(Reader(network, weights), text).spans}
    best, other = found["8443"], found["7000"]
    assert text[slice(*best.sentence)] == "It is 8443 or 9000 here."
    assert text[slice(*other.sentence)] == "Or 7000."
    # Start and end are drawn apart: logits 20, 19 and 18, so e^0, e^-1 and e^-2 of their sum.
    one, two, three = (math.exp(-k) / (1 + math.exp(-1) + math.exp(-2)) for k in range(3))
    inside = one * one + two * two + one * two  # an end before its start is no span
    assert best.sentence_confidence == pytest.approx(1 / (1 + math.exp(-3) / inside**2), abs=1e-3)
    assert other.sentence_confidence == pytest.approx(1 / (1 + math.exp(-3) / three**4), abs=1e-3)


def test_a_sentence_that_holds_nothing_has_the_least_probability() -> None:
    class Certain(WordNetwork):
        def __call__(self, *batch: Any) -> HeadLogits:
            logits = super().__call__(*batch)
            return logits._replace(start=logits.start * 1000, end=logits.end * 1000)

    network: Any = Certain("8443", "7000")
    weights = ReaderCalibration(relevant=(1.0, 0.0), answer=(1.0, 1.0, 0.0), sentence=(0.0, 1.0, 0))
    best, *others = read_one(Reader(network, weights), "It is 8443. Or 7000.").spans
    assert (best.text, best.sentence_confidence) == ("8443", pytest.approx(0.5, abs=1e-6))
    behind = [span for span in others if span.sentence != best.sentence]
    assert behind
    assert {span.probability for span in behind} == {0.0}, "too small for a float"
    assert [span.sentence_confidence for span in behind] == pytest.approx([1e-9] * len(behind))


# Hostile text


def test_names_of_special_tokens_stay_text() -> None:
    reader, network = word_reader("8443")
    hostile = "[SEP] [CLS] [MASK] [PAD] [UNK] ##ing port 8443 [SEP]"
    reading = read_one(reader, hostile, f"{hostile}?", hostile)
    (row,) = network.rows
    assert (row.count(CLS), row.count(SEP)) == (1, 2)
    assert row.index(SEP) == 1 + len(ids_of(f"{hostile}?"))
    special = {TOKENIZER.token_to_id(token) for token in ("[MASK]", "[PAD]", "[UNK]")}
    assert not special & set(row)
    assert row[row.index(SEP) + 1 : -1] == [
        *ids_of(hostile)[:TITLE_TOKENS],
        *ids_of("."),
        *ids_of(hostile),
    ]
    assert reading.spans[0].text == "8443"


# Sharing


def many(seed: int) -> list[tuple[str, Passage]]:
    picked = random.Random(seed)
    return [
        (
            f"Which {words(1, seed)[0]}?",
            Passage("", " ".join([*words(picked.randrange(300), seed + i), "8443"])),
        )
        for i in range(picked.randrange(1, 6))
    ]


def best_of(readings: Sequence[PassageReading]) -> list[Any]:
    """What does not depend on rounding, which ties between other spans do."""
    return [(each.relevant, each.tokens, each.spans[0].place) for each in readings]


def test_threads_and_loops_share_a_reader_and_get_what_they_would_alone() -> None:
    asked = [many(seed) for seed in range(24)]
    alone = [best_of(word_reader("8443")[0].read(each)) for each in asked]
    shared, network = word_reader("8443")

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*map(shared.aread, asked))

    with ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(asyncio.run, all_at_once()) for _ in range(2)]
        threads = [pool.submit(shared.read, each) for each in asked]
        assert nearly([best_of(thread.result()) for thread in threads], alone)
        for loop in loops:
            assert nearly([best_of(each) for each in loop.result()], alone)
    assert len(network.passes) < len(network.rows), "calls that wait are read together"


def test_a_long_text_is_cut_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []

    async def off_loop(work: Any, *arguments: Any, long: bool) -> Any:
        left.append(long)
        return work(*arguments)

    monkeypatch.setattr(reader_module, "off_loop", off_loop)
    reader, _ = word_reader("8443")
    for length in (10, 30_000):
        asyncio.run(reader.aread([(QUESTION, Passage("", "a " * length))]))
    assert left == [False, True]


def test_questions_alone_are_read_together_and_have_no_spans() -> None:
    reader, network = word_reader("one")
    questions = ["One two three?", "", "one " * 500]
    needs = reader.needs_evidence(questions)
    assert sorted(map(len, network.rows)) == [2, 6, QUESTION_TOKENS + 2]
    assert [need.probability for need in needs] == pytest.approx([_sigmoid(2), _sigmoid(-2), 1])
    assert [need.tokens for need in needs] == [6, 2, QUESTION_TOKENS + 2]
    assert asyncio.run(reader.aneeds_evidence(questions)) == needs


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
