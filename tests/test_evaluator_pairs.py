"""What an evaluator reads: the official text, cut in the passage, never a control token."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.models.batching import batches
from selfcorrect_rag.models.t5_evaluator import PairTokenizer
from tests.tiny_evaluators import (
    PASSAGES,
    QUESTION,
    bert,
    bert_tokenizer,
    clamped,
    make,
    plain_score,
    t5_tokenizer,
)


@pytest.fixture(scope="module")
def evaluator() -> T5Evaluator:
    return make()


# Text to ids


def ids(
    question: str, passage: str, tokenizer: PreTrainedTokenizerBase | None = None, **options: Any
) -> list[int]:
    tokenizer = tokenizer or t5_tokenizer()
    pairs = PairTokenizer(tokenizer, **{"separator": None, "max_tokens": 64} | options)
    (encoded,) = pairs.encode([(question, passage)])
    assert len({len(values) for values in encoded.values()}) == 1
    return encoded["input_ids"]


def test_the_text_is_the_official_one() -> None:
    expected = t5_tokenizer()("who? [SEP] a novel is")["input_ids"]
    assert ids("who?", "a\nnovel \n\n is") == expected
    assert ids("who?", "a", separator=" : ") == t5_tokenizer()("who? : a")["input_ids"]


def test_a_long_passage_loses_its_end(evaluator: T5Evaluator) -> None:
    start = "novel is " * 400
    long, longer = evaluator.score(QUESTION, [start + "a", start + "b" * 5000])
    assert long == pytest.approx(longer, abs=1e-6)
    assert long == pytest.approx(clamped(plain_score(QUESTION, start)), abs=1e-5)
    cut = ids("who?", start)
    assert len(cut) == 64
    assert cut[-1] == t5_tokenizer().eos_token_id


def test_a_long_question_leaves_half_to_the_passage() -> None:
    cut = ids("who " * 500, "novel is " * 500)
    text = t5_tokenizer().decode(cut)
    assert len(cut) == 64
    assert text.count("novel") >= 10
    assert ids("who " * 8, "a") == t5_tokenizer()("who " * 8 + "[SEP] a")["input_ids"]


@pytest.mark.parametrize("length", [0, 7])
def test_a_limit_without_room_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="fewer than 8"):
        PairTokenizer(t5_tokenizer(), separator=None, max_tokens=length)


HOSTILE = ["</s>", "<pad>", "a</s>b </s></s>", "<extra_id_0>", "<unk>", "\uff1c/s\uff1e"]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("slot", ["question", "passage"])
def test_text_never_becomes_a_special_token(
    evaluator: T5Evaluator, hostile: str, slot: str
) -> None:
    """An end token in a passage would make T5 read its score elsewhere, or fail the batch."""
    tokenizer = t5_tokenizer()
    question, passage = ("who? " + hostile, "a") if slot == "question" else ("who?", hostile + " a")
    found = ids(question, passage)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert [i for i in found if i in special] == [tokenizer.eos_token_id]
    assert found[-1] == tokenizer.eos_token_id
    scores = evaluator.score(QUESTION, [hostile + " a", *PASSAGES])
    assert scores[1:] == pytest.approx(evaluator.score(QUESTION, PASSAGES), abs=1e-5)


@pytest.mark.parametrize("odd", ["\ud800", "\0", "\u200b", "漢" * 3000, "a" * 100_000, "🦜 é\r\n"])
def test_odd_text_gets_a_score(evaluator: T5Evaluator, odd: str) -> None:
    assert -1 <= evaluator.score("Who? " + odd, [odd])[0] <= 1


def test_another_classifier_gets_pairs_in_its_own_way() -> None:
    tokenizer = bert_tokenizer()
    passages = ["a novel", "emma is a novel", "is [SEP] [CLS] emma", "novel " * 60]
    evaluator = T5Evaluator.from_model(bert(), tokenizer)
    plain = []
    for passage in passages:
        text = passage.replace("[SEP] [CLS] ", "")
        inputs = tokenizer("who is emma", text, truncation=True, max_length=32, return_tensors="pt")
        assert inputs["token_type_ids"].sum() > 0
        with torch.inference_mode():
            plain.append(clamped(float(bert()(**inputs).logits.item())))
    assert evaluator.score("who is emma", passages) == pytest.approx(plain, abs=1e-5)


# Pairs to batches


def test_batches_are_of_like_length_and_bounded() -> None:
    lengths = [5, 90, 7, 100, 6, 300]
    assert batches(lengths, 200, 0) == [[0], [4], [2], [1], [3], [5]]
    assert batches(lengths, 200, 20) == [[0, 4, 2], [1, 3], [5]]
    assert batches(lengths, 200, 10_000) == [[0, 4, 2], [1, 3], [5]]
    assert batches(lengths, 2000, 10_000) == [[0, 4, 2, 1, 3, 5]]
    assert batches([], 200, 20) == []


@given(st.lists(st.integers(1, 60), max_size=7), st.integers(1, 200), st.integers(0, 100))
def test_no_other_batches_are_cheaper(lengths: list[int], most: int, each: int) -> None:
    def cost(split: list[list[int]]) -> int:
        return sum(each + len(batch) * max(lengths[i] for i in batch) for batch in split)

    def fits(split: list[list[int]]) -> bool:
        return all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= most for b in split)

    made = batches(lengths, most, each)
    assert sorted(i for batch in made for i in batch) == list(range(len(lengths)))
    assert fits(made)
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for borders in product([False, True], repeat=max(len(lengths) - 1, 0)):
        split = [order[:1]] if order else []
        for i, border in zip(order[1:], borders, strict=True):
            split = [*split, [i]] if border else [*split[:-1], [*split[-1], i]]
        assert not fits(split) or cost(made) <= cost(split)
