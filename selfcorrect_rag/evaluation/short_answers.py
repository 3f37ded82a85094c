"""Metrics of short answers, over one question and its outcome.

Each gives a score from 0 to 1, and None where the question has no accepted answers. In the strict
form a failed or refused run scores 0; where the question is unanswerable, a refusal scores 1 and
everything else 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import wraps

from selfcorrect_rag.evaluation.matching import answer_words, contains_answer
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.texts import any_within, normalised, stated
from selfcorrect_rag.prompts.closed_set import closed_answer

_TRUTH = ("true", "false")
Metric = Callable[[Question, Outcome], float | None]


def _or_refused(metric: Metric) -> Metric:
    """The metric, but for unanswerable questions: whether the run refused."""

    @wraps(metric)
    def scored(question: Question, outcome: Outcome) -> float | None:
        if question.unanswerable:
            return float(outcome.refused and not outcome.error)
        return metric(question, outcome)

    return scored


def official_match(question: Question, outcome: Outcome) -> float | None:
    """Whether any accepted answer is a substring of the answer (``match`` of Self-RAG and CRAG).

    Traps: raw and case-sensitive, so "True" fails PubHealth's "true" and "no" is in "know"; an
    answer that holds SUPPORTS or REFUTES is replaced by "true" or "false".
    """
    answer = outcome.answer
    for label, truth in (("SUPPORTS", "true"), ("REFUTES", "false")):
        if label in answer:
            answer = truth
    return _score(question, any(gold in answer for gold in question.answers))


@_or_refused
def match(question: Question, outcome: Outcome) -> float | None:
    """Whether the answer contains an accepted one in whole words (Self-RAG section 4.1)."""
    return _score(question, contains_answer(stated(outcome), question.answers))


def official_accuracy(question: Question, outcome: Outcome) -> float | None:
    """Self-RAG's ``accuracy`` as ``run_short_form.py`` calls it: with strings for lists.

    Trap: it gives the share of the answer's characters that equal the first accepted answer's at
    the same place. An empty answer ends the script with an error, and is not counted here.
    """
    if not question.answers or not outcome.answer:
        return None
    pairs = zip(outcome.answer, question.answers[0], strict=False)
    return sum(said == gold for said, gold in pairs) / len(outcome.answer)


@_or_refused
def accuracy(question: Question, outcome: Outcome) -> float | None:
    """Whether the answer gives the accepted option of a closed set (Self-RAG section 4.1).

    Accepted answers may be keys or texts of options. Without options, "true" and "false" are these
    where an accepted answer is one of them; otherwise the whole answer is compared without case.
    """
    said = stated(outcome)
    if question.choices:
        options = {
            key if closed_answer(key) == closed_answer(text) else f"{key}: {text}": key
            for key, text in question.choices.items()
        }
        given = closed_answer(said, options) if said else None
        key = None if given is None else options[given]
        accepted = [] if key is None else [key, question.choices[key]]
        return _score(question, any(_same(gold, accepted) for gold in question.answers))
    labels = {gold.casefold() for gold in question.answers}
    given = closed_answer(said, _TRUTH if labels & set(_TRUTH) else ()) if said else None
    return _score(question, given is not None and _same(given, question.answers))


def official_em(question: Question, outcome: Outcome) -> float | None:
    """Exact match of SQuAD: the normalised answer equals any normalised accepted one.

    Trap: an empty answer equals one that is normalised away, such as the option "A".
    """
    said = normalised(outcome.answer)
    return _score(question, any(said == normalised(gold) for gold in question.answers))


@_or_refused
def em(question: Question, outcome: Outcome) -> float | None:
    """Exact match (SQuAD): the same words in any script, and never for a blank answer."""
    words = answer_words(stated(outcome))
    same = bool(words) and any(words == answer_words(gold) for gold in question.answers)
    return _score(question, same)


def official_f1(question: Question, outcome: Outcome) -> float | None:
    """F1 of SQuAD over normalised tokens, the best of the accepted answers."""
    said = normalised(outcome.answer).split()
    return _best(said, (normalised(gold).split() for gold in question.answers))


@_or_refused
def f1(question: Question, outcome: Outcome) -> float | None:
    """F1 (SQuAD) over the words of :func:`em`: characters in scripts without spaces."""
    return _best(answer_words(stated(outcome)), map(answer_words, question.answers))


def official_containment_rationale(question: Question, outcome: Outcome) -> float | None:
    """InstructRAG's accuracy: any accepted answer in the *whole* rationale, as substring.

    Trap: a rationale that quotes every document, or names a wrong answer too, scores (the paper's
    section 3.1 and its limitations). A method without rationale is judged by its answer.
    """
    text = outcome.rationale or outcome.answer
    return _score(question, any_within(question.answers, text))


@_or_refused
def containment_rationale(question: Question, outcome: Outcome) -> float | None:
    """Whether the rationale, or the answer without one, has an accepted answer in whole words."""
    text = (outcome.rationale or outcome.answer) if stated(outcome) else ""
    return _score(question, contains_answer(text, question.answers))


def official_containment_conclusion(question: Question, outcome: Outcome) -> float | None:
    """The comparison of InstructRAG's script, over the conclusion alone: the script reads none."""
    return _score(question, any_within(question.answers, outcome.answer))


def containment_conclusion(question: Question, outcome: Outcome) -> float | None:
    """Whether the conclusion of a rationale contains an accepted answer in whole words.

    As :func:`match`: an outcome's answer is InstructRAG's conclusion.
    """
    return match(question, outcome)


def _score(question: Question, is_right: bool) -> float | None:
    return float(is_right) if question.answers else None


def _same(text: str, others: Iterable[str]) -> bool:
    return any(closed_answer(text) == closed_answer(other) for other in others)


def _best(said: Sequence[str], accepted: Iterable[Sequence[str]]) -> float | None:
    return max((_token_f1(said, gold) for gold in accepted), default=None)


def _token_f1(said: Sequence[str], gold: Sequence[str]) -> float:
    same = (Counter(said) & Counter(gold)).total()
    return 2 * same / (len(said) + len(gold)) if same else 0.0
