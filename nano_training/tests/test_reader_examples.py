"""Rows of the reader as token ids with targets, and batches of them."""

import random
from itertools import count, cycle, islice
from typing import Any

import pytest

from nano_training.reader.examples import (
    MAX_TOKENS,
    NONE,
    SHORT,
    WINDOW,
    Encoder,
    Example,
    batches,
    collate,
    short,
)
from nano_training.reader.rows import Row
from selfcorrect_rag.search.minilm import minilm_tokenizer

PASSAGE = "Rosa Luxemburg was born in Zamość in 1871. Her brother Józef left Zamość in 1873."
TOKENIZER: Any = minilm_tokenizer()
TOKENIZER.no_padding()
SEPARATOR = TOKENIZER.token_to_id("[SEP]")
WORDS = sorted(word for word in TOKENIZER.get_vocab() if word.isascii() and word.isalpha())[5000:]
"""Each of one token."""


def row(*answers: str, passage: str = PASSAGE, title: str = "Rosa Luxemburg") -> Row:
    return Row("Where was she born?", title, passage, answers, "made up")


def read(asked: Row, seed: int = 0) -> Example:
    example = Encoder(seed).reading(asked)
    assert example
    return example


def plain(text: str) -> str:
    """A text as its tokens decode."""
    return str(TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False).ids))


def said(example: Example) -> list[str]:
    """What stands between each start and its end."""
    pairs = zip(example.starts, example.ends, strict=True)
    return [TOKENIZER.decode(example.ids[start : end + 1]) for start, end in pairs]


@pytest.mark.parametrize("title", ["", "Rosa Luxemburg", "1871: Zamość", "A title " * 30])
@pytest.mark.parametrize("answer", ["1871", "Rosa Luxemburg", "Józef", "1873", "Józef left Zamość"])
def test_targets_are_the_tokens_of_the_answer(title: str, answer: str) -> None:
    example = read(row(answer, title=title))
    assert said(example) == [plain(answer)]
    assert (example.relevant, example.retrieve) == (1.0, NONE)


def test_every_mention_of_the_answer_is_a_target() -> None:
    example = read(row("Zamość"))
    assert said(example) == [plain("Zamość")] * 2
    assert example.starts[0] < example.starts[1]


def test_the_first_answer_that_is_found_is_the_target() -> None:
    assert said(read(row("Warsaw", "in 1871", "1871"))) == ["in 1871"]


def test_marks_at_the_ends_of_an_answer_are_not_learned() -> None:
    assert said(read(row(" in 1871."))) == ["in 1871"]


def test_an_answer_is_found_as_it_stands() -> None:
    example = read(row("3.5 (beta)", passage="Versions 345 (beta) and 3.5 (beta) are out."))
    assert said(example) == ["3. 5 ( beta )"]
    example = read(row("beta", passage="Version 3.5 (beta) is out."))
    assert said(example) == ["beta"]


def test_of_a_long_answer_every_token_is_a_target() -> None:
    words = WORDS[: SHORT + 1]
    inside = " ".join(words)
    long = read(row(inside, passage=f"Before it. {inside}. After it."))
    tokens = TOKENIZER.encode(inside, add_special_tokens=False).ids
    assert long.starts == long.ends
    assert [long.ids[k] for k in long.starts] == tokens
    inside = " ".join(words[:SHORT])
    assert said(read(row(inside, passage=f"Before it. {inside}. After it."))) == [plain(inside)]


@pytest.mark.parametrize("title", ["", "Rosa Luxemburg"])
def test_only_the_passage_is_readable(title: str) -> None:
    example = read(row("1871", title=title))
    separators = [k for k, token in enumerate(example.ids) if token == SEPARATOR]
    head = len(TOKENIZER.encode(f"{title}." * bool(title), add_special_tokens=False).ids)
    assert example.readable == list(range(separators[0] + 1 + head, separators[1]))
    assert TOKENIZER.decode([example.ids[k] for k in example.readable]) == plain(PASSAGE)


