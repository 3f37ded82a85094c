"""The evaluator: real T5s and BERTs of random weights, alone and shared by many callers."""

import asyncio
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceTrainer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
from transformers.models.t5 import T5ForConditionalGeneration

from selfcorrect_rag.errors import EvaluatorFailed, NotAnEvaluator
from selfcorrect_rag.models import T5Evaluator, checkpoints, t5_evaluator
from selfcorrect_rag.models.t5_evaluator import PairTokenizer
from selfcorrect_rag.thresholds import PRESETS, Thresholds
from tests.conftest import t5, t5_tokenizer

QUESTION = "Who wrote Emma?"
PASSAGES = ["Emma is a novel. " * n for n in (1, 9, 3, 25, 2)] + ["It was written by her.", "x"]


def plain_score(passage: str) -> float:
    """Score a pair in one forward pass, as the official code does."""
    text = f"{QUESTION} [SEP] {passage}"
    inputs = t5_tokenizer()(text, truncation=True, max_length=512, return_tensors="pt")
    with torch.inference_mode():
        return min(max(float(t5()(**inputs).logits.item()), -1.0), 1.0)


@pytest.fixture(scope="module")
def evaluator() -> T5Evaluator:
    return T5Evaluator(t5(), t5_tokenizer())


def test_scores_beyond_the_scale_are_clamped() -> None:
    model = t5()
    for bias in (9.0, -9.0):
        with torch.no_grad():
            model.classification_head.out_proj.bias.fill_(bias)
        scores = T5Evaluator(model, t5_tokenizer()).score(QUESTION, PASSAGES[:2])
        assert scores == [math.copysign(1.0, bias)] * 2


@pytest.mark.parametrize(("tokens", "spread"), [(1, 8), (100, 1000), (9000, 1000)])
def test_scores_are_those_of_each_pair_alone_in_any_batches(
    monkeypatch: pytest.MonkeyPatch, tokens: int, spread: int
) -> None:
    plain = [plain_score(passage) for passage in PASSAGES]
    monkeypatch.setattr(t5_evaluator, "BATCH_TOKENS", tokens)
    monkeypatch.setattr(t5_evaluator, "CPU_SPREAD", spread)
    evaluator, passes = T5Evaluator(t5(), t5_tokenizer()), []
    evaluator._model.register_forward_pre_hook(lambda *_: passes.append(1))
    scores = evaluator.score(QUESTION, PASSAGES)
    assert scores == pytest.approx(plain, abs=1e-5)
    assert len({round(score, 4) for score in scores}) == len(scores), "they must differ"
    assert (len(passes) > 1) == (tokens < 9000)


def test_kernels_of_few_shapes_are_kept_unless_the_user_wants_more(monkeypatch: Any) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "300")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    run_path(checkpoints.__file__)
    given = [os.environ[f"{name}_CAPACITY"] for name in ("LRU_CACHE", "ONEDNN_PRIMITIVE_CACHE")]
    assert given == ["300", "64"]


def test_nothing_to_ask_is_no_forward_pass_and_a_call_waits_for_another() -> None:
    evaluator, passes = T5Evaluator(t5(), t5_tokenizer()), list[bool]()
    evaluator._model.register_forward_hook(lambda *_: passes.append(evaluator._lock.locked()))
    assert evaluator.score(QUESTION, ["", " \n"]) == [-1, -1]
    assert passes == []
    middle = evaluator.score(QUESTION, ["", PASSAGES[0], "\t"])
    assert middle == pytest.approx([-1, plain_score(PASSAGES[0]), -1], abs=1e-5)
    assert (passes, evaluator._lock.locked()) == ([True], False)


def test_a_saved_checkpoint_scores_alike(tmp_path: Path, evaluator: T5Evaluator) -> None:
    model = t5()
    model.config.crag_thresholds = [0.25, -0.75]
    model.save_pretrained(tmp_path)
    t5_tokenizer().save_pretrained(tmp_path)
    loaded = T5Evaluator.from_pretrained(tmp_path, device="cpu")
    expected = evaluator.score(QUESTION, PASSAGES)
    assert loaded.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)
    assert loaded.thresholds == Thresholds(upper=0.25, lower=-0.75)
    own = Thresholds(0.5, 0.0)
    half = T5Evaluator.from_pretrained(tmp_path, device="cpu", dtype="bfloat16", thresholds=own)
    assert half._model.dtype == torch.bfloat16
    assert half.thresholds == own
    assert evaluator.thresholds == PRESETS["popqa"]


