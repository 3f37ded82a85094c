"""``selfcorrect-rag eval judge``: a chat model judges the answers of a run."""

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.terminal import tell
from selfcorrect_rag.evaluation.judging import Judging, estimate_judging, judge_run
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.run import Limits, read_run
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.serving.config import BadOption


def judge_answers(args: argparse.Namespace, folder: Path) -> Judging | None:
    """Judge, or say what it would cost; None where only that was asked for."""
    if not (args.judge and args.judge_model):
        raise BadOption("eval judge takes --judge NAME and --judge-model PROVIDER:MODEL")
    finished, judges = read_run(folder)[0], list(dict.fromkeys(args.judge))
    estimate = estimate_judging(folder, finished, judges, args.judge_model)
    for name, spent in estimate.items():
        about = f"about {spent.calls:,.0f} model calls, {spent.tokens:,.0f} tokens"
        tell(f"{name}: {about}", sys.stderr)
    if args.estimate:
        return None
    model = find_language_model(args.judge_model)
    with closing(Progress(round(sum(s.calls for s in estimate.values())), "judgements")) as bar:

        def counted(row: Mapping[str, Any]) -> None:
            bar.count(failed=bool(row["error"]))

        return judge_run(
            folder,
            finished,
            judges,
            model,
            args.judge_model,
            limits=Limits(args.max_calls, args.max_tokens, args.max_concurrency),
            on_done=counted,
        )