def test_special_tokens_in_a_text_are_text() -> None:
    text = "The token [SEP] parts [CLS] two texts, [PAD] and [MASK]."
    example = read(Row("What is [SEP]?", "[SEP]", text, ("[SEP]",), "made up"))
    assert example.ids.count(SEPARATOR) == 2
    assert not {"[CLS]", "[PAD]", "[MASK]"} & set(map(TOKENIZER.id_to_token, example.ids[1:]))
    assert said(example) == ["[ sep ]"]


def test_a_passage_that_does_not_answer_has_no_place() -> None:
    example = read(row())
    assert (example.starts, example.ends, example.relevant) == ([], [], 0.0)
    assert example.readable


@pytest.mark.parametrize("place", [0, 1, 150, 298, 299])
def test_a_window_of_a_long_passage_holds_the_answer(place: int) -> None:
    words = WORDS[:300]
    words[place] = "Zamość"
    firsts = set()
    for example in many(row("Zamość", passage=" ".join(words)), 20):
        assert example
        assert said(example) == [plain("Zamość")]
        seen = TOKENIZER.decode([example.ids[k] for k in example.readable]).split()
        assert WINDOW[0] <= len(seen) <= WINDOW[1]
        firsts.add(seen[0])
    assert len(firsts) > 5 or place in (0, 1)


def many(asked: Row, times: int) -> list[Example | None]:
    """Examples of as many windows."""
    encoder = Encoder()
    return [encoder.reading(asked) for _ in range(times)]


def lengths(asked: Row, times: int = 400) -> list[int]:
    """Words of as many windows, each of one token."""
    return [len(example.readable) for example in many(asked, times) if example]


@pytest.mark.parametrize("answers", [(), ("1871",)])
def test_windows_are_of_every_size_between_the_bounds(answers: tuple[str, ...]) -> None:
    words = WORDS[:400]
    words[200] = "1871"
    found = lengths(row(*answers, passage=" ".join(words)))
    low, high = WINDOW
    assert len(found) == 400
    assert (min(found), max(found)) == (low, high)
    parts = [sum(length < low + (high - low) * part / 4 for length in found) for part in (1, 2, 3)]
    assert parts == pytest.approx([100, 200, 300], abs=40)


@pytest.mark.parametrize("answers", [(), ("1871",)])
def test_a_passage_is_cut_only_where_it_is_longer_than_the_window(answers: tuple[str, ...]) -> None:
    words = WORDS[: WINDOW[0]]
    words[20] = "1871"
    assert set(lengths(row(*answers, passage=" ".join(words)), 60)) == {WINDOW[0]}
    words += WORDS[100 : 100 + WINDOW[1] - WINDOW[0]]
    found = lengths(row(*answers, passage=" ".join(words)))
    assert max(found) == len(words) == WINDOW[1]
    assert len(set(found)) > 40


def test_a_window_without_an_answer_comes_from_anywhere() -> None:
    words = WORDS[: WINDOW[1] + 2]
    found = many(row(passage=" ".join(words)), 200)
    decoded = [TOKENIZER.decode(example.ids) for example in found if example]
    assert len(set(decoded)) > 150
    assert any(words[-1] in text.split() for text in decoded)
    assert any(words[0] in text.split() for text in decoded)


def test_an_answer_longer_than_its_window_gives_no_example() -> None:
    inside = " ".join(WORDS[: WINDOW[0] + 20])
    passage = " ".join([*WORDS[200:280], inside, *WORDS[300:380]])
    found = many(row(inside, passage=passage), 60)
    assert any(example is None for example in found)
    assert {len(example.starts) for example in found if example} == {WINDOW[0] + 20}


def test_an_answer_that_no_tokens_are_left_for_gives_no_example() -> None:
    passage = "incomprehensibilities'" * 100 + " Zamość"
    assert Encoder().reading(row("Zamość", passage=passage)) is None


def test_an_answer_of_which_the_end_is_cut_off_gives_no_example() -> None:
    room = MAX_TOKENS - len(read(row(passage="")).ids)
    passage = "-" * (room - 3) + " ".join(["", *WORDS[:6]])
    found = [Encoder().reading(row(word, passage=passage)) for word in WORDS[:6]]
    assert [example is not None for example in found] == [True] * 3 + [False] * 3
    assert Encoder().reading(row(" ".join(WORDS[:4]), passage=passage)) is None
    assert said(read(row(" ".join(WORDS[:3]), passage=passage))) == [" ".join(WORDS[:3])]


