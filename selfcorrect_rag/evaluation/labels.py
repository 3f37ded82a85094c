"""What single parts of a run should have said: labels of documents, strips and segments.

A label is the row's where it has one, and else derived: a text is relevant where it contains an
accepted answer. That is less than relevance. "A politician makes decisions" contains the answer to
"What is Rankin's occupation?" and says nothing of Rankin; a text may also answer in other words.
Options of a closed set are in all kinds of texts, so nothing is derived from these.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeGuard, TypeVar

from selfcorrect_rag.evaluation.matching import answer_words, contains_answer
from selfcorrect_rag.evaluation.pooled import Pair
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.reflection import (
    FULLY_SUPPORTED,
    NO_RETRIEVAL,
    RELEVANT,
    RETRIEVAL,
    TOKENS,
    UTILITY,
    Group,
)
from selfcorrect_rag.render.reading import index, number, record

REFLECTIONS = "reflections"
"""The field of a row with labels of reflections; see :func:`check_reflections`."""
POSITIVE = {
    Group.ISREL: (RELEVANT,),
    Group.ISSUP: (FULLY_SUPPORTED,),
    Group.ISUSE: UTILITY[3:],
}
"""The tokens that count as positive in an AUC: of five grades of utility the two highest, which
annotators confuse (Self-RAG appendix A.2)."""
Source = Literal["row", "derived", ""]
"""Where labels are from; empty where none is needed."""
Item = TypeVar("Item", float, Pair)


class Found(NamedTuple, Generic[Item]):
    """What one question gives of a part."""

    items: Sequence[Item]
    source: Source


def check_reflections(given: Any) -> None:
    """Refuse labels that are not of the form.

    ``{"retrieval": "[Retrieval]", "segments": [{"passage": "...", "text": "...", "ISREL":
    "[Relevant]", "ISSUP": "[Fully supported]", "ISUSE": "[Utility:5]"}]}``: tokens of Self-RAG's
    Table 1. Every key may be missing but ``text``.

    Raises:
        ValueError: what is wrong with them, in words that follow "has".
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{REFLECTIONS} that are no object")
    if given.get("retrieval") not in (None, RETRIEVAL, NO_RETRIEVAL):
        raise ValueError(f"{REFLECTIONS} whose retrieval is not {RETRIEVAL} or {NO_RETRIEVAL}")
    segments = given.get("segments", [])
    if not isinstance(segments, list):
        raise ValueError(f"{REFLECTIONS} whose segments are no list")
    for segment in segments:
        if not isinstance(segment, Mapping) or not isinstance(segment.get("text"), str):
            raise ValueError(f"{REFLECTIONS} with a segment without text")
        if not isinstance(segment.get("passage"), str | None):
            raise ValueError(f"{REFLECTIONS} with a passage that is no text")
        for group in POSITIVE:
            if segment.get(group) not in (None, *TOKENS[group]):
                raise ValueError(f"{REFLECTIONS} whose {group} is not {' or '.join(TOKENS[group])}")


def relevance(question: Question, outcome: Outcome) -> Found[float] | None:
    """1 for each document, retrieved or given, that is relevant, and 0 for the others.

    The row's labels are those of the passages that came with it. Others are relevant where their
    text contains an accepted answer. None where nothing was retrieved or nothing tells.
    """
    documents = outcome.documents
    if outcome.error or not (documents or outcome.retrieved):
        return None
    labels = question.extra.get("relevant")
    if _is_flags(labels) and len(documents) <= len(labels) and _came_along(question, outcome):
        return Found([float(label) for label in labels[: len(documents)]], "row")
    if not _tells(question):
        return None
    return Found([_has_answer(question, document["text"]) for document in documents], "derived")


def strips(question: Question, outcome: Outcome) -> list[tuple[bool, float]]:
    """For each strip whether it was kept, and 1 where it contains an accepted answer, else 0."""
    if not _tells(question):
        return []
    return [
        (bool(strip.get("kept")), _has_answer(question, str(strip.get("text"))))
        for strip in outcome.strips
    ]


