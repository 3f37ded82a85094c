"""``selfcorrect-rag eval judge``: a chat model judges the answers of a run."""

import argparse
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.eval_results import tell_estimate, tell_left, tell_made
from selfcorrect_rag.evaluation.judging import estimate_judging, judge_run
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.report import write_report_again
from selfcorrect_rag.evaluation.run import Limits, read_run
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.serving.config import BadOption


def judge_answers(args: argparse.Namespace, folder: Path) -> int:
    """Judge, or say what it would cost."""
    if not (args.judge and args.judge_model):
        raise BadOption("eval judge takes --judge NAME and --judge-model PROVIDER:MODEL")
    finished, judges = read_run(folder)[0], list(dict.fromkeys(args.judge))
    estimate = estimate_judging(folder, finished, judges, args.judge_model)
    tell_estimate(estimate, folder)
    if args.estimate:
        return 0
    model = find_language_model(args.judge_model)
    with closing(Progress(round(sum(s.calls for s in estimate.values())), "judgements")) as bar:

        def counted(row: Mapping[str, Any]) -> None:
            bar.count(failed=bool(row["error"]))

        done = judge_run(
            folder,
            finished,
            judges,
            model,
            args.judge_model,
            limits=Limits(args.max_calls, args.max_tokens, args.max_concurrency),
            on_done=counted,
        )
    tell_made(write_report_again(folder), folder, args.json)
    return tell_left(done.failed, done.stopped)
