"""CRAG's retrieval evaluator: T5 with a regression head, or any classifier with one label."""

import asyncio
import math
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from selfcorrect_rag.errors import EvaluatorFailed, NotAnEvaluator, require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.models.checkpoints import loading, max_input_tokens, resolve_device
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

Pair = tuple[str, str]
"""A question and a passage."""
Encoded = dict[str, list[int]]
"""A model's inputs for one pair: ``input_ids``, ``attention_mask`` and so on."""


class T5Evaluator(RetrievalEvaluator):
    """Grades with the single logit of a sequence classifier, clamped to [-1, 1] (section 4.2).

    One worker thread owns the model. Calls of concurrent runs that wait while it is busy share its
    next forward passes, in batches of similar length.

    In bfloat16 a score moves by up to 0.02, and slightly with the rest of its batch. The paper's
    lower thresholds are that close to -1: use float32 if they must decide exactly.
    """

    is_independent = True

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        name: str = "model",
        thresholds: Thresholds | None = None,
        separator: str | None = None,
        max_tokens: int | None = None,
        batch_tokens: int = 16_384,
        pass_tokens: int | None = None,
        merged_pairs: int | None = None,
    ) -> None:
        """Wrap a model that is already loaded; it stays on its device.

        Args:
            model: a sequence classifier with one label, to be run by the evaluator's worker only.
            tokenizer: the model's own, to be used by the worker only.
            name: its name in messages.
            thresholds: map its scores to actions; by default ``crag_thresholds`` of its
                configuration (upper, lower), else the paper's for PopQA.
            separator: text between question and passage. By default the tokenizer's own separator
                token if it has one, else ``[SEP]``, which T5 reads as plain text (official code).
            max_tokens: maximum tokens of a pair, by default 512 and at most the model's own limit;
                a longer pair is cut, the passage first.
            batch_tokens: maximum padded tokens in a forward pass; lower it if memory is short.
            pass_tokens: fixed cost of a forward pass, in tokens of padding accepted to save one; by
                default 32 on a CPU and 8,192 elsewhere.
            merged_pairs: maximum pairs of merged calls. A call waits for all that it is merged
                with, which pays where passes are costly: by default 32 on a CPU and 256 elsewhere.

        Raises:
            NotAnEvaluator: the model has not exactly one label.
        """
        _check_labels(model.config, name)
        own: Sequence[float] | None = getattr(model.config, "crag_thresholds", None)
        if thresholds is not None:
            self.thresholds = thresholds
        elif own is not None:
            self.thresholds = Thresholds(*own)
        passes, pairs = (32, 32) if model.device.type == "cpu" else (8192, 256)
        self.name, self.batch_tokens = name, batch_tokens
        self.pass_tokens = passes if pass_tokens is None else pass_tokens
        self._merged_pairs = merged_pairs or pairs
        model.train(False)
        self._model = model
        limit = max_input_tokens(model, max_tokens or min(MAX_TOKENS, tokenizer.model_max_length))
        self._pairs = PairTokenizer(tokenizer, separator=separator, max_tokens=limit)
        self._form = (separator, limit)
        self._padding = {"input_ids": tokenizer.pad_token_id or 0}
        # A KV cache is useless for a single pass, and costs memory in a decoder.
        self._options = {"use_cache": False} if model.config.is_encoder_decoder else {}
        self._waiting: deque[tuple[list[Pair], Future[list[float]]]] = deque()
        self._worker, self._process = ThreadPoolExecutor(1, "retrieval-evaluator"), os.getpid()

    @classmethod
    def from_model(
        cls, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", **options: Any
    ) -> Self:
        """Wrap a loaded model, as the constructor does; the other backends have this too."""
        return cls(model, tokenizer, **options)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None,
        **options: Any,
    ) -> Self:
        """Load a checkpoint from a folder or a model hub.

        Args:
            name_or_path: a folder or a hub name.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: bfloat16 on CUDA and float32 elsewhere by default.
            options: further arguments of the class.

        Raises:
            MissingExtra: torch or transformers is not installed.
            ModelNotFound: no checkpoint is there, or it cannot be read.
            NotAnEvaluator: it has not exactly one label, or its head was never trained.
        """
        where, number_format = resolve_device(device, dtype)
        transformers = require("transformers", "transformers")
        with loading(name_or_path):
            config = transformers.AutoConfig.from_pretrained(name_or_path)
            _check_labels(config, str(name_or_path))  # before the weights are read
            tokenizer = transformers.AutoTokenizer.from_pretrained(name_or_path)
            model, loaded = transformers.AutoModelForSequenceClassification.from_pretrained(
                name_or_path, dtype=number_format, output_loading_info=True
            )
        if loaded["missing_keys"]:
            raise NotAnEvaluator(
                f"{name_or_path} has no weights for {min(loaded['missing_keys'])}, which would be "
                "random: fine-tune it as an evaluator first"
            )
        return cls(model.to(where), tokenizer, name=str(name_or_path), **options)

    @property
    def identity(self) -> str:
        """A fingerprint of its weights and of how pairs are encoded."""
        return f"{type(self).__qualname__} {weights(self._model)} {self._form}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage to the question, in [-1, 1] and in their order.

        A blank passage scores -1. The model is not run if all are blank.

        Raises:
            EvaluatorFailed: the model returned NaN or infinity.
        """
        scores = self._submit(question, passages)
        try:
            return with_blanks(passages, scores.result())
        finally:  # after an interrupt too
            scores.cancel()

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the scores of :meth:`score`; a call cancelled while it waits is not computed."""
        scores = await asyncio.wrap_future(self._submit(question, passages))
        return with_blanks(passages, scores)

    def _submit(self, question: str, passages: Sequence[str]) -> Future[list[float]]:
        pairs = [(question, passage) for passage in passages if passage.strip()]
        scores: Future[list[float]] = Future()
        if not pairs:
            scores.set_result([])
            return scores
        if self._process != os.getpid():  # forked: the parent's thread is not here
            self._worker, self._process = ThreadPoolExecutor(1, "retrieval-evaluator"), os.getpid()
            self._waiting.clear()
        self._waiting.append((pairs, scores))
        # One job per call: an earlier job may have taken its call, but jobs are never too few.
        self._worker.submit(self._work)
        return scores

    def _work(self) -> None:
        """Score the calls that wait, together, on the worker's thread."""
        calls: list[tuple[list[Pair], Future[list[float]]]] = []
        count = 0
        while self._waiting and (
            not calls or count + len(self._waiting[0][0]) <= self._merged_pairs
        ):
            call = self._waiting.popleft()
            if call[1].set_running_or_notify_cancel():
                calls.append(call)
                count += len(call[0])
        if calls:
            self._answer(calls)

    def _answer(self, calls: "list[tuple[list[Pair], Future[list[float]]]]") -> None:
        """Score merged calls; if that fails, each alone, so that a failure affects one call."""
        try:
            scores = iter(self._scores([pair for pairs, _ in calls for pair in pairs]))
        except BaseException as error:  # a caller waits for it, whatever it is
            if len(calls) == 1:
                calls[0][1].set_exception(error)
                return
            for call in calls:
                self._answer([call])
            return
        for pairs, result in calls:
            result.set_result([next(scores) for _ in pairs])

    def _scores(self, pairs: Sequence[Pair]) -> list[float]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        encoded = self._pairs.encode(pairs)
        order, outputs = [], []
        with torch.inference_mode():
            lengths = [len(pair["input_ids"]) for pair in encoded]
            for batch in batches(lengths, self.batch_tokens, self.pass_tokens):
                inputs = {
                    name: pad_sequence(
                        [torch.tensor(encoded[i][name]) for i in batch],
                        batch_first=True,
                        padding_value=self._padding.get(name, 0),
                    ).to(self._model.device)
                    for name in encoded[0]
                }
                outputs.append(self._model(**inputs, **self._options).logits.float().flatten())
                order += batch
            # Read once at the end, so that a GPU is not synchronised between batches.
            values = torch.cat(outputs).tolist()
        if not all(map(math.isfinite, values)):
            raise EvaluatorFailed(
                f"{self.name} gave a score that is not a number: try dtype='float32'; if that does "
                "not help, its weights are broken"
            )
        scores = dict(zip(order, values, strict=True))
        return [min(max(scores[i], IRRELEVANT), RELEVANT) for i in range(len(pairs))]


