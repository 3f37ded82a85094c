"""Metrics of short answers: their formulas, written down once more, and their traps."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.evaluation import short_answers
from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.rows import Outcome, Question
from tests.evaluation.generated import short_rows, vary

ROWS = short_rows()


def one(answer: str, *gold: str, **more: object) -> tuple[Question, Outcome]:
    return Question("1", "?", gold), Outcome("1", "rag", answer)._replace(**more)


# The official formulas, in words of their own


def squad(text: str) -> str:
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def official_match(answer: str, gold: Sequence[str], rationale: str) -> float:
    if "SUPPORTS" in answer:
        answer = "true"
    elif "REFUTES" in answer:
        answer = "false"
    return max(float(answer.find(each) >= 0) for each in gold)


def official_accuracy(answer: str, gold: Sequence[str], rationale: str) -> float | None:
    predictions, labels = list(answer), list(gold[0])
    right = [p == label[0] for p, label in zip(predictions, labels, strict=False)]
    return right.count(True) / len(predictions) if predictions else None


def official_em(answer: str, gold: Sequence[str], rationale: str) -> float:
    return float(squad(answer) in [squad(each) for each in gold])


def tokens_f1(said: list[str], gold: list[str]) -> float:
    common = Counter(said) & Counter(gold)
    if not sum(common.values()):
        return 0.0
    precision, recall = (sum(common.values()) / len(words) for words in (said, gold))
    return 2 * precision * recall / (precision + recall)


def official_f1(answer: str, gold: Sequence[str], rationale: str) -> float:
    return max(tokens_f1(squad(answer).split(), squad(each).split()) for each in gold)


def official_containment(answer: str, gold: Sequence[str], rationale: str) -> float:
    return float(any(squad(each) in squad(rationale or answer) for each in gold))


def official_conclusion(answer: str, gold: Sequence[str], rationale: str) -> float:
    return official_containment(answer, gold, "")


# The strict ones, for the words of these rows


def words(text: str) -> list[str]:
    found = re.findall(r"[a-z0-9]+", re.sub(r"[.']", "", text.lower()))
    return [word for word in found if word not in ("a", "an", "the")] or found


def strict_match(answer: str, gold: Sequence[str], rationale: str) -> float:
    said = re.findall(r"[a-z0-9]+", re.sub(r"[.']", "", answer.lower()))
    bare = [word for word in said if word not in ("a", "an", "the")]

    def holds(part: list[str]) -> bool:
        whole = said if part == ["a"] else bare
        return any(whole[i : i + len(part)] == part for i in range(len(whole)))

    return float(any(holds(words(each)) for each in gold))


def strict_accuracy(answer: str, gold: Sequence[str], rationale: str) -> float:
    if "true" not in gold:
        return float(answer.strip(" .,!-'").lower() in [g.strip(".").lower() for g in gold])
    return float(short_answers.closed_answer(answer, ["true", "false"]) == "true")


def strict_em(answer: str, gold: Sequence[str], rationale: str) -> float:
    return float(bool(words(answer)) and words(answer) in [words(each) for each in gold])


def strict_f1(answer: str, gold: Sequence[str], rationale: str) -> float:
    return max(tokens_f1(words(answer), words(each)) for each in gold)


def strict_rationale(answer: str, gold: Sequence[str], rationale: str) -> float:
    return strict_match(rationale or answer, gold, "") if answer else 0.0


Formula = Callable[[str, Sequence[str], str], float | None]
FORMULAS: dict[str, tuple[Formula, Formula]] = {
    "match": (official_match, strict_match),
    "accuracy": (official_accuracy, strict_accuracy),
    "em": (official_em, strict_em),
    "f1": (official_f1, strict_f1),
    "containment_rationale": (official_containment, strict_rationale),
    "containment_conclusion": (official_conclusion, strict_match),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_parity_of_the_official_forms(name: str) -> None:
    metric = getattr(short_answers, f"official_{name}")
    found = [metric(question, outcome) for question, outcome in ROWS]
    assert found == pytest.approx(
        [
            FORMULAS[name][0](o.answer, q.answers, o.rationale) if q.answers else None
            for q, o in ROWS
        ]
    )
    assert vary(found, 3)  # None, 0 and 1 at least


@pytest.mark.parametrize("name", FORMULAS)
def test_parity_of_the_strict_forms(name: str) -> None:
    metric = getattr(short_answers, name)
    found = [metric(question, outcome) for question, outcome in ROWS]
    expected: list[float | None] = []
    for question, outcome in ROWS:
        stands = not (outcome.error or outcome.refused)
        answer, rationale = (outcome.answer, outcome.rationale) if stands else ("", "")
        formula = FORMULAS[name][1]
        expected.append(formula(answer, question.answers, rationale) if question.answers else None)
    assert found == pytest.approx(expected)
    assert vary(found, 3)


def test_match_is_raw_and_its_strict_form_reads_words() -> None:
    assert short_answers.official_match(*one("True", "true")) == 0
    assert short_answers.match(*one("True.", "true")) == 1
    assert short_answers.official_match(*one("I know", "no")) == 1
    assert short_answers.match(*one("I know", "no")) == 0
    assert short_answers.official_match(*one("It SUPPORTS the claim", "true")) == 1
    assert short_answers.official_match(*one("REFUTES", "false")) == 1
    assert short_answers.official_match(*one("", "")) == 1
    assert short_answers.match(*one("anything", "")) == 0


def test_official_accuracy_compares_characters() -> None:
    assert short_answers.official_accuracy(*one("true", "tree", "true")) == 0.75
    assert short_answers.official_accuracy(*one("B", "Bell")) == 1
    assert short_answers.official_accuracy(*one("", "true")) is None


ARC = {"A": "a gas", "B": "a metal", "C": "the sun", "D": "ice"}


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("B", "B", 1),
        ("(B)", "B", 1),
        ("The answer is B: a metal.", "B", 1),
        ("a metal", "B", 1),
        ("B", "a metal", 1),
        ("A", "B", 0),
        ("A or B", "B", 0),
        ("", "B", 0),
    ],
)
def test_accuracy_reads_the_option_of_a_closed_set(answer: str, gold: str, right: int) -> None:
    question, outcome = one(answer, gold)
    assert short_answers.accuracy(question._replace(choices=ARC), outcome) == right


@pytest.mark.parametrize(
    ("answer", "right"), [("True.", 1), ("The claim is true", 1), ("not true", 0), ("False", 0)]
)
def test_accuracy_knows_true_and_false_without_options(answer: str, right: int) -> None:
    question, outcome = one(answer, "true")
    assert short_answers.accuracy(question, outcome) == right
    same = {"true": "true", "false": "false"}
    assert short_answers.accuracy(question._replace(choices=same), outcome) == right


def test_an_empty_answer_equals_an_article_in_squad_alone() -> None:
    assert short_answers.official_em(*one("", "A")) == 1
    assert short_answers.em(*one("", "A")) == 0
    assert short_answers.em(*one("a", "A")) == 1
    assert short_answers.em(*one("東京。", "東京")) == 1
    assert short_answers.f1(*one("東京都", "東京")) == pytest.approx(0.8)


def test_a_rationale_that_names_everything_is_right_in_its_conclusion_only_if_it_is() -> None:
    row = one("London", "Paris", rationale="It may be Paris or London. The answer is London.")
    assert short_answers.official_containment_rationale(*row) == 1
    assert short_answers.containment_rationale(*row) == 1
    assert short_answers.official_containment_conclusion(*row) == 0
    assert short_answers.containment_conclusion(*row) == 0
    row = one("It is so because", "US", rationale="Because.")
    assert short_answers.official_containment_rationale(*row) == 1
    assert short_answers.containment_rationale(*row) == 0


STRICT = [getattr(short_answers, name) for name in FORMULAS]


@pytest.mark.parametrize("change", [{"refused": True}, {"error": "the model is down"}])
@pytest.mark.parametrize("metric", STRICT)
def test_refused_and_failed_runs_are_wrong(metric: Callable[..., float], change: dict) -> None:  # type: ignore[type-arg]
    right = one("Paris", "Paris", rationale="Paris")
    assert metric(*right) == 1
    assert metric(right[0], right[1]._replace(**change)) == 0


@given(st.text(max_size=40), st.lists(st.text(max_size=10), min_size=1, max_size=3))
def test_strict_scores_are_shares_of_any_text(answer: str, gold: list[str]) -> None:
    row = one(answer, *gold)
    assert all(0 <= metric(*row) <= 1 for metric in STRICT)
    assert short_answers.em(*row) <= short_answers.f1(*row)  # type: ignore[operator]


@pytest.mark.parametrize(
    "name", ["match", "accuracy", "em", "f1", "containment_rationale", "containment_conclusion"]
)
def test_a_refusal_is_right_where_the_question_is_unanswerable(name: str) -> None:
    metric = METRICS[name]
    question = Question("1", "Who?", unanswerable=True)
    ran = Outcome("1", "rag", "I do not know.", refused=True)
    answered, failed = ran._replace(answer="Lind", refused=False), ran._replace(error="down")
    assert [metric.strict(question, outcome) for outcome in (ran, answered, failed)] == [1, 0, 0]
    assert [metric.official(question, outcome) for outcome in (ran, answered)] == [None, None]
    plain = question._replace(unanswerable=False)
    assert metric.strict(plain, ran) is None
