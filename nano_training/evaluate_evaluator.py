"""Held-out figures of the nano T5, as its card gives them.

    python -m nano_training.evaluate_evaluator [--model DIR] [--data DIR]

Without the real data of ``--data`` on the made-up world alone.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nano_training import evaluator_data
from nano_training.models import tiny_t5_path
from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag.evaluation.pooled import auc
from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.training.evaluator import GradedRow, held_out_report, mine_negatives

CASES = 500
NEGATIVES = 4
"""For each held-out PopQA question, the likest paragraphs to BM25."""


def on_the_made_up_world(evaluator: T5Evaluator, cases: int = CASES) -> dict[str, Any]:
    """Gold passages against three kinds of others, on names and wordings never trained on.

    For each kind: AUC, and the accuracy over gold and wrong passages in equal parts, with one
    threshold for all kinds. It is chosen on other cases, of names and wordings as in training.
    """
    threshold = _threshold(_scores(evaluator, cases, held_out=False))
    scores = _scores(evaluator, cases, held_out=True)
    gold = scores.pop("gold")
    accepted = sum(score > threshold for score in gold) / cases
    return {
        "threshold": round(threshold, 3),
        "gold accepted": round(accepted, 3),
        **{
            kind: {
                "auc": round(auc([(s, 1.0) for s in gold] + [(s, -1.0) for s in wrong]), 3),
                "accuracy": round((accepted + sum(s <= threshold for s in wrong) / cases) / 2, 3),
            }
            for kind, wrong in scores.items()
        },
    }


def _scores(evaluator: T5Evaluator, cases: int, *, held_out: bool) -> dict[str, list[float]]:
    """Scores of the gold passages and of each kind of others, a case after another."""
    world = World("evaluators", held_out=held_out)
    scores: dict[str, list[float]] = {"gold": [], "other": [], "similar": [], "missing": []}
    for _ in range(cases):
        case = new_question(world, most=world.choice((2, 4, 6)), held_out=held_out)
        passages = [case.gold, case.other(), case.similar(), case.missing()]
        given = evaluator.score(
            case.question, [evaluator_data.read(passage) for passage in passages]
        )
        for kind, score in zip(scores, given, strict=True):
            scores[kind].append(score)
    return scores


def _threshold(scores: dict[str, list[float]]) -> float:
    """That with which gold and wrong passages are told apart most often, both counting half."""
    gold = scores["gold"]
    wrong = [score for kind, given in scores.items() if kind != "gold" for score in given]

    def accuracy(threshold: float) -> float:
        accepted = sum(score > threshold for score in gold) / len(gold)
        return accepted + sum(score <= threshold for score in wrong) / len(wrong)

    return max(gold + wrong, key=accuracy)


def on_real_text(evaluator: T5Evaluator, data: Path) -> dict[str, Any]:
    """Questions of the test part alone: AUC, best accuracy against the base rate, actions."""
    sets: dict[str, Sequence[GradedRow]] = {
        "popqa": _popqa(data, titles=True),
        "popqa without titles": _popqa(data, titles=False),
        "hotpotqa": held_out(evaluator_data.hotpotqa(data)),
        "musique": held_out(evaluator_data.musique(data)),
    }
    return {
        name: {"questions": len(rows), **held_out_report(evaluator, rows)}
        for name, rows in sets.items()
    }


def _popqa(data: Path, *, titles: bool) -> list[GradedRow]:
    rows, corpus = (
        evaluator_data.popqa(data, titles=titles),
        evaluator_data.popqa_corpus(data, titles=titles),
    )
    return mine_negatives(held_out(rows), corpus, NEGATIVES)


def held_out(rows: Sequence[GradedRow]) -> list[GradedRow]:
    """Those that neither training nor calibration has seen."""
    return [row for row in rows if row.part == "test"]


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=tiny_t5_path())
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    evaluator = T5Evaluator.from_pretrained(args.model)
    report = {"evaluator": "nano T5", "made up": on_the_made_up_world(evaluator)}
    if args.data:
        report |= on_real_text(evaluator, args.data)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
