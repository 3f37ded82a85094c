"""Algorithm 3's critics and retrievers, whose answers are kept in journals as they come."""

import asyncio
import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import RetrievalFailed, describe_error
from selfcorrect_rag.old_journal import Journal
from selfcorrect_rag.models.critic import Answer, Critic, CriticInput, critic_input, critic_prompt
from selfcorrect_rag.prompts.critic import critique_prompts
from selfcorrect_rag.training.augmentation import CritiqueRequest, Label, Passage
from selfcorrect_rag.training.labelling import Labelling, LabelRequest

Done = Callable[[int], object]
"""Called with how many cases have been judged since the last time."""


class JournaledCritic(ABC):
    """Any critic, as Algorithm 3 asks it."""

    calls = 0
    """Batches, or calls of a language model, so far."""

    @abstractmethod
    def judge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        """A label for each case; what ``kept``, a file, has one for is not asked again."""

    @abstractmethod
    async def ajudge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        """The async twin of :meth:`judge`."""


def journaled_critic(
    critic: Critic | Runnable[Any, Any], *, attempts: int, max_concurrency: int
) -> JournaledCritic:
    """A fine-tuned critic, or any LangChain model with the paper's prompts (tables 8 to 12).

    Args:
        critic: whose answers are wanted.
        attempts: most answers of a LangChain model to one case, while they are malformed.
        max_concurrency: most calls of a LangChain model at a time.
    """
    if isinstance(critic, Critic):
        return _Checkpoint(critic)
    return _LanguageModel(critic, attempts, max_concurrency)


class _Checkpoint(JournaledCritic):
    def __init__(self, critic: Critic) -> None:
        self._critic = critic

    def judge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        pending = _PendingRequests(cases, kept, done)
        for batch in self._critic.answers(pending.inputs):
            self._keep(pending, batch)
        return pending.labels()

    async def ajudge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        pending = _PendingRequests(cases, kept, done)
        batches = self._critic.answers(pending.inputs)
        while batch := await asyncio.to_thread(next, batches, None):
            self._keep(pending, batch)
        return pending.labels()

    def _keep(self, pending: "_PendingRequests", batch: Mapping[int, Answer]) -> None:
        self.calls += 1
        pending.keep(batch)


