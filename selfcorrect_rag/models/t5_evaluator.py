"""CRAG's retrieval evaluator: T5 with a regression head, or any classifier with one label."""

import math
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from selfcorrect_rag.errors import EvaluatorFailed, NotAnEvaluator, require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.models.checkpoints import (
    Encoded,
    encode_texts,
    loading,
    max_input_tokens,
    resolve_device,
)
from selfcorrect_rag.models.retrieval_evaluator import (
    IRRELEVANT,
    RELEVANT,
    RetrievalEvaluator,
    with_blanks,
)
from selfcorrect_rag.thresholds import Thresholds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SEPARATOR = " [SEP] "
"""The official code's separator of question and passage; plain text to T5's tokenizer."""
MAX_TOKENS = 512
"""Maximum tokens of a pair in the evaluator's training (official code)."""
BATCH_TOKENS = 16_384
"""Maximum padded tokens in a forward pass."""
CPU_SPREAD, GPU_SPREAD = 8, 128
"""Tokens by which the pairs of a batch may differ: padding costs more on a CPU."""


class T5Evaluator(RetrievalEvaluator):
    """Grades with the single logit of a sequence classifier, clamped to [-1, 1] (section 4.2).

    The pairs of a call are scored in batches of similar length; concurrent calls wait for each
    other. In bfloat16 a score moves by up to 0.02, and slightly with the rest of its batch. The
    paper's lower thresholds are that close to -1: use float32 if they must decide exactly.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        thresholds: Thresholds | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """Wrap a model that is already loaded; it stays on its device.

        Args:
            model: a sequence classifier with one label; NotAnEvaluator if it has others.
            tokenizer: the model's own.
            thresholds: map its scores to actions; by default ``crag_thresholds`` of its
                configuration (upper, lower), else the paper's for PopQA.
            max_tokens: maximum tokens of a pair, 512 by default; a longer passage is cut.
        """
        if model.config.num_labels != 1:
            raise NotAnEvaluator(
                f"{model.config.name_or_path or 'the model'} has {model.config.num_labels} labels: "
                "an evaluator is a checkpoint that was fine-tuned with num_labels=1"
            )
        own = getattr(model.config, "crag_thresholds", None)
        self.thresholds = thresholds or (Thresholds(*own) if own else self.thresholds)
        model.train(False)
        self._model, self._lock = model, threading.Lock()
        limit = max_input_tokens(model, max_tokens or min(MAX_TOKENS, tokenizer.model_max_length))
        self._pairs = PairTokenizer(tokenizer, max_tokens=limit)
        self._pad_id = tokenizer.pad_token_id or 0
        # A KV cache is useless for a single pass, and costs memory in a decoder.
        self._options = {"use_cache": False} if model.config.is_encoder_decoder else {}

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        dtype: str | None = None,
        **options: Any,
    ) -> Self:
        """Load a checkpoint from a folder or a hub name; ``options`` are those of the class.

        Args:
            device: ``cpu``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``; bfloat16 on CUDA and float32
                elsewhere by default.

        Raises NotAnEvaluator if it has not exactly one label, or its head was never trained.
        """
        where, number_format = resolve_device(device, dtype)
        transformers = require("transformers", "transformers")
        with loading(name_or_path):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name_or_path)
            model, loaded = transformers.AutoModelForSequenceClassification.from_pretrained(
                name_or_path, dtype=number_format, output_loading_info=True
            )
        if loaded["missing_keys"]:
            raise NotAnEvaluator(
                f"{name_or_path} has no weights for {min(loaded['missing_keys'])}: fine-tune it as "
                "an evaluator first"
            )
        return cls(model.to(where), tokenizer, **options)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        pairs = [(question, passage) for passage in passages if passage.strip()]
        with self._lock:
            scores = self._logits(pairs) if pairs else []
        if not all(map(math.isfinite, scores)):
            raise EvaluatorFailed("the evaluator gave a score that is not a number: try float32")
        return with_blanks(passages, (min(max(s, IRRELEVANT), RELEVANT) for s in scores))

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        encoded, device = self._pairs.encode(pairs), self._model.device
        order, outputs = [], []
        lengths = [len(pair["input_ids"]) for pair in encoded]
        spread = CPU_SPREAD if device.type == "cpu" else GPU_SPREAD
        with torch.inference_mode():
            for batch in batches(lengths, spread):
                inputs = {}
                for name in encoded[0]:
                    rows = [torch.tensor(encoded[i][name]) for i in batch]
                    pad = self._pad_id if name == "input_ids" else 0
                    inputs[name] = pad_sequence(rows, True, pad).to(device)
                outputs.append(self._model(**inputs, **self._options).logits.float().flatten())
                order += batch
            # Read once at the end, so that a GPU is not synchronised between batches.
            values = torch.cat(outputs).tolist()
        return [value for _, value in sorted(zip(order, values, strict=True))]


class PairTokenizer:
    """Encodes pairs; text never becomes a special token, and the passage is cut first.

    Between question and passage stands the tokenizer's own separator token, or :data:`SEPARATOR`.
    An end token in a passage would move the place where T5 reads its score, and its vocabulary has
    ``</s>`` as a piece of text too: ids of special tokens that the text spells are dropped.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_tokens: int) -> None:
        """Wrap ``tokenizer``, which no other thread may use.

        A pair has at most ``max_tokens``: the passage is cut at its end, and so is a question of
        more than half of them.
        """
        self._tokenizer, self._max_tokens = tokenizer, max_tokens

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
        """Encode each pair in at most ``max_tokens`` ids; line breaks are spaces."""
        questions = {question: self._cut(question) for question, _ in pairs}
        left = [questions[question] for question, _ in pairs]
        right = [_tidy(passage) for _, passage in pairs]
        if self._tokenizer.sep_token is not None:
            texts, cut = [left, right], "only_second"
        else:
            joined = [f"{q}{SEPARATOR}{p}" for q, p in zip(left, right, strict=True)]
            texts, cut = [joined], "longest_first"
        return encode_texts(self._tokenizer, *texts, truncation=cut, max_length=self._max_tokens)

    def _cut(self, question: str) -> str:
        question, half = _tidy(question), self._max_tokens // 2
        ids = self._tokenizer(
            question, add_special_tokens=False, truncation=True, max_length=half + 1
        )["input_ids"]
        return question if len(ids) <= half else str(self._tokenizer.decode(ids[:half]))


def _tidy(text: str) -> str:
    return " ".join(valid(text).split())


def batches(lengths: Sequence[int], spread: int) -> Iterator[list[int]]:
    """Split pairs of these token counts into batches, shortest first; yield their indices. The
    counts of a batch differ by less than ``spread``."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for _, group in groupby(order, lambda i: lengths[i] // spread):
        alike = list(group)
        size = max(1, BATCH_TOKENS // lengths[alike[-1]])
        yield from (alike[start : start + size] for start in range(0, len(alike), size))
