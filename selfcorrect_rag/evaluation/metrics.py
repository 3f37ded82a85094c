"""The metrics by name, each in two forms: functions of a question and its outcome, from 0 to 1.

``official`` is what the papers' scripts compute, traps included. ``strict`` is what the metric
means: a failed or refused run scores 0, and on an unanswerable question only a refusal scores 1.
None if the question has nothing to compare with.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.matching import (
    answer_words,
    any_within,
    contains_answer,
    normalise,
    split_words,
)
from selfcorrect_rag.evaluation.outcomes import Outcome
from selfcorrect_rag.evaluation.tasks import Question, flatten
from selfcorrect_rag.prompts.reading import sentences

Score = float | None
Compare = Callable[[str, tuple[str, ...]], float]
"""A text and the accepted answers, of which there is at least one."""
Entails = Callable[[str, str], bool]
"""An entailment model: whether a premise entails a hypothesis. ALCE's is a T5-XXL (TRUE)."""
MOST_CITATIONS = 3
"""Citations of a sentence that ALCE's script reads."""


class Metric(NamedTuple):
    """A metric in its two forms; a citation metric takes an entailment model too."""

    official: Callable[..., Score]
    strict: Callable[..., Score]


class Scores(NamedTuple):
    """The scores of one method: their mean, None if no row has one, and each row's."""

    value: Score
    rows: tuple[Score, ...]


def score(
    rows: Sequence[tuple[Question, Outcome]],
    metric: str,
    form: Literal["official", "strict"] = "strict",
    *,
    entails: Entails | None = None,
) -> Scores:
    """Score the rows of one method by a metric of :data:`METRICS`.

    Raises:
        BadArgument: an unknown metric, or a citation metric without ``entails``.
    """
    if metric not in METRICS:
        raise BadArgument(f"metric must be one of {', '.join(METRICS)}, got {metric}")
    third = (entails,) if metric.startswith("citation_") else ()
    if None in third:
        raise BadArgument(f"{metric} needs entails=, a function of a premise and a hypothesis")
    found = tuple(getattr(METRICS[metric], form)(*row, *third) for row in rows)
    known = [value for value in found if value is not None]
    return Scores(sum(known) / len(known) if known else None, found)


def default_metrics(questions: Sequence[Question]) -> list[str]:
    """The papers' metrics for questions of this kind."""
    if any(question.choices for question in questions):
        return ["accuracy"]
    if any("qa_pairs" in question.extra for question in questions):
        return ["str_em", "hit"]
    return ["match", "em", "f1"]


def stated(outcome: Outcome) -> str:
    """The answer; empty if the run failed or refused."""
    return "" if outcome.error or outcome.refused else outcome.answer


# Short answers


def _short(official: Compare, strict: Compare, whole: bool = False) -> Metric:
    """A metric of short answers; ``whole`` reads the rationale, if there is one."""

    def read(outcome: Outcome) -> str:
        return (outcome.rationale if whole else "") or outcome.answer

    def official_score(question: Question, outcome: Outcome) -> Score:
        return float(official(read(outcome), question.answers)) if question.answers else None

    def strict_score(question: Question, outcome: Outcome) -> Score:
        if question.unanswerable:
            return float(outcome.refused and not outcome.error)
        text = read(outcome) if stated(outcome) else ""
        return float(strict(text, question.answers)) if question.answers else None

    return Metric(official_score, strict_score)


def _raw_match(text: str, answers: tuple[str, ...]) -> bool:
    """``match`` of Self-RAG and CRAG. Traps: raw and case-sensitive; a text with SUPPORTS or
    REFUTES is replaced by true or false."""
    for label, truth in (("SUPPORTS", "true"), ("REFUTES", "false")):
        text = truth if label in text else text
    return any(answer in text for answer in answers)


def _same_words(text: str, answers: tuple[str, ...]) -> bool:
    words = answer_words(text)
    return bool(words) and words in map(answer_words, answers)


def _f1(split: Callable[[str], list[str]]) -> Compare:
    """F1 of tokens, the best of the accepted answers (SQuAD)."""

    def best(text: str, answers: tuple[str, ...]) -> float:
        said, found = split(text), []
        for gold in map(split, answers):
            same = (Counter(said) & Counter(gold)).total()
            found.append(2 * same / (len(said) + len(gold)) if same else 0.0)
        return max(found)

    return best


def _official_accuracy(question: Question, outcome: Outcome) -> Score:
    """Self-RAG's ``accuracy``. Trap: ``run_short_form.py`` passes strings for lists, so it is the
    share of characters equal to the first accepted answer's at the same place."""
    if not question.answers or not outcome.answer:
        return None
    pairs = zip(outcome.answer, question.answers[0], strict=False)
    return sum(said == gold for said, gold in pairs) / len(outcome.answer)


def _accuracy(question: Question, outcome: Outcome) -> Score:
    """Whether the answer gives the accepted option, named by key or text (Self-RAG section 4.1);
    without options the whole answer is compared."""
    if question.unanswerable or not question.answers:
        return float(outcome.refused and not outcome.error) if question.unanswerable else None
    choices, said = question.choices, stated(outcome)
    if not choices and {gold.lower() for gold in question.answers} & {"true", "false"}:
        choices = {"true": "true", "false": "false"}
    key = find_option(said, choices) if choices else said
    given = [] if key is None else [split_words(key), split_words(choices.get(key, key))]
    return float(any(split_words(gold) in given for gold in question.answers if split_words(gold)))


