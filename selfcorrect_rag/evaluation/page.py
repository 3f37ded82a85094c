"""A run of an evaluation as one HTML page: what it found, what it cost, and what was answered."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.evaluation.component_page import render_components
from selfcorrect_rag.evaluation.plots import Line, plot
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished
from selfcorrect_rag.evaluation.sweeps import render_sweeps
from selfcorrect_rag.evaluation.tables import figures, shown_interval
from selfcorrect_rag.render.markup import Html, element, excerpt, folded, joined, labelled
from selfcorrect_rag.render.page import Sections, whole_page
from selfcorrect_rag.render.reading import counted

SHOWN = 200
"""Questions whose answers are shown; all are in ``rows.jsonl``."""
COUNTS = ("answered", "refused", "failed", "cited", "retrieved", "searched", "corrected")
COSTS = ("model_calls", "prompt_tokens", "generated_tokens", "seconds")


def render_report(finished: Finished, summary: Mapping[str, Any], title: str) -> str:
    """The page, self-contained and without a script; all text of the run is escaped.

    Args:
        finished: the run.
        summary: its :func:`~selfcorrect_rag.evaluation.summary.summary`.
        title: the task's name.
    """
    methods, judges = summary["methods"], summary.get("judges")
    sweeps: Sections = {
        "sweeps": ("Sweeps", render_sweeps(summary["sweeps"], methods)),
    }
    sections: Sections = {
        "results": ("Results", _results(methods)),
        **(sweeps if summary["sweeps"] else {}),
        "comparisons": ("Comparisons", _comparisons(summary["comparisons"])),
        **({"judges": ("Judges", _judges(finished, judges))} if judges else {}),
        "components": ("Components", render_components(summary["components"])),
        "abstention": ("Answering less", _abstention(summary["abstention"])),
        "behaviour": ("What the methods did", _table(methods, COUNTS)),
        "costs": ("Costs", _costs(methods)),
        "answers": ("Answers", _answers(finished)),
        "run": ("The run", _about(summary)),
    }
    asked = counted(summary["questions"], "question")
    stopped = summary["stopped"]
    lead = labelled(f"Stopped by {stopped}: not all was asked." if stopped else "", "notice")
    heading = f"{title}: {asked}, {counted(len(methods), 'method')}"
    return whole_page("An evaluation", heading, sections, None, lead)


def _results(methods: Mapping[str, Any]) -> Html:
    names = list(dict.fromkeys(name for made in methods.values() for name in made["metrics"]))
    rows = [
        [method, *(shown_value(made["metrics"][name]) for name in names)]
        for method, made in methods.items()
    ]
    said = (
        "Mean over all questions with its 95 % bootstrap interval; failed ones count as wrong. "
        "In parentheses what the papers' scripts would print."
    )
    return joined([figures(["method", *names], rows), labelled(said)])


def shown_value(figure: Mapping[str, Any]) -> str:
    """``0.667 [0.333, 1.000] (0.600)``: value, interval and the official form."""
    if figure["value"] is None:
        return "\u2013"
    official = "" if figure["official"] is None else f" ({figure['official']:.3f})"
    value = f"{figure['value']:.3f} {shown_interval(figure['interval'])}".rstrip()
    return f"{value}{official}"


def _comparisons(comparisons: Mapping[str, Sequence[Mapping[str, Any]]]) -> Html:
    parts: list[Html] = []
    for metric, pairs in comparisons.items():
        rows = [comparison_row(pair) for pair in pairs]
        parts += [element("h3", metric), figures(COMPARED, rows)] if rows else []
    if not parts:
        return element("p", "There is nothing to compare: one method, or no scored question.")
    said = (
        "Differences of paired scores, the first less the second, with 95 % bootstrap intervals; "
        "p after McNemar's exact test where scores are 0 or 1. Each pair stands for itself: of "
        "twenty that do not differ, one is told apart by chance."
    )
    return joined([*parts, labelled(said)])


COMPARED = ["first", "second", "difference", "p", "questions", "verdict"]
"""The columns of :func:`comparison_row`."""


def comparison_row(pair: Mapping[str, Any]) -> list[str]:
    """A comparison as cells; no difference without its interval."""
    better = pair["first"] if pair["difference"] > 0 else pair["second"]
    p = pair["mcnemar"]
    return [
        pair["first"],
        pair["second"],
        f"{pair['difference']:+.3f} {shown_interval(pair['interval'])}",
        "\u2013" if p is None else f"{p:.3g}",
        str(pair["questions"]),
        f"{better} is better" if pair["told_apart"] else "cannot be told apart",
    ]


def _abstention(abstention: Mapping[str, Mapping[str, Any]]) -> Html:
    parts: list[Html | None] = []
    for metric, drawn in abstention.items():
        lines = [
            Line(name, [(point["answered"], point["accuracy"]) for point in curve["points"]])
            for name, curve in drawn.items()
        ]
        if not lines:
            continue
        try:
            parts.append(Html(plot(lines, "share of questions answered", metric)))
        except MissingExtra as error:
            parts.append(labelled(f"There is no plot: {error}", "notice"))
        said = "; ".join(f"{name}: {curve['confidence']}" for name, curve in drawn.items())
        parts.append(labelled(f"Confidence of {said}."))
    if not parts:
        return element("p", "No method says how sure it is of an answer.")
    said = (
        "The score of what is answered, if a method answers only where it is sure enough: from "
        "its surest answer on the left to the method as it ran on the right. A line that falls "
        "to the right knows where it is wrong."
    )
    return joined([labelled(said), *parts])


JUDGED_COLUMNS = ["method", "judged", "no verdict", "failed", "left", "agrees with the match"]
"""The columns of :func:`judged_rows`."""


def judged_rows(said: Mapping[str, Any]) -> list[list[str]]:
    """What a judge did with each method's answers, as cells."""
    agreement = said.get("agreement", {"methods": {}})["methods"]
    rows = []
    for method, counts in said["methods"].items():
        found = agreement.get(method)
        share = f"{found['value']:.3f} {shown_interval(found['interval'])}" if found else "\u2013"
        rows.append([method, *(str(counts.get(c, 0)) for c in JUDGED_COLUMNS[1:-1]), share])
    return rows


