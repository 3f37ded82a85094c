"""Parts of methods: by hand, against formulas written twice, and with nothing there."""

import math
import sys
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.evaluation.calibration import reliability
from selfcorrect_rag.evaluation.component_page import component_rows as table_rows
from selfcorrect_rag.evaluation.component_page import render_components
from selfcorrect_rag.evaluation.components import (
    COMPONENTS,
    calibrations,
    component_figures,
    components,
)
from selfcorrect_rag.evaluation.outcomes import question_from, question_row
from selfcorrect_rag.evaluation.pooled import pooled_auc, share
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.task_formats import question_of
from selfcorrect_rag.evaluation.task_rows import BadRow
from tests.evaluation.generated import component_rows

TEXTS = ("Emma is by Jane Austen.", "Bath is a city.", "Jane Austen lived here.")
PASSAGES = tuple({"title": "", "text": text, "source": ""} for text in TEXTS)
QUESTION = Question("1", "Who wrote Emma?", ("Jane Austen",))
LABELLED = QUESTION._replace(
    passages=tuple(map(Document, TEXTS)), extra={"relevant": [True, False, False]}
)
CRAG = Outcome(
    "1",
    "crag",
    "Jane Austen.",
    retrieved=True,
    action="correct",
    documents=PASSAGES,
    grades=(0.8, -0.9, 0.9),
    thresholds={"upper": 0.5, "lower": -0.5},
    strips=(
        {"text": "by Jane Austen", "score": 0.5, "kept": True},
        {"text": "a city", "score": 0.4, "kept": True},
        {"text": "Jane Austen lived", "score": -0.4, "kept": False},
    ),
)


def values(*rows: tuple[Question, Outcome]) -> dict[str, Any]:
    return {name: found and found.value.value for name, found in components(rows).items()}


def test_the_rows_labels_come_before_derived_ones() -> None:
    by_row, derived = values((LABELLED, CRAG)), values((QUESTION, CRAG))
    assert (by_row["relevant_documents"], derived["relevant_documents"]) == (1 / 3, 2 / 3)
    assert (by_row["evaluator_accuracy"], derived["evaluator_accuracy"]) == (2 / 3, 1.0)
    assert (by_row["grade_auc"], derived["grade_auc"]) == (0.5, 1.0)
    both = components([(LABELLED, CRAG), (QUESTION, CRAG)])["grade_auc"]
    assert both is not None
    assert (both.questions, both.items, both.labels) == (2, 6, {"row": 1, "derived": 1})


def test_a_question_read_from_a_folder_has_the_same_labels() -> None:
    assert values((question_from(question_row(LABELLED)), CRAG)) == values((LABELLED, CRAG))


def test_labels_are_of_the_rows_own_passages_alone() -> None:
    other = CRAG._replace(documents=PASSAGES[::-1])
    assert values((LABELLED, other)) == values((QUESTION, other))


def test_recall_counts_the_first_documents() -> None:
    late = CRAG._replace(documents=(PASSAGES[1],) * 5 + PASSAGES[:1], grades=())
    found = values((QUESTION, late))
    assert [found[name] for name in ("recall_at_1", "recall_at_5", "recall")] == [0.0, 0.0, 1.0]
    nothing = values((QUESTION, CRAG._replace(documents=(), grades=())))
    assert (nothing["recall"], nothing["action_accuracy"]) == (0.0, 0.0)


def test_an_ambiguous_action_is_neither_right_nor_wrong() -> None:
    rows = [(QUESTION, CRAG._replace(action=a)) for a in ("correct", "incorrect", "ambiguous")]
    found = values(*rows)
    assert (found["action_accuracy"], found["ambiguous"]) == (0.5, 1 / 3)


def test_strips_by_hand() -> None:
    found = values((QUESTION, CRAG))
    assert (found["strip_precision"], found["strip_recall"]) == (0.5, 0.5)
    assert found["relevant_strips"] == 2 / 3


def segment(text: str, passage: int | None, **scores: float) -> dict[str, Any]:
    return {"text": text, "passage": passage, "critique": scores}


SEGMENTS = Outcome(
    "1",
    "self_rag",
    "Jane Austen.",
    retrieved=True,
    documents=PASSAGES,
    passages=PASSAGES,
    retrieval=0.7,
    candidates=(
        {
            **segment("Jane Austen.", 0, ISREL=0.9, ISSUP=0.4, ISUSE=0.5),
            "judgements": {"ISSUP": {"[Fully supported]": 0.3, "[Partially supported]": 0.7}},
            "chosen": True,
            "sequence_probability": 0.8,
        },
        segment("Jane Austen.", 1, ISREL=0.1, ISSUP=0.6, ISUSE=0.4),
        segment("Cassandra.", 2, ISREL=0.5, ISSUP=0.3, ISUSE=-1.0),
    ),
)


def test_derived_labels_of_segments_by_hand() -> None:
    """Supported is the first alone: the second's passage lacks the answer, the third is wrong."""
    found = values((QUESTION, SEGMENTS))
    assert (found["ISREL_auc"], found["ISSUP_auc"], found["ISUSE_auc"]) == (1.0, 0.5, 1.0)
    assert found["ISSUP_accuracy"] is found["retrieval_accuracy"] is None


def test_the_rows_reflections_come_before_derived_labels() -> None:
    labels = {
        "retrieval": "[No Retrieval]",
        "segments": [
            {"passage": "bath is a city", "text": "jane austen", "ISSUP": "[Fully supported]"},
            {"passage": TEXTS[0], "text": "Jane Austen", "ISSUP": "[Partially supported]"},
        ],
    }
    found = values((QUESTION._replace(extra={"reflections": labels}), SEGMENTS))
    assert (found["ISSUP_auc"], found["ISSUP_accuracy"]) == (1.0, 1.0)
    assert found["retrieval_accuracy"] == 0.0


