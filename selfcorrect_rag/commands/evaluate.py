"""``selfcorrect-rag eval``: several methods on one set of questions, and what tells them apart."""

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.eval_judge import judge_answers
from selfcorrect_rag.commands.eval_results import tell_estimate, tell_left, tell_made, tell_table
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.entailment import (
    EntailmentModel,
    KeptEntailment,
    open_entailment,
)
from selfcorrect_rag.evaluation.exports import TARGETS, export
from selfcorrect_rag.evaluation.judging import JUDGES, with_judgements
from selfcorrect_rag.evaluation.methods import KINDS, Spec, open_method
from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.page import (
    COMPARED,
    comparison_row,
)
from selfcorrect_rag.evaluation.progress import Progress
from selfcorrect_rag.evaluation.remembered import Memory
from selfcorrect_rag.evaluation.report import write_report
from selfcorrect_rag.evaluation.rows import Outcome
from selfcorrect_rag.evaluation.run import (
    Finished,
    Limits,
    count_left,
    estimate_run,
    read_run,
    run_methods,
)
from selfcorrect_rag.evaluation.summary import (
    compared,
    comparison_figures,
    default_metrics,
)
from selfcorrect_rag.evaluation.sweeps import read_variants
from selfcorrect_rag.evaluation.task_formats import FORMATS
from selfcorrect_rag.evaluation.tasks import Task, read_task
from selfcorrect_rag.journal import digest_of_ids
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.search.index import IndexRetriever
from selfcorrect_rag.serving.config import NO_INDEX, BadOption, ServingConfig
from selfcorrect_rag.serving.options import add_options, config_from
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import CRAGSettings

