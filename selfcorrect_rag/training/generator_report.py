"""How the generator's training data came out: labels, passages, and what they cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.reflection import FULLY_SUPPORTED, NO_RETRIEVAL, PARTIALLY_SUPPORTED, RELEVANT
from selfcorrect_rag.training.labelling import MALFORMED


@dataclass(frozen=True)
class GeneratorDataReport:
    """How rows came out, of all runs together, and what this run used. Shares are in [0, 1]."""

    rows: int
    written: int
    failed: int
    """Rows for which a call of the critic failed; the next run tries them again."""
    malformed: int
    """Rows left out because the critic gave no label that can be read."""
    labels: dict[str, dict[str, int]]
    """What the critic gave, by aspect and token."""
    retrieved: float | None
    """Of the rows written, the share that reads a passage. None where there is none, as below."""
    segments: int
    """Of the rows that the critic wants retrieval for."""
    read: int
    """Of them, those written from a passage of their own."""
    relevant: float | None
    """Of the passages read, the share that is relevant."""
    supported: float | None
    """Of the passages read, the share that supports its sentence, fully or in part."""
    unfound: int
    """Segments without a passage though the critic wants one: there was none."""
    look_alikes: int
    """Marks in texts, such as control tokens, each quoted."""
    calls: int
    """Batches of a critic, or calls of a language model, in this run."""
    queries: int
    """In this run."""


def report(
    written: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
    *,
    calls: int,
    queries: int,
) -> GeneratorDataReport:
    """Count decisions (see :class:`~.augmentation.Decisions`, as JSON) and failures."""
    segments = [segment for one in written for segment in one["segments"]]
    read = [s["passages"][s["chosen"]] for s in segments if s["chosen"] is not None]
    malformed = sum(row["reason"] == MALFORMED for row in failed)
    readers = sum(any(s["chosen"] is not None for s in one["segments"]) for one in written)
    labels: dict[str, Counter[str]] = {aspect: Counter() for aspect in CRITIQUE_PROMPTS}
    for one in written:
        for aspect, label in _labels(one):
            if label:
                labels[aspect][label["token"] or MALFORMED] += 1
    return GeneratorDataReport(
        rows=len(written) + len(failed),
        written=len(written),
        failed=len(failed) - malformed,
        malformed=malformed,
        labels={aspect: dict(sorted(counts.items())) for aspect, counts in labels.items()},
        retrieved=_share(readers, written),
        segments=len(segments),
        read=len(read),
        relevant=_share(sum(_token(p["isrel"]) == RELEVANT for p in read), read),
        supported=_share(
            sum(_token(p["issup"]) in (FULLY_SUPPORTED, PARTIALLY_SUPPORTED) for p in read), read
        ),
        unfound=sum(
            s["token"] == NO_RETRIEVAL and _token(s["retrieve"]) != NO_RETRIEVAL for s in segments
        ),
        look_alikes=sum(one["look_alikes"] for one in written),
        calls=calls,
        queries=queries,
    )


def _labels(one: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    yield "retrieval", one["retrieve"]
    yield "utility", one["utility"]
    for segment in one["segments"]:
        yield "multi_retrieval", segment["retrieve"]
        for passage in segment["passages"]:
            yield "relevance", passage["isrel"]
            yield "groundness", passage["issup"]


def _token(label: Mapping[str, Any] | None) -> str | None:
    return label["token"] if label else None


def _share(some: int, every: Sequence[object]) -> float | None:
    return some / len(every) if every else None