def judged(group: Group) -> Callable[[Question, Outcome], Found[Pair] | None]:
    """The scores of segments in a group, with labels that are 1 where the judgement should be good.

    Derived, a passage is relevant as in :func:`relevance`; a segment is supported where an accepted
    answer is both in it and in its passage; it is useful where it contains an accepted answer. So
    a wrong answer that its passage states counts as unsupported, which it is not.
    """

    def of(question: Question, outcome: Outcome) -> Found[Pair] | None:
        label_of = _Labels(question, outcome, group)
        scored = (
            (number(record(candidate, "critique").get(group)), label_of(candidate))
            for candidate in outcome.candidates
        )
        known = [(score, *found) for score, found in scored if score is not None and found]
        by_row = all(source == "row" for *_, source in known)
        pairs = [(score, label) for score, label, _ in known]
        return Found(pairs, "row" if by_row else "derived")

    return of


def token_accuracy(group: Group) -> Callable[[Question, Outcome], Found[float] | None]:
    """1 for each segment whose likeliest token is the row's, and 0 for the others (Self-RAG,
    Figure 5); segments that the row does not label are left out."""

    def of(question: Question, outcome: Outcome) -> Found[float] | None:
        labels = _Labels(question, outcome, group)
        pairs = (
            (record(record(candidate, "judgements"), group), labels.token(candidate))
            for candidate in outcome.candidates
        )
        right = [
            max(said, key=said.__getitem__) == token for said, token in pairs if said and token
        ]
        return Found([float(each) for each in right], "row")

    return of


def retrieval_label(question: Question) -> float | None:
    """1 where the row says that evidence is needed, 0 where it says that none is; else None."""
    token = record(question.extra, REFLECTIONS).get("retrieval")
    return None if token is None else float(token == RETRIEVAL)


class _Labels:
    """Labels of the segments of one outcome in a group."""

    def __init__(self, question: Question, outcome: Outcome, group: Group) -> None:
        self._question, self._outcome, self._group = question, outcome, group
        self._rows: dict[tuple[str, ...], str] = {}
        for segment in record(question.extra, REFLECTIONS).get("segments", ()):
            if token := segment.get(group):
                self._rows[_key(segment["text"], segment.get("passage"))] = token
        self._documents: dict[str | None, tuple[float, Source]] = {}
        if group == Group.ISREL and (found := relevance(question, outcome)):
            for document, label in zip(outcome.documents, found.items, strict=True):
                self._documents[document["text"]] = label, found.source

    def __call__(self, candidate: Mapping[str, Any]) -> tuple[float, Source] | None:
        """The label and its source."""
        if token := self.token(candidate):
            return float(token in POSITIVE[self._group]), "row"
        passage, text = self._passage(candidate), str(candidate.get("text"))
        if passage in self._documents:
            return self._documents[passage]
        if not _tells(self._question):
            return None
        match self._group:
            case Group.ISUSE:
                return _has_answer(self._question, text), "derived"
            case _ if passage is None:
                return None
            case Group.ISREL:
                return _has_answer(self._question, passage), "derived"
        said = [a for a in self._question.answers if contains_answer(text, [a])]
        return float(contains_answer(passage, said)), "derived"

    def token(self, candidate: Mapping[str, Any]) -> str | None:
        """The row's token of a segment, by the words of the segment and of its passage."""
        return self._rows.get(_key(str(candidate.get("text")), self._passage(candidate)))

    def _passage(self, candidate: Mapping[str, Any]) -> str | None:
        """The text of the passage that a segment was written from."""
        passages = self._outcome.passages
        place = index(candidate.get("passage"), passages)
        return None if place is None else str(passages[place]["text"])


def _key(text: str, passage: str | None) -> tuple[str, ...]:
    """What a segment and its passage are known by, whatever their spaces and punctuation."""
    return (*answer_words(text), "", *answer_words(passage or ""))


def _tells(question: Question) -> bool:
    """Whether labels can be derived from the accepted answers."""
    return bool(question.answers) and not question.choices


def _has_answer(question: Question, text: str) -> float:
    return float(contains_answer(text, question.answers))


def _is_flags(value: Any) -> TypeGuard[Sequence[bool]]:
    return isinstance(value, list | tuple) and all(isinstance(flag, bool) for flag in value)


def _came_along(question: Question, outcome: Outcome) -> bool:
    """Whether the documents are the first passages of the row, and not a retriever's.

    A question that was read from a run's folder has lost its passages; the labels say that it had
    some.
    """
    texts = [document["text"] for document in outcome.documents]
    passages = question.passages
    return passages is None or texts == [p.page_content for p in passages[: len(texts)]]