SKIPPED_SHOWN = 5
"""Bad rows that are named."""
_OF_THIS_PROCESS = re.compile(r"\b[0-9a-f]{32}\b")
"""In the identity of a model of which nothing is known beyond this process."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``eval``."""
    parser = add(
        description="Ask several methods the same questions over one retriever and one model, and "
        "say what tells them apart. The same command goes on after a kill and asks again what "
        "failed; the exit code is 1 where questions failed or a bound left some unasked. "
        "`eval compare RUN RUN` compares two runs; `eval judge RUN` asks a "
        "chat model, and `eval export RUN` prints rows for other tools.",
        usage="selfcorrect-rag eval FILE --method METHOD --out RUN [options]\n"
        "       selfcorrect-rag eval compare RUN RUN [--metric NAME]\n"
        "       selfcorrect-rag eval judge RUN --judge NAME --judge-model MODEL [--max-calls N]\n"
        "       selfcorrect-rag eval export RUN --to TOOL [--method METHOD]",
        examples=(
            "selfcorrect-rag eval questions.jsonl --method rag --method self_rag --out run",
            "selfcorrect-rag eval questions.jsonl --method crag:upper=0.9 --out run --estimate",
            "selfcorrect-rag eval questions.jsonl --sweep self_rag:weight_issup=0,0.5,1 --out run",
            "selfcorrect-rag eval compare run other --metric accuracy",
        ),
    )
    parser.add_argument(
        "data",
        nargs="+",
        metavar="FILE | compare RUN RUN | judge RUN | export RUN",
        help="questions with answers: JSONL, JSON or CSV; the papers' formats too",
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="[NAME=]METHOD[:KNOB=VALUE,...]",
        help=f"A method, may be repeated: {', '.join(KINDS)}, or MODULE:ATTRIBUTE of a compiled "
        "graph of your own; with settings of the graph, such as "
        "strict=crag:upper=0.9,strips=3. Default: none.",
    )
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="METHOD:KNOB=V1,V2,...",
        help="A method at each value of a setting, with a plot; may be repeated: "
        "self_rag:weight_issup=0,0.5,1, or crag:ablations for all of CRAG's. Default: none.",
    )
    parser.add_argument(
        "--out", type=Path, metavar="RUN", help="The folder of the run. Default: none."
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="A metric, may be repeated. Default: those of the papers for such questions.",
    )
    parser.add_argument(
        "--entailment",
        metavar="NAME|MODULE:ATTRIBUTE",
        help="What judges citations: a folder or hub name of a classifier for natural language "
        "inference, or a function of a premise and a hypothesis. Default: none.",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"Of the rows of FILE: {', '.join(FORMATS)}. Default: by the fields of each row.",
    )
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        choices=JUDGES,
        help="What is judged, may be repeated. Default: none.",
    )
    parser.add_argument(
        "--judge-model",
        metavar="PROVIDER:MODEL",
        help="The chat model that judges, or MODULE:ATTRIBUTE of one. Default: none.",
    )
    parser.add_argument(
        "--to", choices=TARGETS, help="The tool whose rows a run is printed as. Default: none."
    )
    for name, kind, text in (
        ("--limit", "N", "Most questions, the first of the file. Default: all."),
        (
            "--passages",
            "N",
            "Passages for each method that does not say how many. Default: each method's own.",
        ),
        ("--max-calls", "N", "Model calls after which no question begins. Default: no bound."),
        ("--max-tokens", "N", "Tokens after which no question begins. Default: no bound."),
    ):
        parser.add_argument(name, type=_count, metavar=kind, help=text)
    parser.add_argument(
        "--max-concurrency",
        type=_count,
        default=16,
        metavar="N",
        help="Questions in flight at a time. Default: %(default)s.",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="Say what the run would cost, and ask nothing. Default: off.",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the summary as JSON. Default: off."
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run, estimate or compare."""
    if args.data[0] == "compare" and len(args.data) == 3:
        return _compare(Path(args.data[1]), Path(args.data[2]), args.metric, args.entailment)
    if args.data[0] == "judge" and len(args.data) == 2:
        return judge_answers(args, Path(args.data[1]))
    if args.data[0] == "export" and len(args.data) == 2:
        return _export(args, Path(args.data[1]))
    if len(args.data) != 1:
        raise BadOption("eval takes one FILE, or: compare RUN RUN, judge RUN, export RUN")
    _check_metrics(args.metric, args.entailment)
    variants = read_variants(args.method, args.sweep, args.passages)
    specs = variants.specs
    if args.out is None:
        raise BadOption("--out RUN: name the folder of the run")
    config = config_from(args)
    task = read_task(args.data[0], format=args.format, limit=args.limit)
    _tell_skipped(task)
    if config.reads_demo and any(q.passages is None for q in task.questions):
        tell(NO_INDEX, sys.stderr)
    # What reflects by itself reads all passages in one call; a chat model is asked for each.
    batches = config.runs_on != "chat"
    left = estimate_run(task.questions, specs, args.out, batches=batches, shared=True)
    tell_estimate(left, args.out)
    if args.estimate:
        return 0
    entailment = _opened(args.entailment)  # before anything is asked
    finished, about = _run(args, config, task, specs, batches)
    entails = _entails(entailment, args.out, finished)
    metrics = args.metric or default_metrics(task.questions)
    made = write_report(args.out, finished, metrics, about, variants, entails)
    tell_made(made, args.out, args.json)
    return tell_left(sum(m["failed"] for m in made["methods"].values()), finished.stopped)


def _export(args: argparse.Namespace, folder: Path) -> int:
    """A run as JSON lines of another tool."""
    if args.to is None:
        raise BadOption("eval export takes --to TOOL")
    for row in export(read_run(folder)[0], args.to, args.method):
        tell(as_json(row))
    return 0


def _run(
    args: argparse.Namespace,
    config: ServingConfig,
    task: Task,
    specs: Sequence[Spec],
    batches: bool,
) -> tuple[Finished, dict[str, Any]]:
    """The run, and what it was made with."""
    pages = [s.settings.web_results for s in specs if isinstance(s.settings, CRAGSettings)]
    passages = max(1, *(spec.passages for spec in specs))
    with Parts(config, passages=passages, pages=max([1, *pages]), each=Memory().of) as parts:
        methods = [open_method(spec, parts) for spec in specs]
        settings = _settings(config, parts, specs)
        with closing(Progress(count_left(task.questions, specs, args.out), "answers")) as bar:

            def counted(outcome: Outcome) -> None:
                bar.count(failed=bool(outcome.error))

            finished = run_methods(
                task.questions,
                methods,
                args.out,
                settings=settings,
                limits=Limits(args.max_calls, args.max_tokens, args.max_concurrency),
                batches=batches,
                shared=True,
                on_done=counted,
            )
    about = {"task": task.name, "data": task.fingerprint, "skipped": len(task.skipped), **settings}
    return finished, {**about, **{spec.name: spec.as_json() for spec in specs}}


def _settings(config: ServingConfig, parts: Parts, specs: Sequence[Spec]) -> dict[str, Any]:
    """What decides the answers beside the methods: options, and fingerprints of what they open."""
    kinds = {spec.kind for spec in specs}
    opened: dict[str, object] = {}
    if kinds & KINDS.keys():
        opened["model"] = parts.chat_model or parts.llm
    if kinds & {"crag", "self_crag"}:
        opened["evaluator"] = parts.evaluator
    found: dict[str, Any] = {
        "options": config.model_dump(mode="json", exclude_defaults=True, exclude={"base_url"})
    }
    for name, model in opened.items():
        known = identity(model)
        if not _OF_THIS_PROCESS.search(known):
            found[name] = hashlib.sha256(known.encode()).hexdigest()
    if kinds & KINDS.keys() - {"no_retrieval"} and isinstance(parts.retriever, IndexRetriever):
        ids = parts.retriever.index.ids()
        found["index"] = f"{parts.source} ({len(ids)} passages, {digest_of_ids(ids)})"
    return found


def _check_metrics(
    names: Sequence[str], entailment: str | None, judged: Iterable[str] = ()
) -> None:
    """Refuse a metric that no row can be scored by here; ``judged`` are those of judges.

    Raises:
        BadOption: there is none of the name, or it takes a model that is not given.
    """
    ready = [name for name, metric in METRICS.items() if metric.needs != "judge"]
    ready += sorted(judged)
    for name in names:
        if name not in ready:
            raise BadOption(f"--metric {name}: there are {', '.join(ready)}")
    citations = [name for name in names if name in METRICS and METRICS[name].needs]
    if citations and entailment is None:
        raise BadOption(f"--metric {citations[0]} needs --entailment NAME, a model that judges")
    if entailment is not None and not citations:
        raise BadOption("--entailment is for --metric citation_recall and citation_precision")


def _opened(entailment: str | None) -> EntailmentModel | None:
    return None if entailment is None else open_entailment(entailment)


def _entails(
    model: EntailmentModel | None, folder: Path, finished: Finished
) -> KeptEntailment | None:
    """What a run's citations are judged by, once everything is asked."""
    if model is None:
        return None
    questions = {question.id: question for question in finished.questions}
    entails = KeptEntailment(model, folder)
    entails.ask((questions[outcome.id], outcome) for outcome in finished.outcomes)
    return entails


def _compare(one: Path, other: Path, metrics: Sequence[str], entailment: str | None) -> int:
    """Two runs, method by method."""
    first, second = (with_judgements(folder, read_run(folder)[0])[0] for folder in (one, other))
    _check_metrics(metrics, entailment, first.judged.keys() & second.judged.keys())
    model = _opened(entailment)
    entails = _entails(model, one, first), _entails(model, other, second)
    tell(f"A is {one}, B is {other}")
    for metric in metrics or default_metrics(first.questions):
        pairs = compared(first, second, metric, entails)
        if not pairs:
            raise BadRun(f"{metric}: no question has a score in both runs")
        tell_table(COMPARED, (comparison_row(comparison_figures(pair)) for pair in pairs), metric)
    return 0


def _tell_skipped(task: Task) -> None:
    for place, reason in task.skipped[:SKIPPED_SHOWN]:
        tell(f"{place} {reason}: left out", sys.stderr)
    if left := len(task.skipped[SKIPPED_SHOWN:]):
        tell(f"{left:,} more rows left out", sys.stderr)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number
