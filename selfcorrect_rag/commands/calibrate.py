"""``selfcorrect-rag calibrate``: an evaluator's thresholds from graded questions."""

import argparse
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.errors import BadTrainingData, SelfCorrectError, require
from selfcorrect_rag.serving.options import add_options, config_from
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.thresholds import Calibration, Judged, Thresholds, calibrate, measure
from selfcorrect_rag.training.evaluator import GradedRow, judged, read_graded, readable


class BadCalibration(SelfCorrectError, ValueError):
    """Options that thresholds cannot be calibrated, or written, with."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``calibrate``."""
    parser = add(
        description="Choose an evaluator's thresholds from graded questions, and say what they do. "
        "Each question counts as two retrievals: all its passages, and its irrelevant ones alone."
    )
    add_options(parser, ["evaluator"], grouped=False)
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help='JSONL rows {"question": ..., "positives": [...], "negatives": [...]}, on which the '
        "evaluator was not trained",
    )
    parser.add_argument(
        "--ambiguous-worth",
        type=float,
        default=0.75,
        metavar="SHARE",
        help="what an ambiguous action counts, from 0 (as a wrong one) to 1 (as a right one); "
        "default: %(default)s",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the thresholds into the configuration of the evaluator, which is a folder",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Choose thresholds, report, and write them where that is asked for."""
    config = config_from(args)
    file = _config(config.evaluator) if args.write else None
    rows = _rows(args.data, args.ambiguous_worth)
    evaluator = Parts(config).evaluator
    # disable=None: no bar where standard error is no terminal.
    bar = require("tqdm", "local").tqdm(_mixed(rows), unit=" questions", disable=None)
    by_question = [judged(evaluator, [row]) for row in bar]
    chosen = calibrate(_flat(by_question), ambiguous_worth=args.ambiguous_worth)
    held_out = _held_out(by_question, args.ambiguous_worth)
    if file is not None:
        _write(file, chosen.thresholds)
    if args.json:
        report = {
            "evaluator": config.evaluator,
            "questions": len(rows),
            "ambiguous_worth": args.ambiguous_worth,
            **readable(chosen),
            "held_out": [readable(measured) for measured in held_out],
            "written": args.write,
            "notes": evaluator.notes,
        }
        tell(as_json(report, indent=2))
    else:
        tell(_in_words(chosen, held_out, len(rows)))
        for note in evaluator.notes:
            tell(note)
        if file is not None:
            tell(f"written into {file}")
    return 0


def _rows(data: Path, worth: float) -> list[GradedRow]:
    """The rows, checked before the evaluator scores for minutes."""
    if not 0 <= worth <= 1:
        raise BadCalibration(f"--ambiguous-worth takes 0 to 1, not {worth:g}")
    rows = read_graded(data)
    if not any(row.positives for row in rows) or not any(row.negatives for row in rows):
        raise BadTrainingData(f"{data} needs relevant and irrelevant passages")
    return rows


def _mixed(rows: Sequence[GradedRow]) -> list[GradedRow]:
    """The rows in an order that depends on the questions alone, not on how the file is sorted."""
    return sorted(rows, key=lambda row: zlib.crc32(row.question.encode()))


def _held_out(by_question: Sequence[list[Judged]], worth: float) -> list[Calibration]:
    """Measure the thresholds of each half of the questions on the other half.

    Nothing where a half has no relevant or no irrelevant retrieval to choose from.
    """
    halves = _flat(by_question[::2]), _flat(by_question[1::2])
    if any(len({row.relevant for row in half}) < 2 for half in halves):
        return []
    return [
        measure(other, calibrate(half, ambiguous_worth=worth).thresholds, ambiguous_worth=worth)
        for half, other in (halves, halves[::-1])
    ]


def _flat(by_question: Sequence[list[Judged]]) -> list[Judged]:
    return [row for rows in by_question for row in rows]


def _in_words(chosen: Calibration, held_out: Sequence[Calibration], questions: int) -> str:
    lines = [
        f"{_both(chosen.thresholds)}, chosen on these {questions:,} questions, on the same:",
        *_actions(chosen),
    ]
    for half, measured in zip(("first", "second"), held_out, strict=False):
        lines += [
            f"{_both(measured.thresholds)}, chosen on the {half} half alone, on the other:",
            *_actions(measured),
        ]
    if not held_out:
        lines.append("too few questions to say what they do on others")
    return "\n".join(lines)


def _both(thresholds: Thresholds) -> str:
    return f"upper {thresholds.upper:.4f}, lower {thresholds.lower:.4f}"


def _actions(measured: Calibration) -> list[str]:
    lines = [f"  action accuracy {measured.action_accuracy:.3f}"]
    for action, count in measured.counts.items():
        accuracy = measured.accuracy.get(action)
        right = "" if accuracy is None else f", {accuracy:.1%} of them rightly"
        lines.append(f"  {action.capitalize()}: {count:,}{right}")
    return lines


def _config(evaluator: str | None) -> Path:
    config = Path(evaluator or "") / "config.json"
    if evaluator is None or not config.is_file():
        raise BadCalibration("--write needs --evaluator to be a folder with a config.json")
    if not os.access(config.parent, os.W_OK):
        raise BadCalibration(f"cannot write into {config.parent}")
    return config


def _write(config: Path, thresholds: Thresholds) -> None:
    """Put ``crag_thresholds`` into a configuration, whole or not at all."""
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
        settings["crag_thresholds"] = [thresholds.upper, thresholds.lower]
        written = config.with_suffix(".json.new")
        written.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        written.replace(config)
    except OSError as error:
        raise BadCalibration(f"cannot write {config}: {error.strerror}") from error
