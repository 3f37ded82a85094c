"""The evaluator: real T5s and BERTs of random weights, alone and shared by many callers."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForSequenceClassification,
)

from selfcorrect_rag.errors import EvaluationFailed, ModelNotFound, NotAnEvaluator
from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.models.micro_batching import MicroBatcher
from selfcorrect_rag.models.t5_evaluator import pair
from selfcorrect_rag.thresholds import Thresholds
from tests.conftest import byte_level_tokenizer

PASSAGES = ["Emma is a novel." * n for n in (1, 9, 3, 30, 0, 2)]


def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def t5(labels: int = 1) -> T5ForSequenceClassification:
    torch.manual_seed(0)
    words = len(tokenizer())
    config = T5Config(
        vocab_size=words,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        num_labels=labels,
        decoder_start_token_id=0,
        pad_token_id=tokenizer().pad_token_id,
        eos_token_id=tokenizer().eos_token_id,
    )
    return T5ForSequenceClassification(config)


def with_end(plain: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """T5 reads its score at the end token, which its own tokenizers write."""
    from tokenizers import processors

    end = plain.eos_token_id
    plain.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", end)]
    )
    return plain


@pytest.fixture(scope="module")
def evaluator() -> T5Evaluator:
    return T5Evaluator(t5(), with_end(tokenizer()))


def one_by_one(evaluator: T5Evaluator, question: str, passages: list[str]) -> list[float]:
    scores = []
    for passage in passages:
        inputs = evaluator._tokenizer(
            pair(question, passage), truncation=True, max_length=512, return_tensors="pt"
        )
        with torch.inference_mode():
            scores.append(
                evaluator._model(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
                ).logits.item()
            )
    return [min(max(score, -1), 1) for score in scores]


def test_scores_are_those_of_each_pair_alone(evaluator: T5Evaluator) -> None:
    scores = evaluator.score("Who wrote Emma?", PASSAGES)
    assert scores == pytest.approx(one_by_one(evaluator, "Who wrote Emma?", PASSAGES), abs=1e-5)
    assert len(set(scores)) > 3
    assert all(-1 <= score <= 1 for score in scores)


async def test_async_gives_the_same(evaluator: T5Evaluator) -> None:
    expected = evaluator.score("Who?", PASSAGES)
    assert await evaluator.ascore("Who?", PASSAGES) == pytest.approx(expected, abs=1e-6)


def test_small_batches_give_the_same() -> None:
    model, words = t5(), with_end(tokenizer())
    wide, narrow = T5Evaluator(model, words), T5Evaluator(model, words, batch_tokens=64)
    assert narrow.score("Who?", PASSAGES) == pytest.approx(wide.score("Who?", PASSAGES), abs=1e-5)


def test_long_passages_are_cut_at_the_limit(evaluator: T5Evaluator) -> None:
    assert evaluator.score("Who?", ["word " * 5000]) == pytest.approx(
        evaluator.score("Who?", ["word " * 9000]), abs=1e-6
    )


def test_line_breaks_are_spaces() -> None:
    assert pair("Who\n?", "a\n\nb") == "Who ? [SEP] a b"


def test_nothing_to_score_is_no_forward_pass(evaluator: T5Evaluator) -> None:
    assert evaluator.score("Who?", []) == []
    assert asyncio.run(evaluator.ascore("Who?", [])) == []


def test_64_callers_share_forward_passes_and_do_not_mix() -> None:
    evaluator = T5Evaluator(t5(), with_end(tokenizer()))
    questions = [f"Question {i}: who?" for i in range(64)]
    expected = [evaluator.score(question, PASSAGES) for question in questions]
    passes: list[int] = []
    forward = evaluator._model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        passes.append(len(kwargs["input_ids"]))
        return forward(*args, **kwargs)

    evaluator._model.forward = counted  # type: ignore[method-assign]
    given: dict[int, list[float]] = {}

    def in_thread(i: int) -> None:
        given[i] = evaluator.score(questions[i], PASSAGES)

    async def in_loop() -> None:
        scores = await asyncio.gather(*(evaluator.ascore(q, PASSAGES) for q in questions[32:]))
        given.update(enumerate(scores, start=32))

    threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    asyncio.run(in_loop())
    for thread in threads:
        thread.join()
    for i in range(64):
        assert given[i] == pytest.approx(expected[i], abs=1e-5)
    assert sum(passes) == 64 * len(PASSAGES)
    assert len(passes) < 32


def test_one_calls_failure_is_its_own() -> None:
    started, go = threading.Event(), threading.Event()

    def compute(items: list[int]) -> list[int]:
        started.set()
        go.wait(5)
        if any(item < 0 for item in items):
            raise ValueError("negative")
        return [item * 2 for item in items]

    batcher = MicroBatcher(compute, "test")
    results: dict[int, Any] = {}

    def call(i: int) -> None:
        try:
            results[i] = batcher.run([i])
        except ValueError as error:
            results[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in (1, -2, 3, 4)]
    threads[0].start()
    started.wait(5)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert (results[1], results[3], results[4]) == ([2], [6], [8])
    assert isinstance(results[-2], ValueError)


async def test_a_cancelled_call_leaves_the_others() -> None:
    go = threading.Event()

    def compute(items: list[int]) -> list[int]:
        go.wait(5)
        return items

    batcher = MicroBatcher(compute, "test")
    first = asyncio.ensure_future(batcher.arun([1]))
    await asyncio.sleep(0.05)
    second, third = (asyncio.ensure_future(batcher.arun([i])) for i in (2, 3))
    await asyncio.sleep(0.05)
    second.cancel()
    go.set()
    assert await first == [1]
    assert await third == [3]


def test_any_classifier_with_one_label_loads(tmp_path: Path) -> None:
    words = tokenizer()
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
        crag_thresholds=[0.25, -0.75],
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    evaluator = T5Evaluator.from_pretrained(tmp_path)
    assert len(evaluator.score("Who?", PASSAGES)) == len(PASSAGES)
    assert evaluator.thresholds == Thresholds(0.25, -0.75)
    given = Thresholds(0.5, 0.0)
    assert T5Evaluator.from_pretrained(tmp_path, thresholds=given).thresholds == given


def test_more_labels_are_refused() -> None:
    with pytest.raises(NotAnEvaluator, match="2 labels"):
        T5Evaluator(t5(labels=2), tokenizer())


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="cannot load an evaluator"):
        T5Evaluator.from_pretrained(tmp_path)


def test_scores_that_are_no_numbers() -> None:
    model = t5()
    with torch.no_grad():
        model.classification_head.out_proj.bias.fill_(float("nan"))
    with pytest.raises(EvaluationFailed, match="no numbers"):
        T5Evaluator(model, with_end(tokenizer())).score("Who?", ["a"])
