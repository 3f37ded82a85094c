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
    judged,
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
    assert (example.relevant, example.form) == (1.0, 0)


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
    assert (example.starts, example.ends, example.relevant, example.form) == ([], [], 0.0, 0)


@pytest.mark.parametrize("place", [0, 1, 150, 298, 299])
def test_a_window_of_a_long_passage_holds_the_answer(place: int) -> None:
    words = WORDS[:300]
    words[place] = "Zamość"
    firsts = set()
    for seed in range(20):
        example = read(row("Zamość", passage=" ".join(words)), seed)
        assert said(example) == [plain("Zamość")]
        seen = TOKENIZER.decode([example.ids[k] for k in example.readable]).split()
        assert len(seen) <= WINDOW
        firsts.add(seen[0])
    assert len(firsts) > 5 or place in (0, 1, 298, 299)


def test_a_window_without_an_answer_comes_from_anywhere() -> None:
    words = WORDS[: WINDOW + 2]
    decoded = {TOKENIZER.decode(read(row(passage=" ".join(words)), s).ids) for s in range(40)}
    assert len(decoded) == 3
    assert any(words[-1] in text.split() for text in decoded)
    assert any(words[0] in text.split() for text in decoded)


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


def test_judgements_show_the_answer_and_the_passage() -> None:
    example = Encoder().judgement(row("1871"), "in 1871", 2, 3)
    text = TOKENIZER.decode(example.ids)
    assert plain("Where was she born? Answer: in 1871") in text
    assert plain(PASSAGE) in text
    assert (example.support, example.utility) == (2, 3)
    assert (example.relevant, example.form, example.retrieve) == (NONE, NONE, NONE)
    assert example.starts == example.ends == []


def test_a_judged_answer_is_bounded() -> None:
    text = judged("why " * 100, "because " * 100)
    assert text.count("why") == 30
    assert text.count("because") <= 16
    assert len(judged("x" * 900, "y" * 900)) < 300


@pytest.mark.parametrize(("answer", "form"), [(True, 1), (False, 2)])
def test_yes_and_no_are_forms(answer: bool, form: int) -> None:
    example = Encoder().yes_no(row(), answer)
    assert (example.relevant, example.form, example.starts) == (1.0, form, [])


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
    batch = collate([Example([1, 2], [0, 1], [1], [1], [1], 0.0, 1, 2, 3, 1.0)])
    found = (batch.relevant, batch.form, batch.support, batch.utility, batch.retrieve)
    assert [values.item() for values in found] == [0.0, 1, 2, 3, 1.0]


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
