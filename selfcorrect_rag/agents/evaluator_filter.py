"""CRAG's retrieval evaluator as a LangChain document compressor."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import ensure_config
from langgraph.constants import TAG_NOSTREAM
from pydantic import PrivateAttr

from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, agrade, grade, titled
from selfcorrect_rag.nodes.base.usage import called_with


class EvaluatorFilter(BaseDocumentCompressor):
    """Keeps the documents that the evaluator does not call irrelevant (CRAG sections 4.2 and 4.3).

    Those that score below ``lower`` are left out; the others keep their order. Their metadata get
    ``relevance_score``, in [-1, 1]. All are graded in one batch, by title and text.

    Raises:
        EvaluatorFailed: at a call, where the evaluator fails.
    """

    lower: float
    """The threshold, in [-1, 1]."""
    _evaluator: RetrievalEvaluator = PrivateAttr()

    def __init__(self, evaluator: Evaluator, *, lower: float | None = None) -> None:
        """Filter by ``evaluator``.

        Args:
            evaluator: a RetrievalEvaluator, a chat model or its name, or a checkpoint's name.
            lower: the threshold; None takes the evaluator's own lower one.

        Raises:
            BadArgument: ``evaluator`` is of the wrong kind.
        """
        judge = as_evaluator(evaluator)
        super().__init__(lower=judge.thresholds.lower if lower is None else lower)  # type: ignore[call-arg]
        self._evaluator = judge

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> list[Document]:
        """The documents of at least the threshold, with their scores."""
        with _within(callbacks):
            scores = grade(self._evaluator, query, [titled(each) for each in documents])
        return self._kept(documents, scores)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> list[Document]:
        """The async twin of :meth:`compress_documents`."""
        with _within(callbacks):
            scores = await agrade(self._evaluator, query, [titled(each) for each in documents])
        return self._kept(documents, scores)

    def _kept(self, documents: Sequence[Document], scores: Sequence[float]) -> list[Document]:
        return [
            each.model_copy(update={"metadata": {**each.metadata, "relevance_score": score}})
            for each, score in zip(documents, scores, strict=True)
            if score >= self.lower
        ]


def _within(callbacks: Callbacks) -> AbstractContextManager[Any]:
    """A chat model that grades is traced as a child, and is no part of a streamed answer."""
    return called_with(ensure_config({"callbacks": callbacks, "tags": [TAG_NOSTREAM]}))