def _judges(finished: Finished, judges: Mapping[str, Any]) -> Html:
    """What each judge did, and where it and the string match differ."""
    questions = {question.id: question for question in finished.questions}
    answers = {(outcome.method, outcome.id): outcome for outcome in finished.outcomes}
    parts: list[Html | None] = []
    for name, said in judges.items():
        calls = counted(said["calls"], "model call")
        parts += [
            element("h3", f"{name}: {said['model']}, {calls}"),
            figures(JUDGED_COLUMNS, judged_rows(said)),
        ]
        differ = said.get("agreement", {"differ": []})["differ"]
        for row in differ[:SHOWN]:
            question = questions[row["id"]]
            summary = f"{row['method']}: {question.question}"
            verdict = "wrong" if row["judge"] == 0 else "right"
            parts.append(
                folded(
                    excerpt(summary),
                    labelled("expected: " + excerpt(" | ".join(question.answers), 300)),
                    labelled("answer: " + excerpt(answers[row["method"], row["id"]].answer, 600)),
                    labelled(f"{verdict} for the judge alone: " + excerpt(row["explanation"], 600)),
                )
            )
        left = len(differ) - SHOWN
        parts.append(labelled(f"{left:,} more in summary.json." if left > 0 else ""))
    return joined(parts)


def _table(methods: Mapping[str, Any], columns: Sequence[str]) -> Html:
    rows = [[name, *(f"{made[column]:,}" for column in columns)] for name, made in methods.items()]
    return figures(["method", *columns], rows)


def _costs(methods: Mapping[str, Any]) -> Html:
    rows = [
        [name, *("not said" if made[c] is None else f"{made[c]:,}" for c in COSTS)]
        for name, made in methods.items()
    ]
    asked, all_calls = (sum(m[c] for m in methods.values()) for c in ("asked_calls", "model_calls"))
    said = (
        "What each method costs by itself. Seconds are those that each question took, of which "
        f"several ran at a time. Methods share equal calls: {asked:,} of {all_calls:,} model calls "
        "were made."
    )
    return joined(
        [figures(["method", *(c.replace("_", " ") for c in COSTS)], rows), labelled(said)]
    )


def _answers(finished: Finished) -> Html:
    by_question: dict[str, list[Outcome]] = {}
    for outcome in finished.outcomes:
        by_question.setdefault(outcome.id, []).append(outcome)
    parts = [
        folded(
            excerpt(question.question),
            labelled("expected: " + excerpt(_expected(question), 300)),
            figures(["method", "answer"], map(_answer, by_question[question.id]), wraps=True),
        )
        for question in finished.questions[:SHOWN]
        if question.id in by_question
    ]
    left = len(finished.questions) - SHOWN
    more = f"{counted(left, 'more question')} in rows.jsonl." if left > 0 else ""
    return joined([*parts, labelled(more)])


def _expected(question: Question) -> str:
    return "a refusal" if question.unanswerable else " | ".join(question.answers)


def _answer(outcome: Outcome) -> list[str]:
    if outcome.error:
        return [outcome.method, f"failed: {outcome.error}"]
    said = excerpt(outcome.cited_answer or outcome.answer, 600)
    return [outcome.method, f"{said} (action: {outcome.action})" if outcome.action else said]


def _about(summary: Mapping[str, Any]) -> Html:
    rows = [[name, value] for name, value in summary["versions"].items()]
    rows += [[name, excerpt(value, 600)] for name, value in summary["about"].items()]
    return figures(["setting", "value"], rows, wraps=True)
