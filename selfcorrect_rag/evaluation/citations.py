"""Citation recall and precision after ALCE (Gao et al., 2023, section 4.3).

An entailment model is plugged in as ``entails(premise, hypothesis)``: ALCE's is a T5-XXL trained
on TRUE. A sentence is recalled if the texts that it cites entail it together. A citation of a
recalled sentence is precise unless it is irrelevant alone *and* superfluous: it does not entail the
sentence, and the sentence's other citations do without it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.texts import first_line, output, text_of, without_marks
from selfcorrect_rag.prompts.sentences import sentences

Entails = Callable[[str, str], bool]
MOST_CITATIONS = 3
"""Citations of a sentence that the official script reads."""
_CITED = re.compile(r"\[(\d+)")
_LEADING_MARKS = re.compile(r"(?:\s*\[\d+\])+")


class _Supported(NamedTuple):
    """Of one answer."""

    sentences: int
    recalled: int
    citations: int
    precise: int


def official_citation_recall(
    question: Question, outcome: Outcome, entails: Entails
) -> float | None:
    """Share of sentences that their citations entail (ALCE ``eval.py``).

    Traps: an empty output is skipped (None), which flatters refusals; only the first line is read;
    a citation without a document rejects its sentence, and ``[0]`` is the last document. Sentences
    are split by :func:`~selfcorrect_rag.prompts.sentences.sentences`, not by NLTK.
    """
    found = _official(outcome, entails)
    return found.recalled / found.sentences if found.sentences else None


def citation_recall(question: Question, outcome: Outcome, entails: Entails) -> float | None:
    """Share of sentences that their citations entail, over all lines (ALCE section 4.3).

    A citation without a document supports nothing. Failed, refused and empty answers score 0.
    """
    found = _strict(outcome, entails)
    return found.recalled / found.sentences if found.sentences else 0.0


def official_citation_precision(
    question: Question, outcome: Outcome, entails: Entails
) -> float | None:
    """Share of citations that are precise (ALCE ``eval.py``).

    Traps: as for :func:`official_citation_recall`; citations after a sentence's third, and all of a
    sentence that cites a document that does not exist, are not counted.
    """
    found = _official(outcome, entails)
    if not found.sentences:
        return None
    return found.precise / found.citations if found.citations else 0.0


def citation_precision(question: Question, outcome: Outcome, entails: Entails) -> float | None:
    """Share of citations that are precise, over all of them (ALCE section 4.3).

    A citation without a document is not precise; one repeated in its sentence counts once. Answers
    without citations, failed and refused ones score 0.
    """
    found = _strict(outcome, entails)
    return found.precise / found.citations if found.citations else 0.0


def _official(outcome: Outcome, entails: Entails) -> _Supported:
    texts = _texts(outcome)
    last = max(texts, default=0)
    total = _Supported(0, 0, 0, 0)
    for sentence in sentences(first_line(output(outcome))):
        numbers = [int(number) or last for number in _CITED.findall(sentence)]
        if not all(number in texts for number in numbers):
            numbers = []
        cited = [texts[number] for number in numbers[:MOST_CITATIONS]]
        total = _sum(total, _supported(without_marks(sentence).strip(), cited, entails))
    return total


def _strict(outcome: Outcome, entails: Entails) -> _Supported:
    total = _Supported(0, 0, 0, 0)
    if outcome.error or outcome.refused:
        return total
    texts = _texts(outcome)
    for sentence in _cited_sentences(output(outcome)):
        numbers = list(dict.fromkeys(int(number) for number in _CITED.findall(sentence)))
        cited = [texts[number] for number in numbers if number in texts]
        found = _supported(without_marks(sentence).strip(), cited, entails)
        total = _sum(total, found._replace(citations=len(numbers)))
    return total


def _cited_sentences(text: str) -> list[str]:
    """Sentences, each with the marks that stand behind its full stop."""
    found: list[str] = []
    for line in text.splitlines():
        of_line: list[str] = []
        for sentence in sentences(line):
            marks = _LEADING_MARKS.match(sentence) if of_line else None
            if marks:
                of_line[-1] += marks[0]
                sentence = sentence[marks.end() :].strip()
            if sentence:
                of_line.append(sentence)
        found += of_line
    return found


def _supported(sentence: str, cited: Sequence[str], entails: Entails) -> _Supported:
    """The counts of one sentence and the texts that it cites."""
    is_recalled = bool(cited) and entails("\n".join(cited), sentence)
    precise = 0
    if is_recalled:
        precise = sum(_is_precise(sentence, cited, place, entails) for place in range(len(cited)))
    return _Supported(1, is_recalled, len(cited), precise)


def _is_precise(sentence: str, cited: Sequence[str], place: int, entails: Entails) -> bool:
    """For a recalled sentence: a single citation is precise without asking again."""
    if len(cited) == 1 or entails(cited[place], sentence):
        return True
    others = [*cited[:place], *cited[place + 1 :]]
    return not entails("\n".join(others), sentence)


def _texts(outcome: Outcome) -> Mapping[int, str]:
    """The text of each number that the answer may cite.

    A graph numbers its citations by first appearance, which is not the place of a passage.
    """
    if outcome.citations:
        return {citation["number"]: text_of(citation) for citation in outcome.citations}
    return {number: text_of(text) for number, text in enumerate(outcome.passages, start=1)}


def _sum(one: _Supported, other: _Supported) -> _Supported:
    return _Supported(*(a + b for a, b in zip(one, other, strict=True)))
