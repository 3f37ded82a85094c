"""The metrics by name, each in two forms: functions of a question and its outcome, from 0 to 1.

``official`` is what the papers' scripts compute, traps included. ``strict`` is what the metric
means: a failed or refused run scores 0, and on an unanswerable question only a refusal scores 1.
None if the question has nothing to compare with.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, NamedTuple

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.tasks import Outcome, Question

Score = float | None
Form = Literal["official", "strict"]
Compare = Callable[[str, tuple[str, ...]], float]
"""A text and the accepted answers, of which there is at least one."""
_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Metric(NamedTuple):
    """A metric in its two forms."""

    official: Callable[[Question, Outcome], Score]
    strict: Callable[[Question, Outcome], Score]


class Scores(NamedTuple):
    """The scores of one method: their mean, None if no row has one, and each row's."""

    value: Score
    rows: tuple[Score, ...]


def score(rows: Sequence[tuple[Question, Outcome]], metric: str, form: Form = "strict") -> Scores:
    """Score the rows of one method by a metric of :data:`METRICS`."""
    if metric not in METRICS:
        raise BadArgument(f"metric must be one of {', '.join(METRICS)}, got {metric}")
    found = tuple(getattr(METRICS[metric], form)(*row) for row in rows)
    known = [value for value in found if value is not None]
    return Scores(sum(known) / len(known) if known else None, found)


def default_metrics(questions: Sequence[Question]) -> list[str]:
    """The papers' metrics for questions of this kind."""
    if any(question.choices for question in questions):
        return ["accuracy"]
    if any(question.short_answers for question in questions):
        return ["str_em"]
    return ["match", "em"]


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether ``text`` contains any of ``answers`` in whole words, in lower case and without
    articles and punctuation; a blank answer is in no text."""
    words = split_words(text)
    bare = [word for word in words if word not in _ARTICLES]
    for answer in map(split_words, answers):
        wanted = [word for word in answer if word not in _ARTICLES]
        within = bare if wanted else words  # an answer of articles alone keeps them
        if answer and f" {' '.join(wanted or answer)} " in f" {' '.join(within)} ":
            return True
    return False


def split_words(text: str) -> list[str]:
    """Words in lower case; each letter of a script without case (Chinese, ...) is one."""
    return "".join(map(_spaced, unicodedata.normalize("NFKC", text).casefold())).split()


@cache
def _spaced(letter: str) -> str:
    """Drop punctuation within a word ("U.S." is "US"); any other ends one ("1990-1995")."""
    if letter in ".'’`´":
        return ""
    if not letter.isalnum():
        return letter if unicodedata.combining(letter) else " "
    return f" {letter} " if letter.isalpha() and not letter.islower() else letter


def normalise(text: str) -> str:
    """SQuAD's normalisation, which Self-RAG, ALCE and InstructRAG use too: lower case, no ASCII
    punctuation, no articles. Trap: "A", an article alone, becomes empty."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _any_within(text: str, answers: Iterable[str]) -> bool:
    """Whether the normalised text contains any normalised answer (ALCE, InstructRAG). Traps: "US"
    is in "because"; an empty answer is in every text."""
    whole = normalise(text)
    return any(normalise(answer) in whole for answer in answers)


def _stated(outcome: Outcome) -> str:
    """The answer; empty if the run failed or refused."""
    return "" if outcome.error or outcome.refused else outcome.answer


def _short(official: Compare, strict: Compare, whole: bool = False) -> Metric:
    """A metric of short answers; ``whole`` reads the rationale, if there is one."""

    def read(outcome: Outcome) -> str:
        return (outcome.rationale if whole else "") or outcome.answer

    def official_score(question: Question, outcome: Outcome) -> Score:
        return float(official(read(outcome), question.answers)) if question.answers else None

    def strict_score(question: Question, outcome: Outcome) -> Score:
        if question.unanswerable:
            return float(outcome.refused and not outcome.error)
        text = read(outcome) if _stated(outcome) else ""
        return float(strict(text, question.answers)) if question.answers else None

    return Metric(official_score, strict_score)


def _raw_match(text: str, answers: tuple[str, ...]) -> bool:
    """``match`` of Self-RAG and CRAG. Traps: raw and case-sensitive; a text with SUPPORTS or
    REFUTES is replaced by true or false."""
    for label, truth in (("SUPPORTS", "true"), ("REFUTES", "false")):
        text = truth if label in text else text
    return any(answer in text for answer in answers)


def _same_words(text: str, answers: tuple[str, ...]) -> bool:
    """Whether the words are those of an answer, without articles unless nothing else is there."""
    said, *golds = (
        [word for word in words if word not in _ARTICLES] or words
        for words in map(split_words, (text, *answers))
    )
    return bool(said) and said in golds


def _official_accuracy(question: Question, outcome: Outcome) -> Score:
    """Self-RAG's ``accuracy``. Trap: ``run_short_form.py`` passes strings for lists, so it is the
    share of characters equal to the first accepted answer's at the same place."""
    if not question.answers or not outcome.answer:
        return None
    pairs = zip(outcome.answer, question.answers[0], strict=False)
    return sum(said == gold for said, gold in pairs) / len(outcome.answer)


def _gives_option(question: Question, outcome: Outcome) -> Score:
    """Whether the answer gives the accepted option, named by key or text (Self-RAG section 4.1);
    without options the whole answer is compared."""
    if question.unanswerable or not question.answers:
        return float(outcome.refused and not outcome.error) if question.unanswerable else None
    choices, said = question.choices, _stated(outcome)
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


def _official_text(outcome: Outcome) -> str:
    """Return the part of an answer that ALCE's ``eval.py`` reads, without marks. Traps: all lines
    but the first are lost, and every ``]`` and `` |``."""
    text = (outcome.cited_answer or outcome.answer).strip().split("\n")[0]
    text = text.replace("<|im_end|>", "")
    return re.sub(r" ?\[\d+", "", text).replace(" |", "").replace("]", "")


def _str_em(official: bool, question: Question, outcome: Outcome) -> Score:
    if not question.short_answers:
        return None
    text = _official_text(outcome) if official else _stated(outcome)
    contains = _any_within if official else contains_answer
    found = [contains(text, answers) for answers in question.short_answers]
    return sum(found) / len(found)


METRICS: Mapping[str, Metric] = {
    "match": _short(_raw_match, contains_answer),
    "accuracy": Metric(_official_accuracy, _gives_option),
    # Trap: an empty answer equals an option "A", an article
    "em": _short(lambda text, gold: normalise(text) in map(normalise, gold), _same_words),
    "str_em": Metric(partial(_str_em, True), partial(_str_em, False)),
    # InstructRAG's accuracy. Trap: a rationale that quotes every document scores
    "containment_rationale": _short(_any_within, contains_answer, whole=True),
}
