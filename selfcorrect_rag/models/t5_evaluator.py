"""CRAG's retrieval evaluator: T5 with a regression head, or any classifier with one label."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from selfcorrect_rag.errors import EvaluationFailed, ModelNotFound, NotAnEvaluator
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.micro_batching import MicroBatcher
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.thresholds import Thresholds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SEPARATOR = " [SEP] "
"""Between question and passage, as in the official code; plain text to T5's tokenizer."""
LONGEST = 512
"""Tokens of a pair, as the paper's evaluator was trained on."""


class T5Evaluator(RetrievalEvaluator):
    """Grades with a sequence classifier whose one output is a score in [-1, 1].

    Pairs are sorted by length and padded to the longest of their batch. One worker thread owns the
    model; concurrent runs share its forward passes.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        thresholds: Thresholds | None = None,
        batch_tokens: int = 16_384,
        longest: int = LONGEST,
    ) -> None:
        """Wrap a model that is already loaded; it stays on its device.

        Args:
            model: a sequence classifier with one label.
            tokenizer: its own.
            thresholds: what its scores mean; those in its configuration by default
                (``crag_thresholds``: upper, lower), else the paper's for PopQA.
            batch_tokens: most padded tokens in a forward pass; lower it where memory is short.
            longest: tokens at which a pair is cut; the passage loses its end.

        Raises:
            NotAnEvaluator: it has more than one label.
        """
        if model.config.num_labels != 1:
            raise NotAnEvaluator(
                f"{model.name_or_path or type(model).__name__} has {model.config.num_labels} "
                "labels: an evaluator has one, its score (num_labels=1)"
            )
        own: list[float] | None = getattr(model.config, "crag_thresholds", None)
        if thresholds is not None:
            self.thresholds = thresholds
        elif own:
            self.thresholds = Thresholds(*own)
        self.batch_tokens, self.longest = batch_tokens, longest
        self._model, self._tokenizer = model, tokenizer
        model.train(False)
        self._batcher = MicroBatcher(self._scores, "retrieval-evaluator")

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
            device: ``cpu``, ``cuda``, ``mps``; CUDA where there is one, by default.
            dtype: bfloat16 on CUDA and float32 elsewhere by default.
            options: further arguments of the class.

        Raises:
            MissingExtra: torch or transformers is not installed.
            ModelNotFound: no checkpoint is there, or it cannot be read.
            NotAnEvaluator: it has more than one label.
        """
        torch = require("torch", "local")
        transformers = require("transformers", "local")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = dtype or ("bfloat16" if device.startswith("cuda") else "float32")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name_or_path)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(
                name_or_path, dtype=dtype
            )
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise ModelNotFound(
                f"cannot load an evaluator from {name_or_path}: {reason}"
            ) from error
        return cls(model.to(device), tokenizer, **options)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return self._batcher.run([pair(question, passage) for passage in passages])

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        return await self._batcher.arun([pair(question, passage) for passage in passages])

    def _scores(self, pairs: list[str]) -> list[float]:
        """Scores of pairs of any number of questions, in order, on the worker's thread."""
        import torch

        encoded: list[list[int]] = self._tokenizer(pairs, truncation=True, max_length=self.longest)[
            "input_ids"
        ]
        scores = [math.nan] * len(pairs)
        for batch in self._batches(encoded):
            inputs = self._tokenizer.pad(
                {"input_ids": [encoded[i] for i in batch]}, return_tensors="pt"
            ).to(self._model.device)
            with torch.inference_mode():
                logits = self._model(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
                ).logits
            for i, score in zip(batch, logits.float().flatten().tolist(), strict=True):
                scores[i] = min(max(score, -1.0), 1.0)
        if any(math.isnan(score) for score in scores):
            raise EvaluationFailed(
                f"{self._model.name_or_path or 'the evaluator'} gives scores that are no numbers: "
                "try dtype float32"
            )
        return scores

    def _batches(self, encoded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of pairs to score together, of like length."""
        batch: list[int] = []
        for i in sorted(range(len(encoded)), key=lambda i: len(encoded[i])):
            if batch and (len(batch) + 1) * len(encoded[i]) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch


def pair(question: str, passage: str) -> str:
    """What the evaluator reads; line breaks are spaces, as in its training."""
    return " ".join(f"{question}{SEPARATOR}{passage}".split())