@pytest.mark.parametrize(
    "given",
    [
        "yes",
        {"retrieval": "yes"},
        {"segments": {}},
        {"segments": [{"passage": "x"}]},
        {"segments": [{"text": "x", "passage": 1}]},
        {"segments": [{"text": "x", "ISSUP": "[Relevant]"}]},
    ],
)
def test_reflections_of_another_form_are_a_bad_row(given: Any) -> None:
    with pytest.raises(BadRow, match="has reflections"):
        question_of({"question": "Who?", "reflections": given}, 1)


def test_nothing_to_measure_is_none() -> None:
    failed = CRAG._replace(error="down", action="", documents=())
    unknown = QUESTION._replace(answers=())
    closed = Question("1", "Is it?", ("true",), choices={"true": "true", "false": "false"})
    plain = Outcome("1", "none", "Jane Austen.")
    for rows in [[], [(QUESTION, failed)], [(unknown, SEGMENTS)], [(QUESTION, plain)]]:
        found = components(rows)
        assert set(found) == set(COMPONENTS)
        assert not any(found.values())
        assert not any(calibrations(rows).values())
    assert values((closed, CRAG))["ambiguous"] == 0.0
    assert values((closed, CRAG))["grade_auc"] is None
    assert "Nothing could be measured" in render_components({"rag": component_figures([])})


def test_labels_of_one_kind_have_no_auc() -> None:
    alike = LABELLED._replace(extra={"relevant": [True] * 3})
    assert values((alike, CRAG))["grade_auc"] is None
    assert values((alike, CRAG))["relevant_documents"] == 1.0


def test_parity_on_random_rows() -> None:
    """The same by loops over pairs and counts."""
    rows = component_rows()
    ended = [(q, o) for q, o in rows if not o.error]
    assert len(ended) >= 50
    pairs, kept, wanted, actions = [], [], [], []
    for q, o in ended:

        def holds(text: str, q: Question = q) -> bool:
            return bool(set(text.split()) & set(q.answers))

        labels = q.extra.get("relevant") or [holds(d["text"]) for d in o.documents]
        pairs += list(zip(o.grades, labels, strict=True))
        kept += [holds(s["text"]) for s in o.strips if s["kept"]]
        wanted += [s["kept"] for s in o.strips if holds(s["text"])]
        if o.action != "ambiguous":
            actions.append((o.action == "correct") == (True in labels))
    found = values(*rows)
    good, bad = ([g for g, label in pairs if label is kind] for kind in (True, False))
    won = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    assert found["grade_auc"] == pytest.approx(won / (len(good) * len(bad)))
    right = [(g > 0.4) == label for g, label in pairs]
    expected = {
        "evaluator_accuracy": right,
        "strip_precision": kept,
        "strip_recall": wanted,
        "action_accuracy": actions,
    }
    for name, items in expected.items():
        assert found[name] == pytest.approx(sum(items) / len(items)), name
    curve = calibrations(rows)["grade"]
    assert curve is not None
    assert curve.items == len(pairs)
    assert sum(b.share.value * b.items for b in curve.bins) == pytest.approx(len(good))
    mean = sum((1 + g) / 2 for g, _ in pairs) / len(pairs)
    assert sum(b.score * b.items for b in curve.bins) / len(pairs) == pytest.approx(mean)


def test_questions_are_drawn_whole() -> None:
    """Ten questions of ten equal items know as much as ten items, not as a hundred."""
    items = [float(i % 2) for i in range(10)]
    assert share([[item] * 10 for item in items]) == share([[item] for item in items])
    alone = share([[0.0, 1.0]])
    assert alone is not None
    assert (alone.value, alone.low) == (0.5, -math.inf)
    assert alone.ends == [None, None]


def test_the_interval_of_an_auc_holds_it() -> None:
    found = pooled_auc([[(i % 7, i % 3), (i % 5, 0)] for i in range(40)])
    assert found is not None
    assert 0 < found.low < found.value < found.high < 1


def test_a_curve_by_hand() -> None:
    """Twenty items in two bins: scores 0.2 with 1 of 10 positive, 0.9 with 5 of 10."""
    low = [[(0.2, float(i == 0))] for i in range(10)]
    high = [[(0.9, float(i < 5))] for i in range(10)]
    curve = reliability([*high, *low])
    assert curve is not None
    assert [(round(b.score, 9), b.share.value, b.items) for b in curve.bins] == [
        (0.2, 0.1, 10),
        (0.9, 0.5, 10),
    ]
    assert curve.error.value == pytest.approx((0.1 + 0.4) / 2)


def test_equal_scores_share_a_bin() -> None:
    curve = reliability([[(0.5, float(i % 2))] for i in range(95)] + [[(0.9, 1.0)]] * 5)
    assert curve is not None
    assert [b.items for b in curve.bins] == [95, 5]


def test_a_page_draws_the_curves_or_says_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"<b>": component_figures(component_rows()), "none": component_figures([])}
    drawn = render_components(made)
    assert drawn.count("<svg") == 4
    assert "<b>" not in drawn
    shown = [row[0] for row in table_rows(made, short=True)]
    assert {"strip precision", "grade AUC"} <= set(shown)
    assert "relevant strips" not in shown
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'selfcorrect-rag[evaluation]"' in render_components(made).replace("&quot;", '"')
