"""Answers of different passages that disagree although their passages support them."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypedDict

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.nodes.write_answer import RELEVANT, citation
from selfcorrect_rag.prompts.reading import is_refusal
from selfcorrect_rag.state import Candidate, Citation

MAX_WORDS = 12
"""Words of an answer that :func:`say_the_same` compares; longer ones are sentences."""
_ARTICLES = frozenset({"a", "an", "the"})


class Claim(TypedDict):
    """An answer that at least one passage supports."""

    answer: str
    support: float
    """The best ISSUP of its candidates, in [0, 1]."""
    citations: list[Citation]
    """The passages that support it, best first; ``number`` counts over all claims."""
    newest: date | None
    """The latest date of these passages; None without one."""


def say_the_same(first: str, second: str) -> bool:
    """Return whether two short answers do not disagree: one has the words of the other in its
    order, without case, punctuation and articles. Answers of more than twelve words never disagree,
    since sentences differ in words alone."""
    words = [
        [word for word in re.findall(r"\w+", text.casefold()) if word not in _ARTICLES]
        for text in (first, second)
    ]
    if max(map(len, words)) > MAX_WORDS:
        return True
    short, long = sorted(words, key=len)
    return any(long[i : i + len(short)] == short for i in range(len(long) - len(short) + 1))


def find_conflicts(
    result: Mapping[str, Any],
    *,
    support: float = 0.5,
    same: Callable[[str, str], bool] = say_the_same,
    newest_by: str | None = None,
) -> list[Claim]:
    """Return the answers of a run that contradict each other, best first; empty if none do.

    Args:
        result: a result, or the state, of Self-RAG or Self-CRAG. Its first segments are compared:
            those from relevant passages (ISREL of at least 0.5).
        support: least ISSUP of an answer that counts, in [0, 1].
        same: whether two answers say the same, such as a chat model's verdict on sentences.
        newest_by: key of the documents' metadata with an ISO date or a year. The claim with the
            newest passage comes first then, and those without a date last.

    Raises:
        BadArgument: the result has no candidates, or a date cannot be read.
    """
    if "candidates" not in result:
        raise BadArgument("conflicts are among candidates: give a result of Self-RAG or Self-CRAG")
    documents: Sequence[Document] = result.get("knowledge") or result["passages"]
    # A node that runs after the last step of the graph no longer gets the question.
    question = result.get("question") or result.get("original_question") or ""
    groups: list[list[Candidate]] = []
    for candidate in sorted(result["candidates"], key=lambda c: -c["score"]):
        if not _is_supported(candidate, support):
            continue
        group = next((g for g in groups if same(g[0]["text"], candidate["text"])), [])
        if not group:
            groups.append(group)
        group.append(candidate)
    if len(groups) < 2:
        return []
    numbers = iter(range(1, len(documents) + 1))
    claims = [
        Claim(
            answer=group[0]["text"],
            support=max(c["critique"]["ISSUP"] or 0.0 for c in group),
            citations=[
                citation(next(numbers), i, documents[i], [0], [c["text"]], question)
                for c in group
                if (i := c["passage"]) is not None
            ],
            newest=max(
                filter(None, (_dated(documents, c, newest_by) for c in group)), default=None
            ),
        )
        for group in groups
    ]
    if newest_by:
        claims.sort(key=lambda claim: claim["newest"] or date.min, reverse=True)
    return claims


def describe_conflict(claims: Sequence[Claim]) -> str:
    """Return a note with each claim and its sources; empty without claims."""
    if not claims:
        return ""
    told = (
        f"“{claim['answer']}” ({', '.join(map(_name, claim['citations']))})" for claim in claims
    )
    return f"the documents disagree: {', '.join(told)}"


def _is_supported(candidate: Candidate, support: float) -> bool:
    isrel, issup = candidate["critique"]["ISREL"], candidate["critique"]["ISSUP"]
    is_first = candidate["depth"] == 0 and candidate["passage"] is not None
    is_good = (isrel or 0.0) >= RELEVANT and (issup or 0.0) >= support
    is_stated = candidate["dropped"] is None and not is_refusal(candidate["text"])
    return is_first and is_good and is_stated


def _dated(documents: Sequence[Document], candidate: Candidate, key: str | None) -> date | None:
    """Return the date of a candidate's passage; None if nobody asks, or it has none."""
    found = documents[candidate["passage"] or 0].metadata.get(key) if key else None
    if found is None:
        return None
    text = f"{found}-01-01" if re.fullmatch(r"\d{4}", str(found)) else str(found)
    try:
        return datetime.fromisoformat(text).date()
    except ValueError as error:
        raise BadArgument(
            f"metadata {key!r} must be an ISO date such as 2026-05-31, or a year, got {found!r}"
        ) from error


def _name(cited: Citation) -> str:
    return cited["title"] or cited["source"] or f"passage {cited['passage'] + 1}"
