"""The metrics by name, each in two forms, and the scores of many rows.

``official`` is what the papers' scripts compute, traps included; ``strict`` is what a metric means.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation import citations, facts, long_answers, short_answers
from selfcorrect_rag.evaluation.citations import Entails
from selfcorrect_rag.evaluation.facts import FactJudge
from selfcorrect_rag.evaluation.judges import NoVerdict
from selfcorrect_rag.evaluation.rows import Outcome, Question

Form = Literal["official", "strict"]
Row = tuple[Question, Outcome]


class Metric(NamedTuple):
    """A metric in its two forms, functions of a question and its outcome."""

    official: Callable[..., float | None]
    strict: Callable[..., float | None]
    needs: Literal["", "entails", "judge"] = ""
    """What is plugged in as a third argument."""
    of_rows: bool = False
    """Whether it takes all rows at once instead, and gives none of them a score."""


METRICS: Mapping[str, Metric] = {
    "match": Metric(short_answers.official_match, short_answers.match),
    "accuracy": Metric(short_answers.official_accuracy, short_answers.accuracy),
    "em": Metric(short_answers.official_em, short_answers.em),
    "f1": Metric(short_answers.official_f1, short_answers.f1),
    "str_em": Metric(long_answers.official_str_em, long_answers.str_em),
    "hit": Metric(long_answers.official_hit, long_answers.hit),
    "rouge_lsum": Metric(long_answers.official_rouge_lsum, long_answers.rouge_lsum),
    "citation_precision": Metric(
        citations.official_citation_precision, citations.citation_precision, "entails"
    ),
    "citation_recall": Metric(
        citations.official_citation_recall, citations.citation_recall, "entails"
    ),
    "factscore": Metric(facts.official_factscore, facts.factscore, "judge"),
    "mauve": Metric(long_answers.official_mauve, long_answers.mauve, of_rows=True),
    "containment_rationale": Metric(
        short_answers.official_containment_rationale, short_answers.containment_rationale
    ),
    "containment_conclusion": Metric(
        short_answers.official_containment_conclusion, short_answers.containment_conclusion
    ),
}
"""All from 0 to 1, where scripts print percents."""


class Scores(NamedTuple):
    """The scores of one method's rows."""

    value: float | None
    """The mean of the rows that are counted; None where none is."""
    rows: tuple[float | None, ...]
    """In the order of the rows, None where one is not counted; empty for MAUVE."""

    @property
    def counted(self) -> int:
        """Rows with a score."""
        return sum(score is not None for score in self.rows)


def score(
    rows: Sequence[Row],
    metric: str,
    form: Form = "strict",
    *,
    entails: Entails | None = None,
    judge: FactJudge | None = None,
) -> Scores:
    """Score the rows of one method by a metric of :data:`METRICS`.

    In the strict form, a row without score is one whose question has nothing to compare with,
    whatever was answered; so all methods are scored on the same rows. Only a judge that says
    nothing of use (:class:`~selfcorrect_rag.evaluation.judges.NoVerdict`) leaves others out.

    Args:
        rows: questions, each with the method's outcome.
        metric: a name.
        form: "official" or "strict".
        entails: an entailment model, for citations.
        judge: of atomic facts, for FActScore.

    Raises:
        BadArgument: an unknown metric or form, or one without the model that it needs.
        MissingExtra: a package that the metric needs is not installed.
    """
    if metric not in METRICS:
        raise BadArgument(f"no metric {metric!r}: there are {', '.join(METRICS)}")
    if form not in ("official", "strict"):
        raise BadArgument(f"no form {form!r}: there are official and strict")
    chosen = METRICS[metric]
    function = chosen.official if form == "official" else chosen.strict
    if chosen.of_rows:
        return Scores(function(rows), ())
    plugged: dict[str, Any] = {"entails": entails, "judge": judge}
    if chosen.needs and plugged[chosen.needs] is None:
        raise BadArgument(f"{metric} needs {chosen.needs}=, a function that asks a model")
    third = (plugged[chosen.needs],) if chosen.needs else ()

    def one(row: Row) -> float | None:
        try:
            return function(*row, *third)
        except NoVerdict:
            return None

    found = tuple(map(one, rows))
    counted = [value for value in found if value is not None]
    return Scores(sum(counted) / len(counted) if counted else None, found)