class _PendingRequests:
    """The cases of one call that have still to be asked."""

    def __init__(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> None:
        self._journal, self._done = Journal(kept), done
        inputs = [critic_input(critique_prompts()[case.prompt], case.instance) for case in cases]
        self._keys = [LabelRequest(critic_prompt(given), given.group).key for given in inputs]
        missing: dict[str, CriticInput] = {
            key: given
            for key, given in zip(self._keys, inputs, strict=True)
            if key not in self._journal.rows
        }
        self._missing, self.inputs = list(missing), list(missing.values())

    def keep(self, batch: Mapping[int, Answer]) -> None:
        for i, answer in batch.items():
            label = {"token": answer.token, "probability": answer.probability}
            self._journal.append(self._missing[i], label)
        self._done(len(batch))

    def labels(self) -> list[Label]:
        return [Label(**self._journal.rows[key]) for key in self._keys]


class _LanguageModel(JournaledCritic):
    def __init__(self, model: Runnable[Any, Any], attempts: int, max_concurrency: int) -> None:
        self._model, self._attempts, self._concurrency = model, attempts, max_concurrency

    def judge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        requests, labelling = self._labelling(cases, kept)
        if labelling.pending:
            report = labelling.run(
                self._model, max_concurrency=self._concurrency, on_done=lambda: done(1)
            )
            self.calls += report.calls
        return [_label(labelling, request) for request in requests]

    async def ajudge(self, cases: Sequence[CritiqueRequest], kept: Path, done: Done) -> list[Label]:
        requests, labelling = self._labelling(cases, kept)
        if labelling.pending:
            report = await labelling.arun(
                self._model, max_concurrency=self._concurrency, on_done=lambda: done(1)
            )
            self.calls += report.calls
        return [_label(labelling, request) for request in requests]

    def _labelling(
        self, cases: Sequence[CritiqueRequest], kept: Path
    ) -> tuple[list[LabelRequest], Labelling]:
        requests = [
            LabelRequest(
                critique_prompts()[case.prompt].prompt(case.instance),
                critique_prompts()[case.prompt].group,
                {"critique": case.prompt},
            )
            for case in cases
        ]
        return requests, Labelling(requests, _read, kept, {}, max_attempts=self._attempts)


def _read(request: LabelRequest, answer: str) -> Mapping[str, Any] | None:
    judgement = critique_prompts()[request.fields["critique"]].read(answer)
    return {"token": judgement.token} if judgement else None


def _label(labelling: Labelling, request: LabelRequest) -> Label:
    if row := labelling.labels.rows.get(request.key):
        return Label(row["token"])
    return Label(None, reason=labelling.failures.rows[request.key]["reason"])


QUERIES = 64
"""That go to the retriever in one batch."""


class JournaledSearch:
    """A retriever, as Algorithm 3 asks it."""

    def __init__(self, retriever: Runnable[str, list[Document]], max_concurrency: int) -> None:
        self._retriever = retriever
        self._config = RunnableConfig(max_concurrency=max_concurrency)
        self.queries = 0
        """Asked so far."""

    def find(self, queries: Sequence[str], kept: Path) -> list[list[Passage]]:
        """Passages for each query, best first; those in the file ``kept`` are not looked for.

        Raises:
            RetrievalFailed: the retriever raised; what came before is kept.
        """
        found = _PendingQueries(queries, kept)
        for batch in found.missing():
            try:
                self._keep(found, batch, self._retriever.batch(batch, self._config))
            except Exception as error:
                raise _failed(error) from error
        return found.passages()

    async def afind(self, queries: Sequence[str], kept: Path) -> list[list[Passage]]:
        """The async twin of :meth:`find`."""
        found = _PendingQueries(queries, kept)
        for batch in found.missing():
            try:
                self._keep(found, batch, await self._retriever.abatch(batch, self._config))
            except Exception as error:
                raise _failed(error) from error
        return found.passages()

    def _keep(
        self,
        found: "_PendingQueries",
        batch: Sequence[str],
        documents: Sequence[Sequence[Document]],
    ) -> None:
        self.queries += len(batch)
        found.keep(batch, documents)


class _PendingQueries:
    """The queries of one call, and what is known of them."""

    def __init__(self, queries: Sequence[str], kept: Path) -> None:
        self._queries, self._journal = queries, Journal(kept)

    def missing(self) -> Iterator[list[str]]:
        """Batches of what has still to be looked for."""
        once = [q for q in dict.fromkeys(self._queries) if _key(q) not in self._journal.rows]
        for start in range(0, len(once), QUERIES):
            yield once[start : start + QUERIES]

    def keep(self, queries: Sequence[str], found: Sequence[Sequence[Document]]) -> None:
        for query, documents in zip(queries, found, strict=True):
            passages = [_passage(d) for d in documents if d.page_content.strip()]
            row = {"query": query, "passages": [dataclasses.asdict(p) for p in passages]}
            self._journal.append(_key(query), row)

    def passages(self) -> list[list[Passage]]:
        """For each query; no two lists share a passage."""
        rows = [self._journal.rows[_key(query)] for query in self._queries]
        return [[Passage(**passage) for passage in row["passages"]] for row in rows]


def _key(query: str) -> str:
    return hashlib.sha256(query.encode(errors="surrogatepass")).hexdigest()[:32]


def _passage(document: Document) -> Passage:
    title = str(document.metadata.get("title") or "").replace("\n", " ")
    score = document.metadata.get("score")
    return Passage(
        id=str(document.id or ""),
        title=title,
        text=document.page_content,
        score=float(score) if isinstance(score, int | float) else None,
    )


def _failed(error: Exception) -> RetrievalFailed:
    return RetrievalFailed(f"{describe_error(error)}; the same command goes on from here")
