"""``selfcorrect-rag ask``: a question through a graph, with all that led to the answer."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.commands.correction import (
    NoWebSearch,
    add_correction_options,
    check_correction,
    check_thresholds,
    opened_evaluator,
    opened_web,
)
from selfcorrect_rag.commands.demonstrations import (
    add_demonstrations_option,
    check_demonstrations,
    demonstrations_from,
    with_default_mode,
)
from selfcorrect_rag.commands.engines import add_model_options, opened_model
from selfcorrect_rag.commands.graphs import GRAPHS, SETTINGS
from selfcorrect_rag.commands.knobs import BadKnob, add_knobs, settings_from
from selfcorrect_rag.commands.retrieving import add_index_options, opened_retriever, reads_demo
from selfcorrect_rag.commands.show import console, say
from selfcorrect_rag.commands.show_costs import show_costs
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.nano import generator_path, rationale_model_path
from selfcorrect_rag.render import render_run
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings
from selfcorrect_rag.state.intake import valid


def add_parser(subparsers: Any) -> None:
    """Register ``ask``."""
    parser = subparsers.add_parser(
        "ask", help="answer a question from an index", description=__doc__
    )
    parser.add_argument("question", type=valid)
    parser.add_argument(
        "--graph",
        choices=list(GRAPHS),
        default="self-rag",
        help="what answers. Default: %(default)s.",
    )
    add_index_options(parser)
    parser.add_argument(
        "--explain-cost", action="store_true", help="print calls, tokens and seconds by step too"
    )
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the run as one page for a browser, too"
    )
    add_model_options(parser)
    add_correction_options(parser)
    add_demonstrations_option(parser)
    add_knobs(parser, SETTINGS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer ``args.question``."""
    graph = GRAPHS[args.graph]
    settings: Any = settings_from(args, SETTINGS, args.graph)
    check_correction(args)
    check_demonstrations(args)
    if args.html and (args.html.is_dir() or not args.html.parent.is_dir()):
        raise BadKnob(f"--html {args.html}: name a file in a folder that exists")
    demo = reads_demo(args)
    retriever, source = opened_retriever(args, settings.passages)
    parts: tuple[Any, ...] = ()
    if isinstance(settings, CRAGSettings):
        web = opened_web(args.web, settings.web_results, demo=demo)
        _check_approval(args, settings, web)
        evaluator = opened_evaluator(args.evaluator)
        parts = (evaluator, web)
        check_thresholds(evaluator, settings)
    default_model = generator_path()
    if isinstance(settings, InstructRAGSettings):
        shown = demonstrations_from(args.demonstrations_from)
        nano = args.model is None and args.engine != "server"
        settings = with_default_mode(settings, nano=nano, demonstrations=shown)
        parts, default_model = (shown,), rationale_model_path()
    with opened_model(args, default_model) as llm:
        runnable = graph.create(
            llm, retriever, *parts, settings=settings, checkpointer=InMemorySaver()
        )
        result, seconds = _answered(runnable, args.question)
    if args.json:
        tell(result_as_json(result, seconds))
    else:
        graph.show(console(), result, seconds, source)
        if args.explain_cost:
            show_costs(console(), result)
    if args.html:
        _write_page(args.html, {**result, "seconds": round(seconds, 3)})
    return 0


def result_as_json(result: dict[str, Any], seconds: float) -> str:
    """A result as JSON; documents become objects of id, text and metadata."""
    rest = {key: value for key, value in result.items() if key != "messages"}
    return as_json({**rest, "seconds": round(seconds, 3)}, default=_object, indent=2)


def _write_page(path: Path, result: dict[str, Any]) -> None:
    try:
        path.write_text(render_run(result), encoding="utf-8")
    except OSError as error:
        raise BadKnob(f"--html {path}: {error.strerror}") from error


def _object(document: Document) -> dict[str, Any]:
    return {"id": document.id, "text": document.page_content, "metadata": document.metadata}


def _answered(graph: Any, question: str) -> tuple[dict[str, Any], float]:
    """The result, and the seconds it took without those that a person took to approve."""
    config = RunnableConfig(configurable={"thread_id": "ask"})
    given: Any = {"question": question}
    seconds = 0.0
    while True:
        started = time.perf_counter()
        result = graph.invoke(given, config)
        seconds += time.perf_counter() - started
        if "__interrupt__" not in result:
            return result, seconds
        (paused,) = result["__interrupt__"]
        given = Command(resume=_approval(paused.value))


def _approval(paused: dict[str, Any]) -> str:
    """What a person says to a search; Enter alone and the end of the input are no."""
    screen = console()
    say(screen, f"Search {paused['source']} for: {paused['query']}")
    try:
        return valid(screen.input("yes, no, or another query of two or more words: "))
    except EOFError:
        return "no"


def _check_approval(args: argparse.Namespace, settings: CRAGSettings, web: WebSearch) -> None:
    if not settings.approve_search:
        return
    if args.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadKnob("--approve asks in a terminal: not with --json, a pipe or a file")
    if isinstance(web, NoWebSearch):
        raise BadKnob("--approve has no search to ask about: give --web tavily or --web DIR")