def find_option(text: str, choices: Mapping[str, str]) -> str | None:
    """The key of the option that a text gives, or None: it is the option's key, text or both;
    begins with the key and a mark (``B) ...``); or names one option's text alone."""
    words = split_words(text)
    for key, option in choices.items():
        if words and words in map(split_words, (key, option, f"{key} {option}")):
            return key
    begins = re.match(r"\W*(\w+)\s*(?:[).:,\]]|$)", text)
    if begins and begins[1] in choices:
        return begins[1]
    named = [key for key, option in choices.items() if contains_answer(text, [option])]
    return named[0] if len(named) == 1 else None


# Long answers


def first_line(outcome: Outcome) -> str:
    """Return what ALCE's ``eval.py`` reads of a cited answer. Trap: other lines are lost."""
    text = outcome.cited_answer or outcome.answer
    return text.strip().split("\n")[0].replace("<|im_end|>", "")


def without_marks(text: str) -> str:
    """ALCE's removal of ``[1]``. Trap: every ``]`` and `` |`` goes too."""
    return re.sub(r" ?\[\d+", "", text).replace(" |", "").replace("]", "")


def _str_em(official: bool, of_all: Callable[[list[bool]], float]) -> Callable[..., Score]:
    """Score the short answers of ASQA's ``qa_pairs`` that the text has."""

    def scored(question: Question, outcome: Outcome) -> Score:
        text = without_marks(first_line(outcome)) if official else stated(outcome)
        short = [flatten(pair) for pair in question.extra.get("qa_pairs") or ()]
        contains = any_within if official else contains_answer
        return of_all([contains(text, answers) for answers in short]) if short else None

    return scored


def _share(found: list[bool]) -> float:
    return sum(found) / len(found)


def _all(found: list[bool]) -> float:
    return float(all(found))


# Citations (ALCE, Gao et al., 2023, section 4.3). A sentence is recalled if the texts that it cites
# entail it together. A citation of a recalled sentence is imprecise if it does not entail the
# sentence alone and the sentence's other citations entail it without it.


class CitationCounts(NamedTuple):
    """Counts over the sentences of one answer."""

    sentences: int
    recalled: int
    citations: int
    precise: int


def count_citations(outcome: Outcome, entails: Entails, official: bool) -> CitationCounts:
    """Count what the citations of an answer support.

    Traps of the official form: only the first line is read; a citation without a document rejects
    its sentence, and ``[0]`` is the last document; only three citations a sentence count.
    """
    # Citations are numbered by first appearance, unlike passages.
    texts = {
        number: f"Title: {document.get('title') or ''}\n{document.get('text') or ''}"
        for number, document in (
            [(each["number"], each) for each in outcome.citations]
            or enumerate(outcome.passages, start=1)
        )
    }
    said = (outcome.cited_answer or outcome.answer) if stated(outcome) else ""
    # Marks behind a full stop belong to the sentence before them.
    moved = re.sub(r"([.!?])((?:[ \t]*\[\d+\])+)", r"\2\1", said)
    total = [0, 0, 0, 0]
    for line in [first_line(outcome)] if official else moved.splitlines():
        for sentence in sentences(line):
            numbers = [int(number) for number in re.findall(r"\[(\d+)", sentence)]
            if official:
                numbers = [n or max(texts, default=0) for n in numbers]
                numbers = numbers[:MOST_CITATIONS] if texts.keys() >= set(numbers) else []
            else:
                numbers = list(dict.fromkeys(numbers))
            cited = [texts[number] for number in numbers if number in texts]
            claim = without_marks(sentence).strip()
            recalled = bool(cited) and entails("\n".join(cited), claim)
            places = range(len(cited) if recalled else 0)
            precise = sum(_is_precise(claim, cited, place, entails) for place in places)
            counted = (1, recalled, len(numbers), precise)
            total = [sum(pair) for pair in zip(total, counted, strict=True)]
    return CitationCounts(*total)


def _is_precise(claim: str, cited: Sequence[str], place: int, entails: Entails) -> bool:
    """A single citation of a recalled sentence is precise without asking again."""
    others = [*cited[:place], *cited[place + 1 :]]
    return not others or entails(cited[place], claim) or not entails("\n".join(others), claim)


def _citations(official: bool, part: str, whole: str) -> Callable[..., Score]:
    """The share of citations or sentences. The official form skips empty answers, which flatters
    refusals; in the strict form they score 0."""

    def scored(question: Question, outcome: Outcome, entails: Entails) -> Score:
        found = count_citations(outcome, entails, official)
        if official and not found.sentences:
            return None
        return getattr(found, part) / getattr(found, whole) if getattr(found, whole) else 0.0

    return scored


PRECISION, RECALL = ("precise", "citations"), ("recalled", "sentences")
METRICS: Mapping[str, Metric] = {
    "match": _short(_raw_match, contains_answer),
    "accuracy": Metric(_official_accuracy, _accuracy),
    # Trap: an empty answer equals an option "A", an article
    "em": _short(lambda text, gold: normalise(text) in map(normalise, gold), _same_words),
    "f1": _short(_f1(lambda text: normalise(text).split()), _f1(answer_words)),
    "str_em": Metric(_str_em(True, _share), _str_em(False, _share)),
    "hit": Metric(_str_em(True, _all), _str_em(False, _all)),
    "citation_precision": Metric(_citations(True, *PRECISION), _citations(False, *PRECISION)),
    "citation_recall": Metric(_citations(True, *RECALL), _citations(False, *RECALL)),
    # InstructRAG's accuracy. Trap: a rationale that quotes every document scores
    "containment_rationale": _short(any_within, contains_answer, whole=True),
    # An outcome's answer is InstructRAG's conclusion, which its script does not read
    "containment_conclusion": _short(any_within, contains_answer),
}
