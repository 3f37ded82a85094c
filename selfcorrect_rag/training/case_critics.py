"""Critics that judge many cases in batches, each once: answers are kept in a file as they come."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.critic import Answer, Asked, Critic, critic_prompt
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.training.augmentation import Case, Label
from selfcorrect_rag.training.critic_data import critic_asked
from selfcorrect_rag.training.journal import Journal
from selfcorrect_rag.training.labelling import Labelling, Request

Done = Callable[[int], object]
"""Called with how many cases have been judged since the last time."""


class CaseCritic(ABC):
    """Any critic, as Algorithm 3 asks it."""

    calls = 0
    """Batches, or calls of a language model, so far."""

    @abstractmethod
    def judge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        """A label for each case; what ``kept``, a file, has one for is not asked again."""

    @abstractmethod
    async def ajudge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        """The async twin of :meth:`judge`."""


def case_critic(
    critic: Critic | Runnable[Any, Any], *, attempts: int, max_concurrency: int
) -> CaseCritic:
    """A fine-tuned critic, or any LangChain model with the paper's prompts (tables 8 to 12).

    Args:
        critic: whose answers are wanted.
        attempts: most answers of a LangChain model to one case, while they are malformed.
        max_concurrency: most calls of a LangChain model at a time.
    """
    if isinstance(critic, Critic):
        return _Checkpoint(critic)
    return _LanguageModel(critic, attempts, max_concurrency)


class _Checkpoint(CaseCritic):
    def __init__(self, critic: Critic) -> None:
        self._critic = critic

    def judge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        asking = _Asking(cases, kept, done)
        for batch in self._critic.answers(asking.asked):
            self._keep(asking, batch)
        return asking.labels()

    async def ajudge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        asking = _Asking(cases, kept, done)
        batches = self._critic.answers(asking.asked)
        while batch := await asyncio.to_thread(next, batches, None):
            self._keep(asking, batch)
        return asking.labels()

    def _keep(self, asking: "_Asking", batch: Mapping[int, Answer]) -> None:
        self.calls += 1
        asking.keep(batch)


class _Asking:
    """The cases of one call that have still to be asked."""

    def __init__(self, cases: Sequence[Case], kept: Path, done: Done) -> None:
        self._journal, self._done = Journal(kept), done
        all_asked = [critic_asked(CRITIQUE_PROMPTS[case.aspect], case.instance) for case in cases]
        self._keys = [Request(critic_prompt(asked), asked.group).key for asked in all_asked]
        missing: dict[str, Asked] = {
            key: asked
            for key, asked in zip(self._keys, all_asked, strict=True)
            if key not in self._journal.rows
        }
        self._missing, self.asked = list(missing), list(missing.values())

    def keep(self, batch: Mapping[int, Answer]) -> None:
        for i, answer in batch.items():
            self._journal.append(self._missing[i], answer._asdict())
        self._done(len(batch))

    def labels(self) -> list[Label]:
        return [Label(**self._journal.rows[key]) for key in self._keys]


class _LanguageModel(CaseCritic):
    def __init__(self, model: Runnable[Any, Any], attempts: int, max_concurrency: int) -> None:
        self._model, self._attempts, self._concurrency = model, attempts, max_concurrency

    def judge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        requests, labelling = self._labelling(cases, kept)
        if labelling.pending:
            report = labelling.run(
                self._model, max_concurrency=self._concurrency, on_done=lambda: done(1)
            )
            self.calls += report.calls
        return [_label(labelling, request) for request in requests]

    async def ajudge(self, cases: Sequence[Case], kept: Path, done: Done) -> list[Label]:
        requests, labelling = self._labelling(cases, kept)
        if labelling.pending:
            report = await labelling.arun(
                self._model, max_concurrency=self._concurrency, on_done=lambda: done(1)
            )
            self.calls += report.calls
        return [_label(labelling, request) for request in requests]

    def _labelling(self, cases: Sequence[Case], kept: Path) -> tuple[list[Request], Labelling]:
        requests = [
            Request(
                CRITIQUE_PROMPTS[case.aspect].prompt(case.instance),
                CRITIQUE_PROMPTS[case.aspect].group,
                {"aspect": case.aspect},
            )
            for case in cases
        ]
        return requests, Labelling(requests, _read, kept, {}, attempts=self._attempts)


def _read(request: Request, answer: str) -> Mapping[str, Any] | None:
    judgement = CRITIQUE_PROMPTS[request.fields["aspect"]].read(answer)
    return {"token": judgement.token} if judgement else None


def _label(labelling: Labelling, request: Request) -> Label:
    if row := labelling.labels.rows.get(request.key):
        return Label(row["token"])
    return Label(None, reason=labelling.failures.rows[request.key]["reason"])