def test_a_classifier_of_several_labels_is_refused() -> None:
    with pytest.raises(NotAnEvaluator, match=r"model has 2 labels.*num_labels=1"):
        T5Evaluator(t5(num_labels=2), t5_tokenizer())


def test_a_checkpoint_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    T5ForConditionalGeneration(t5().config).save_pretrained(tmp_path)
    t5_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(NotAnEvaluator, match=r"no weights for classification_head.*fine-tune"):
        T5Evaluator.from_pretrained(tmp_path)


@pytest.mark.slow
def test_a_checkpoint_with_sentencepieces_file_alone_loads(tmp_path: Path) -> None:
    """As CRAG's authors save theirs: ``spiece.model`` and no ``tokenizer.json``."""
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 40}
    options = {"model_prefix": str(tmp_path / "spiece"), "hard_vocab_limit": False, **ids}
    SentencePieceTrainer.train(sentence_iterator=iter(PASSAGES * 20), **options)
    t5().save_pretrained(tmp_path)
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    scores = T5Evaluator.from_pretrained(tmp_path, device="cpu").score(QUESTION, PASSAGES)
    assert len(set(scores)) > 1


async def test_concurrent_callers_do_not_mix_and_a_bad_pair_fails_only_its_call() -> None:
    model = t5()  # it gives NaN wherever it reads a W
    with torch.no_grad():
        model.get_input_embeddings().weight[t5_tokenizer().convert_tokens_to_ids("W")] = math.nan
    evaluator = T5Evaluator(model, t5_tokenizer())
    asked = [(f"who {i}?", [f"{i} is a novel. " * (i % 7 + 1), "x" * i]) for i in range(32)]
    alone = [evaluator.score(*call) for call in asked]
    with ThreadPoolExecutor(8) as pool:
        threads = [pool.submit(evaluator.score, *call) for call in asked]
        calls = [evaluator.ascore(*call) for call in [*asked, ("who?", ["a novel", "W"])]]
        *given, bad = await asyncio.gather(*calls, return_exceptions=True)
        given += [thread.result() for thread in threads]
    for scores, expected in zip(given, alone * 2, strict=True):
        assert scores == pytest.approx(expected, abs=1e-5)
    assert isinstance(bad, EvaluatorFailed)


def ids(question: str, passage: str) -> list[int]:
    pairs = PairTokenizer(t5_tokenizer(), max_tokens=64)
    return pairs.encode([(question, passage)])[0]["input_ids"]


def test_the_text_is_the_official_one_and_a_long_one_is_cut() -> None:
    tokenizer = t5_tokenizer()
    assert ids("who?", "a\nnovel \n\n is") == tokenizer("who? [SEP] a novel is")["input_ids"]
    cut = ids("who?", "novel is " * 400)
    assert (len(cut), cut[-1]) == (64, tokenizer.eos_token_id)
    both = ids("who " * 500, "novel is " * 500)
    assert len(both) == 64
    assert tokenizer.decode(both).count("novel") >= 10, "half is left to the passage"


@pytest.mark.parametrize("hostile", ["</s>", "a</s>b </s></s>", "<extra_id_0>", "\uff1c/s\uff1e"])
def test_text_never_becomes_a_special_token(evaluator: T5Evaluator, hostile: str) -> None:
    """An end token in a passage would make T5 read its score elsewhere, or fail the batch."""
    tokenizer = t5_tokenizer()
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for found in (ids("who? " + hostile, "a"), ids("who?", hostile + " a")):
        assert [i for i in found if i in special] == [tokenizer.eos_token_id]
    scores = evaluator.score(QUESTION, [hostile + " a", *PASSAGES])
    assert scores[1:] == pytest.approx(evaluator.score(QUESTION, PASSAGES), abs=1e-5)


def test_another_classifier_gets_pairs_in_its_own_format() -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "is", "a", "novel", "emma", "?"]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    given = {"vocab_size": 11, "num_labels": 1, "max_position_embeddings": 32}
    config = BertConfig(num_hidden_layers=1, initializer_range=0.3, **given, **sizes)
    bert = BertForSequenceClassification(config).eval()
    passages, plain = ["a novel", "is [SEP] [CLS] emma", "novel " * 60], []
    for passage in passages:
        text = passage.replace("[SEP] [CLS] ", "")
        inputs = tokenizer("who is emma", text, truncation=True, max_length=32, return_tensors="pt")
        with torch.inference_mode():
            plain.append(float(bert(**inputs).logits.item()))
    scores = T5Evaluator(bert, tokenizer).score("who is emma", passages)
    assert scores == pytest.approx(np.clip(plain, -1, 1), abs=1e-5)
