"""CRAG's retrieval evaluator: T5 with a regression head, or any classifier with one label."""

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from selfcorrect_rag.errors import EvaluatorFailed, NotAnEvaluator, require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.models.checkpoints import (
    Encoded,
    loading,
    max_input_tokens,
    resolve_device,
    special_ids,
    without_spelled,
)
from selfcorrect_rag.models.identity import weights
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
CPU_PASS_TOKENS, GPU_PASS_TOKENS = 32, 8192
"""Padded tokens that cost as much time as another forward pass."""

Pair = tuple[str, str]
"""A question and a passage."""


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
        batch_tokens: int = 16_384,
    ) -> None:
        """Wrap a model that is already loaded; it stays on its device.

        Args:
            model: a sequence classifier with one label; NotAnEvaluator if it has others.
            tokenizer: the model's own.
            thresholds: map its scores to actions; by default ``crag_thresholds`` of its
                configuration (upper, lower), else the paper's for PopQA.
            max_tokens: maximum tokens of a pair, by default 512 and at most the model's own limit;
                a longer pair is cut, the passage first.
            batch_tokens: maximum padded tokens in a forward pass; lower it if memory is short.
        """
        _check_labels(model.config)
        own: Sequence[float] | None = getattr(model.config, "crag_thresholds", None)
        self.thresholds = thresholds or (Thresholds(*own) if own else self.thresholds)
        self.batch_tokens = batch_tokens
        model.train(False)
        self._model, self._lock = model, threading.Lock()
        limit = max_input_tokens(model, max_tokens or min(MAX_TOKENS, tokenizer.model_max_length))
        self._pairs, self._limit = PairTokenizer(tokenizer, max_tokens=limit), limit
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
        """Load a checkpoint from a folder or a model hub.

        Args:
            name_or_path: a folder or a hub name.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``; bfloat16 on CUDA and float32
                elsewhere by default.
            options: further arguments of the class.

        Raises NotAnEvaluator if it has not exactly one label, or its head was never trained.
        """
        where, number_format = resolve_device(device, dtype)
        transformers = require("transformers", "transformers")
        with loading(name_or_path):
            config = transformers.AutoConfig.from_pretrained(name_or_path)
            _check_labels(config)  # before the weights are read
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

    @property
    def identity(self) -> str:
        return f"{type(self).__qualname__} {weights(self._model)} {self._limit}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        pairs = [(question, passage) for passage in passages if passage.strip()]
        if not pairs:
            return with_blanks(passages, [])
        with self._lock:
            scores = self._logits(pairs)
        if not all(map(math.isfinite, scores)):
            raise EvaluatorFailed(
                "the evaluator gave a score that is not a number: try dtype='float32'; if that "
                "does not help, its weights are broken"
            )
        return with_blanks(passages, (min(max(s, IRRELEVANT), RELEVANT) for s in scores))

    def _logits(self, pairs: Sequence[Pair]) -> list[float]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        encoded, device = self._pairs.encode(pairs), self._model.device
        order, outputs = [], []
        lengths = [len(pair["input_ids"]) for pair in encoded]
        pass_tokens = CPU_PASS_TOKENS if device.type == "cpu" else GPU_PASS_TOKENS
        with torch.inference_mode():
            for batch in batches(lengths, self.batch_tokens, pass_tokens):
                inputs = {}
                for name in encoded[0]:
                    rows = [torch.tensor(encoded[i][name]) for i in batch]
                    pad = self._pad_id if name == "input_ids" else 0
                    inputs[name] = pad_sequence(rows, True, pad).to(device)
                outputs.append(self._model(**inputs, **self._options).logits.float().flatten())
                order += batch
            # Read once at the end, so that a GPU is not synchronised between batches.
            values = torch.cat(outputs).tolist()
        scores = dict(zip(order, values, strict=True))
        return [scores[i] for i in range(len(pairs))]


def _check_labels(config: Any) -> None:
    if config.num_labels != 1:
        raise NotAnEvaluator(
            f"{config.name_or_path or 'the model'} has {config.num_labels} labels: an evaluator is "
            "a checkpoint that was fine-tuned with num_labels=1"
        )


class PairTokenizer:
    """Encodes pairs; text never becomes a special token, and the passage is cut first.

    Between question and passage stands the tokenizer's own separator token, or :data:`SEPARATOR`.
    An end token in a passage would move the place where T5 reads its score. Splitting special
    tokens does not help, since T5's vocabulary holds ``</s>`` as a piece of text too: their ids are
    dropped wherever the tokenizer itself did not add them.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_tokens: int) -> None:
        """Wrap ``tokenizer``, which no other thread may use.

        A pair has at most ``max_tokens``, at least 8: the passage is cut at its end, and so is a
        question of more than half of them.
        """
        if max_tokens < 8:
            raise ValueError(f"max_tokens must be at least 8, got {max_tokens}")
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._has_separator = tokenizer.sep_token is not None
        self._special = special_ids(tokenizer)

    def encode(self, pairs: Sequence[Pair]) -> list[Encoded]:
        """Encode each pair in at most ``max_tokens`` ids; line breaks are spaces."""
        questions = {question: self._cut(question) for question, _ in pairs}
        left = [questions[question] for question, _ in pairs]
        right: list[str] | None = [_tidy(passage) for _, passage in pairs]
        if not self._has_separator:
            left = [q + SEPARATOR + p for q, p in zip(left, right or (), strict=True)]
            right = None
        encoded = self._tokenizer(
            left,
            right,
            truncation="only_second" if right else True,
            max_length=self._max_tokens,
            return_special_tokens_mask=True,
        )
        each = ({name: encoded[name][i] for name in encoded} for i in range(len(pairs)))
        return [without_spelled(one, self._special) for one in each]

    def _cut(self, question: str) -> str:
        question, half = _tidy(question), self._max_tokens // 2
        if len(question.encode()) <= half:  # no token is shorter than a byte
            return question
        ids = self._tokenizer(
            question, add_special_tokens=False, truncation=True, max_length=half + 1
        )["input_ids"]
        return question if len(ids) <= half else str(self._tokenizer.decode(ids[:half]))


def _tidy(text: str) -> str:
    return " ".join(valid(text).split())


def batches(lengths: Sequence[int], most_tokens: int, pass_tokens: int) -> Iterator[list[int]]:
    """Split pairs of these token counts into batches, shortest first; yield their indices.

    A batch ends where its padding would cost more than another pass, ``pass_tokens``, or where it
    would have more than ``most_tokens`` with its padding; a longer pair goes alone.
    """
    batch: list[int] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = lengths[i] * (len(batch) + 1)
        if batch and (padded > most_tokens or padded - tokens - lengths[i] > pass_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(i)
        tokens += lengths[i]
    if batch:
        yield batch