def test_a_long_question_leaves_the_passage_room() -> None:
    for question in ("who " * 500, "x" * 5000, "ščř" * 2000):
        asked = Row(question, "Rosa", PASSAGE, ("1871",), "made up")
        example = read(asked)
        assert len(example.ids) <= MAX_TOKENS
        assert said(example) == ["1871"]
        alone = Encoder().question(question, True)
        assert len(alone.ids) <= MAX_TOKENS
    assert short("a " * 99) == " ".join("a" * 48)


def test_a_question_for_yes_or_no_is_answered_by_its_passage_without_a_span() -> None:
    example = Encoder().decides(row("1871", title=""))
    assert (example.relevant, example.retrieve) == (1.0, NONE)
    assert example.starts == example.ends == []
    text = TOKENIZER.decode(example.ids)
    assert plain("Where was she born?") in text
    assert plain(PASSAGE) in text
    assert [example.types[k] for k in example.readable] == [1] * len(example.readable)


def test_a_long_passage_that_decides_is_cut_too() -> None:
    example = Encoder().decides(row(passage=" ".join(WORDS[:400])))
    assert WINDOW[0] <= len(example.readable) <= WINDOW[1]


@pytest.mark.parametrize("needed", [True, False])
def test_a_question_alone_says_whether_to_retrieve(needed: bool) -> None:
    example = Encoder().question("Who wrote it?", needed)
    assert TOKENIZER.decode(example.ids) == plain("Who wrote it?")
    assert example.retrieve == needed
    assert (example.relevant, example.readable) == (NONE, [])
    assert set(example.types) == {0}


def test_a_batch_is_padded_and_masked() -> None:
    first, second = read(row("Józef left Zamość")), Encoder().question("Why?", True)
    batch = collate([first, second])
    long, brief = len(first.ids), len(second.ids)
    assert batch.ids.shape == batch.types.shape == batch.mask.shape == (2, long)
    assert batch.ids[0].tolist() == first.ids
    assert batch.ids[1].tolist() == second.ids + [0] * (long - brief)
    assert batch.types[0].tolist() == first.types
    assert batch.mask.tolist() == [[1] * long, [1] * brief + [0] * (long - brief)]
    assert batch.readable[0].nonzero().flatten().tolist() == first.readable
    assert batch.starts.nonzero().tolist() == [[0, k] for k in first.starts]
    assert batch.ends.nonzero().tolist() == [[0, k] for k in first.ends]
    assert batch.relevant.tolist() == [1.0, NONE]
    assert batch.retrieve.tolist() == [NONE, 1.0]


def test_a_batch_keeps_each_target() -> None:
    batch = collate([Example([1, 2], [0, 1], [1], [1], [1], 0.0, 1.0)])
    assert (batch.relevant.item(), batch.retrieve.item()) == (0.0, 1.0)


def test_batches_are_bounded_and_lose_nothing() -> None:
    lengths = random.Random(1)
    number = count(1)
    made = [Example([next(number)] * lengths.randint(4, 99), [], []) for _ in range(1000)]
    for example in made:
        example.types = [0] * len(example.ids)
    seen: list[int] = []
    sizes, padding = [], 0
    found = batches(cycle(made), 512, random.Random(2))
    while len(seen) < 1000:
        batch = next(found)
        assert batch.ids.numel() <= 512
        seen += batch.ids[:, 0].tolist()
        sizes.append(batch.ids.shape[1])
        assert (batch.ids[:, 0] > 0).all()
        padding += int((batch.mask == 0).sum())
    assert sorted(seen) == list(range(1, 1001))
    assert padding < 0.1 * sum(len(example.ids) for example in made)
    assert sizes != sorted(sizes)  # short ones do not all come first
    again = batches(cycle(made), 512, random.Random(2))
    assert [batch.ids.shape[1] for batch in islice(again, len(sizes))] == sizes
