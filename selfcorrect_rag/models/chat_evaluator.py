"""A chat model as CRAG's retrieval evaluator (section 5.5, appendix A)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.models.evaluator_prompts import (
    PromptKind,
    prompt_for_one,
    prompt_for_several,
    verdict,
    verdicts,
)
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT, RELEVANT, RetrievalEvaluator
from selfcorrect_rag.prompts import as_text
from selfcorrect_rag.thresholds import Thresholds

UNREADABLE = 0.0
"""The score of a passage about which the model said neither yes nor no."""


@dataclass
class ChatCounts:
    """What a :class:`ChatEvaluator` has cost and missed since it was made."""

    calls: int = 0
    """Calls of the model."""
    fallbacks: int = 0
    """Calls about several passages whose answer did not keep to the format."""
    unreadable: int = 0
    """Passages scored 0 because the answer was neither yes nor no."""


class ChatEvaluator(RetrievalEvaluator):
    """Grades by asking any LangChain chat model or LLM for yes (1) or no (-1).

    Up to ``together`` passages go into one call. Where its answer does not give exactly one
    verdict for each, they are asked about again one by one, with the paper's own prompt. In the
    paper a fine-tuned T5 judges far better than ChatGPT does (Table 4: 84.3 against 64.7 at best):
    this is for where no such evaluator is at hand.
    """

    thresholds = Thresholds(upper=0.5, lower=-0.5)
    """Any yes is correct, nothing but no is incorrect, and what cannot be read is ambiguous."""

    def __init__(
        self,
        llm: Runnable[Any, Any],
        *,
        prompt: PromptKind = "few_shot",
        together: int = 10,
        max_concurrency: int = 8,
    ) -> None:
        """Grade with ``llm``; temperature 0 gives scores that can be repeated.

        Args:
            llm: a chat model or an LLM, perhaps bound to options or with retries.
            prompt: which of the paper's prompts to ask in; by default the one that it found best.
            together: most passages in one call; 1 is the paper's procedure.
            max_concurrency: most calls of the model at a time for one :meth:`score`.
        """
        if together < 1:
            raise ValueError(f"together is {together}; a call is about at least 1 passage")
        self.llm, self.prompt, self.together = llm, prompt, together
        # Grading is no part of the answer: keep it out of token streams.
        self._config = RunnableConfig(tags=["nostream"], max_concurrency=max_concurrency)
        self._counts, self._counting = ChatCounts(), threading.Lock()

    @property
    def counts(self) -> ChatCounts:
        """The counts so far, of all runs together."""
        with self._counting:
            return replace(self._counts)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """1 for each passage that answers the question, -1 for one that does not, in their order.

        A blank passage scores -1 unasked; one on which the model's answer cannot be read scores 0.
        Errors of the model pass through.
        """
        grading = _Grading(self, question, passages)
        while prompts := grading.prompts():
            grading.read(self.llm.batch(prompts, self._config))
        return self._done(grading)

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """The async twin of :meth:`score`."""
        grading = _Grading(self, question, passages)
        while prompts := grading.prompts():
            grading.read(await self.llm.abatch(prompts, self._config))
        return self._done(grading)

    def model_calls(self, passages: Sequence[str]) -> int:
        """Calls that scoring them takes where each answer can be read."""
        asked = sum(bool(passage.strip()) for passage in passages)
        return -(-asked // self.together)

    def _done(self, grading: "_Grading") -> list[float]:
        with self._counting:
            for field in fields(ChatCounts):
                sofar = getattr(self._counts, field.name)
                setattr(self._counts, field.name, sofar + getattr(grading.counts, field.name))
        return grading.scores


class _Grading:
    """One call of ``score``: the passages still to be asked about, in groups of one prompt each."""

    def __init__(self, evaluator: ChatEvaluator, question: str, passages: Sequence[str]) -> None:
        self._kind, self._question, self._passages = evaluator.prompt, question, passages
        asked = [i for i, passage in enumerate(passages) if passage.strip()]
        size = evaluator.together
        self._groups = [asked[start : start + size] for start in range(0, len(asked), size)]
        self.scores = [IRRELEVANT] * len(passages)
        self.counts = ChatCounts()

    def prompts(self) -> list[str]:
        """What to ask next; nothing when all is answered."""
        return [
            prompt_for_one(self._kind, self._question, self._passages[group[0]])
            if len(group) == 1
            else prompt_for_several(self._kind, self._question, [self._passages[i] for i in group])
            for group in self._groups
        ]

    def read(self, answers: Sequence[Any]) -> None:
        """Take the answers to :meth:`prompts`, in their order."""
        groups, self._groups = self._groups, []
        self.counts.calls += len(groups)
        for group, answer in zip(groups, answers, strict=True):
            text = answer if isinstance(answer, str) else as_text(answer.content)
            if len(group) == 1:
                self._set(group[0], verdict(self._kind, text))
            elif (given := verdicts(text, len(group))) is None:
                self.counts.fallbacks += 1
                self._groups += [[i] for i in group]
            else:
                for i, is_relevant in zip(group, given, strict=True):
                    self._set(i, is_relevant)

    def _set(self, passage: int, is_relevant: bool | None) -> None:
        if is_relevant is None:
            self.counts.unreadable += 1
            self.scores[passage] = UNREADABLE
        else:
            self.scores[passage] = RELEVANT if is_relevant else IRRELEVANT
