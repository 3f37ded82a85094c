"""The metrics by name."""

import math
import subprocess
import sys

import pytest

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.metrics import METRICS, score
from selfcorrect_rag.evaluation.rows import Outcome, Question
from tests.evaluation.generated import entails, long_rows, short_rows


def test_the_names_are_those_that_a_runner_chooses_from() -> None:
    assert set(METRICS) == {
        "match",
        "accuracy",
        "em",
        "f1",
        "str_em",
        "hit",
        "rouge_lsum",
        "citation_precision",
        "citation_recall",
        "factscore",
        "mauve",
        "containment_rationale",
        "containment_conclusion",
    }


@pytest.mark.parametrize("name", METRICS)
def test_each_has_two_forms_that_say_where_they_are_from(name: str) -> None:
    metric = METRICS[name]
    assert metric.official.__name__ == f"official_{name}"
    assert metric.strict.__name__ == name
    assert metric.official.__doc__
    assert metric.strict.__doc__


def test_a_value_is_the_mean_of_the_rows_that_are_counted() -> None:
    gold, none = Question("1", "?", ("Paris",)), Question("2", "?")
    rows = [
        (gold, Outcome("1", "rag", "Paris")),
        (none, Outcome("2", "rag", "Paris")),
        (gold, Outcome("3", "rag", "", error="down")),
    ]
    found = score(rows, "match")
    assert (found.value, found.rows, found.counted) == (0.5, (1.0, None, 0.0), 2)
    assert score(rows[1:2], "match") == (None, (None,))
    lower = [(gold, Outcome("1", "rag", "paris"))]
    assert (score(lower, "match").value, score(lower, "match", "official").value) == (1.0, 0.0)


PLAIN = ("match", "accuracy", "em", "f1", "containment_rationale", "containment_conclusion")


@pytest.mark.parametrize("name", PLAIN)
def test_strict_forms_count_the_same_rows_whatever_was_answered(name: str) -> None:
    rows = short_rows()
    failed = [(question, Outcome(o.id, "crag", "", error="down")) for question, o in rows]
    counted = [[value is not None for value in score(each, name).rows] for each in (rows, failed)]
    assert counted[0] == counted[1]
    assert False in counted[0]
    assert score(failed, name).value == 0


@pytest.mark.parametrize("name", ["citation_recall", "citation_precision"])
def test_official_citations_flatter_who_answers_least(name: str) -> None:
    """Half of the rows unanswered: the official score stays, the strict one halves."""
    row = Outcome("1", "rag", "Amber.", cited_answer="Amber [1].", passages=(_passage(),))
    rows = [(Question("1", "?"), row), (Question("2", "?"), Outcome("2", "rag", ""))]
    assert score(rows, name, "official", entails=entails).value == 1
    assert score(rows, name, entails=entails).value == 0.5


def _passage() -> dict[str, str]:
    return {"title": "T", "text": "amber"}


def test_what_is_wrong_is_said() -> None:
    rows = long_rows(3)
    with pytest.raises(BadArgument, match="no metric 'bleu': there are match, accuracy, em"):
        score(rows, "bleu")
    with pytest.raises(BadArgument, match="no form 'lax'"):
        score(rows, "em", "lax")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="citation_recall needs entails="):
        score(rows, "citation_recall")
    with pytest.raises(BadArgument, match="factscore needs judge="):
        score(rows, "factscore", entails=entails)
    penalty = score(
        [(Question("1", "Ada"), Outcome("1", "rag", "yes"))], "factscore", judge=lambda t, a: [True]
    )
    assert penalty.value == pytest.approx(math.exp(-9))


def test_the_package_and_the_metrics_import_light() -> None:
    script = (
        "import sys, selfcorrect_rag\n"
        "assert not [m for m in sys.modules if m.startswith('selfcorrect_rag.')]\n"
        "import selfcorrect_rag.evaluation.metrics, selfcorrect_rag.evaluation.statistics\n"
        "heavy = {'numpy', 'torch', 'transformers', 'rouge_score', 'mauve', 'nltk'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.stdout, run.stderr) == ("[]\n", "")
