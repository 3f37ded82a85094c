"""Metrics of long answers after ASQA and ALCE: short answers of ambiguous questions, ROUGE, MAUVE.

Those of one row give a score from 0 to 1, None where the question lacks what they compare with.
"""

import string
from collections.abc import Sequence
from functools import cache
from typing import Any

from selfcorrect_rag.errors import require
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.texts import any_within, first_line, output, stated, without_marks
from selfcorrect_rag.prompts.sentences import sentences

Row = tuple[Question, Outcome]
MAUVE_MODEL = "gpt2-large"
"""Whose features MAUVE compares (ALCE); mauve-text takes names that hold "gpt2" or "bert"."""
MAUVE_WORDS = 100
"""Words of question and answer that MAUVE compares (ALCE)."""


def official_str_em(question: Question, outcome: Outcome) -> float | None:
    """Share of ``qa_pairs`` with a short answer in the output (ASQA, ALCE ``eval.py``).

    Traps: only the first line is read, and substrings need no borders of words.
    """
    text = _official_text(outcome)
    return _mean([any_within(answers, text) for answers in _short_answers(question)])


def str_em(question: Question, outcome: Outcome) -> float | None:
    """Share of ``qa_pairs`` with a short answer in the whole answer, in whole words (ASQA)."""
    text = stated(outcome)
    return _mean([contains_answer(text, answers) for answers in _short_answers(question)])


def official_hit(question: Question, outcome: Outcome) -> float | None:
    """Whether :func:`official_str_em` is 1: all of ``qa_pairs`` are answered (ALCE)."""
    return _all(official_str_em(question, outcome))


def hit(question: Question, outcome: Outcome) -> float | None:
    """Whether :func:`str_em` is 1: all of ``qa_pairs`` are answered."""
    return _all(str_em(question, outcome))


def official_rouge_lsum(question: Question, outcome: Outcome) -> float | None:
    """F of ROUGE-Lsum, stemmed, the better of two long answers (ASQA, ALCE ``eval.py``).

    Traps: only the first line is read. The script prints the median of a bootstrap of the rows,
    which the mean of these differs from in the third digit, and splits with NLTK; here
    :func:`~selfcorrect_rag.prompts.sentences.sentences` does.

    Raises:
        MissingExtra: rouge-score is not installed.
    """
    return _rouge_lsum(_official_text(outcome), _long_answers(question)[:2])


def rouge_lsum(question: Question, outcome: Outcome) -> float | None:
    """F of ROUGE-Lsum (Lin, 2004), stemmed, over all lines and the best of all long answers.

    Raises:
        MissingExtra: rouge-score is not installed.
    """
    return _rouge_lsum(stated(outcome), _long_answers(question))


def official_mauve(rows: Sequence[Row]) -> float | None:
    """MAUVE of the outputs against the first long answers (Pillutla et al., 2021; ALCE).

    Over the first 100 words of question and answer, with features of gpt2-large. Trap: only the
    first line of an output is read.

    Raises:
        MissingExtra: mauve-text is not installed.
    """
    return _mauve([(q, _official_text(o)) for q, o in rows])


def mauve(rows: Sequence[Row]) -> float | None:
    """MAUVE over all lines; of a failed or refused run, the question alone is compared.

    Raises:
        MissingExtra: mauve-text is not installed.
    """
    return _mauve([(q, stated(o)) for q, o in rows])


def _official_text(outcome: Outcome) -> str:
    return without_marks(first_line(output(outcome)))


def _short_answers(question: Question) -> list[Sequence[str]]:
    """ALCE calls them ``short_answers``, InstructRAG's files ``answers``."""
    pairs = question.extra.get("qa_pairs") or ()
    return [pair.get("short_answers") or pair.get("answers") or () for pair in pairs]


def _long_answers(question: Question) -> list[str]:
    annotated = question.extra.get("annotations") or ()
    found = [note["long_answer"] for note in annotated if note.get("long_answer")]
    single = question.extra.get("answer")
    return found or ([single] if single else [])


def _mean(found: Sequence[bool]) -> float | None:
    return sum(found) / len(found) if found else None


def _all(share: float | None) -> float | None:
    return None if share is None else float(share == 1)


def _rouge_lsum(text: str, references: Sequence[str]) -> float | None:
    scorer = _rouge_scorer()
    said = _lines(text)
    found = (scorer.score(_lines(each), said)["rougeLsum"].fmeasure for each in references)
    return max(map(float, found), default=None)


@cache
def _rouge_scorer() -> Any:
    scoring = require("rouge_score.rouge_scorer", "evaluation")
    return scoring.RougeScorer(["rougeLsum"], use_stemmer=True)


def _lines(text: str) -> str:
    # In lower case no sentence would begin with a capital, by which they are split.
    return "\n".join(sentences(text)).lower()


def _mauve(answered: Sequence[tuple[Question, str]]) -> float | None:
    written = [(question, text, _long_answers(question)) for question, text in answered]
    compared = [(question, text, long[0]) for question, text, long in written if long]
    if not compared:
        return None
    found = require("mauve", "mauve").compute_mauve(
        p_text=[_opening(question, long) for question, _, long in compared],
        q_text=[_opening(question, text) for question, text, _ in compared],
        device_id=0,
        max_text_length=512,
        batch_size=8,
        featurize_model_name=MAUVE_MODEL,
        verbose=False,
    )
    return float(found.mauve)


def _opening(question: Question, text: str) -> str:
    words = f"{question.question} {text.strip()}".split()[:MAUVE_WORDS]
    return " ".join(words).rstrip(string.punctuation)