def _check_labels(config: Any, name: str) -> None:
    if config.num_labels != 1:
        raise NotAnEvaluator(
            f"{name} has {config.num_labels} labels; an evaluator has one, its score: use a "
            "checkpoint that was fine-tuned with num_labels=1"
        )


class PairTokenizer:
    """Encodes pairs; text never becomes a special token, and the passage is cut first.

    An end token in a passage would move the place where T5 reads its score. Splitting special
    tokens does not help there, since T5's vocabulary holds ``</s>`` as a piece of text too: ids
    of special tokens are dropped wherever the tokenizer itself did not add them.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", *, separator: str | None, max_tokens: int
    ) -> None:
        """Wrap ``tokenizer``, which no other thread may use.

        Args:
            tokenizer: the checkpoint's.
            separator: text between question and passage; by default the tokenizer's own format of
                pairs if it has a separator token, else :data:`SEPARATOR`.
            max_tokens: maximum tokens of a pair, at least 8: the passage is cut at its end, and so
                is a question of more than half of them.
        """
        if max_tokens < 8:
            raise ValueError(f"max_tokens must be at least 8, got {max_tokens}")
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        if separator is None and tokenizer.sep_token is None:
            separator = SEPARATOR
        self._separator = separator
        unknown = tokenizer.unk_token_id  # also encodes plain text
        self._special = frozenset(i for i in tokenizer.all_special_ids if i != unknown)

    def encode(self, pairs: Sequence[Pair]) -> list[Encoded]:
        """Encode each pair in at most ``max_tokens`` ids; line breaks are spaces."""
        questions = {question: self._cut(question) for question, _ in pairs}
        left = [questions[question] for question, _ in pairs]
        right = [_tidy(passage) for _, passage in pairs]
        if self._separator is not None:
            left = [q + self._separator + p for q, p in zip(left, right, strict=True)]
        encoded = self._tokenizer(
            left,
            right if self._separator is None else None,
            truncation=True if self._separator is not None else "only_second",
            max_length=self._max_tokens,
            return_special_tokens_mask=True,
        )
        masks = encoded.pop("special_tokens_mask")
        return [
            self._plain({name: encoded[name][i] for name in encoded}, mask)
            for i, mask in enumerate(masks)
        ]

    def _cut(self, question: str) -> str:
        question, half = _tidy(question), self._max_tokens // 2
        if len(question.encode()) <= half:  # no token is shorter than a byte
            return question
        ids = self._tokenizer(
            question, add_special_tokens=False, truncation=True, max_length=half + 1
        )["input_ids"]
        return question if len(ids) <= half else str(self._tokenizer.decode(ids[:half]))

    def _plain(self, encoded: Encoded, mask: Sequence[int]) -> Encoded:
        ids = encoded["input_ids"]
        kept = [i for i, added in enumerate(mask) if added or ids[i] not in self._special]
        if len(kept) == len(ids):
            return encoded
        return {name: [values[i] for i in kept] for name, values in encoded.items()}


def _tidy(text: str) -> str:
    return " ".join(valid(text).split())


def batches(lengths: Sequence[int], most_tokens: int, pass_tokens: int) -> list[list[int]]:
    """Split pairs of these lengths into batches, minimising computed token positions.

    Args:
        lengths: tokens of each pair.
        most_tokens: maximum padded tokens of a batch; a longer pair goes alone.
        pass_tokens: fixed cost of a forward pass, in tokens.

    Returns:
        Indices of the pairs of each batch, shortest first.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    costs, starts = [0], [0]  # best split of the first n pairs: cost, start of its last batch
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, most_tokens // longest))
        splits = ((costs[s] + pass_tokens + (end - s) * longest, s) for s in range(first, end))
        cost, start = min(splits)
        costs.append(cost)
        starts.append(start)
    made, end = [], len(order)
    while end:
        made.append(order[starts[end] : end])
        end = starts[end]
    return made[::-1]
