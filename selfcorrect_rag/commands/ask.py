"""``selfcorrect-rag ask``: a question through a graph, with all that led to the answer."""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

# What loads models and graphs is imported by the functions: help and checks need none of it.
from selfcorrect_rag.commands.doing import Doing
from selfcorrect_rag.commands.knobs import add_knobs, refuse_unless, settings_from
from selfcorrect_rag.commands.names import check_names
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.serving.config import NO_INDEX, BadOption, ServingConfig
from selfcorrect_rag.serving.options import add_options, config_from
from selfcorrect_rag.settings import GRAPHS, CRAGSettings, InstructRAGSettings, Settings

if TYPE_CHECKING:
    from selfcorrect_rag.serving.parts import Parts

SETTINGS = {name.replace("_", "-"): kind for name, kind in GRAPHS.items()}
"""The settings of each graph, by the name that ``--graph`` takes."""
NEEDS: dict[str, type[Settings]] = {
    "--evaluator": CRAGSettings,
    "--web": CRAGSettings,
    "--demonstrations-from": InstructRAGSettings,
}
"""The settings of the graphs that have a use for an option."""
EXAMPLES = (
    'selfcorrect-rag ask "Who approves the deployments?"',
    'selfcorrect-rag ask "..." --graph crag --passages 10 --upper 0.8 --explain-cost',
    'selfcorrect-rag ask "..." --graph self-crag --web tavily --approve',
    'selfcorrect-rag ask "..." --weight-issup 2 --hard-constraints "[Fully supported]"',
    'selfcorrect-rag ask "..." --engine chat --model openai:gpt-4o-mini --json > saved.json',
    "selfcorrect-rag ask --again saved.json --weight-isuse 0 --html run.html",
)


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``ask``."""
    parser = add(
        usage="%(prog)s QUESTION [options]",
        description="Answer a question from an index, and show all that led to the answer.",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "question", nargs="?", help="the question; with --again, that of the result"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="Run again what --json saved to this file: its question, graph, settings, models and "
        "index; options given beside it take their place. Default: none.",
    )
    parser.add_argument(
        "--explain-cost",
        action="store_true",
        help="Print calls, tokens and seconds of each step too. Default: off.",
    )
    parser.add_argument(
        "--explain-scores",
        action="store_true",
        help="Print how the score of each candidate is summed too. Default: off.",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the whole result as JSON. Default: off."
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="Write the run as one page for a browser, too. Default: none.",
    )
    add_graph_options(parser, [name for name in ServingConfig.model_fields if name != "chat_model"])
    parser.set_defaults(run=run)


def add_graph_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add ``--graph``, the fields ``names`` of the configuration, and all graphs' settings."""
    parser.add_argument(
        "--graph",
        choices=list(SETTINGS),
        help="The graph that answers. Default: self-rag.",
    )
    add_options(parser, names)
    add_knobs(parser, SETTINGS)


def run(args: argparse.Namespace) -> int:
    """Answer ``args.question``; the seconds that it prints began with the process."""
    if args.again:
        from selfcorrect_rag.commands.again import take_again

        take_again(args, SETTINGS)
    if args.question is None:
        raise BadOption("ask takes a question, or --again FILE")
    if not args.question.strip():
        raise BadOption("the question is empty")
    if args.html and (args.html.is_dir() or not args.html.parent.is_dir()):
        raise BadOption(f"--html {args.html}: name a file in a folder that exists")
    doing: Doing = args.doing
    with opened(args) as (graph, settings, parts):
        import asyncio

        from selfcorrect_rag.serving.saved import made_by
        from selfcorrect_rag.state.intake import valid

        source, answers = parts.source, parts.answers
        asked = {"question": valid(args.question)}
        result, approving = asyncio.run(answered(graph, asked, doing))
        seconds = time.perf_counter() - args.started - approving
        result["made"] = made_by(args.graph, settings, parts)
    doing.pause()
    if args.json:
        tell(result_as_json(result, seconds))
    else:
        from selfcorrect_rag.commands.show import console, show_costs, show_run, show_sums

        show_run(console(), result, seconds, source, answers)
        if args.explain_scores and "candidates" in result:
            show_sums(console(), result)
        if args.explain_cost:
            show_costs(console(), result, seconds)
    if args.html:
        _write_page(args.html, {**result, "seconds": round(seconds, 3)})
    return 0


def checked(args: argparse.Namespace) -> tuple[ServingConfig, Any]:
    """The configuration and the settings that the options give; ``args.graph`` is filled in.

    Raises:
        BadOption, ModelNotFound: what is wrong with them, before anything is loaded.
    """
    args.graph = args.graph or "self-rag"
    config, settings = config_from(args), settings_from(args, SETTINGS, args.graph)
    for option, kind in NEEDS.items():
        given = hasattr(args, option.removeprefix("--").replace("-", "_"))
        graphs = [name for name, other in SETTINGS.items() if issubclass(other, kind)]
        refuse_unless(not given or args.graph in graphs, option, graphs)
    check_names(config)
    return config, settings


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[tuple[Any, Settings, "Parts"]]:
    """The graph that the options describe, with a checkpointer, its settings and its parts.

    Raises:
        BadOption, ModelNotFound: before anything is loaded, what is wrong with the options.
    """
    config, settings = checked(args)
    pages = settings.web_results if isinstance(settings, CRAGSettings) else 0
    doing: Doing = args.doing
    with ExitStack() as stack:
        with _uncollected():
            from langgraph.checkpoint.memory import InMemorySaver

            from selfcorrect_rag.serving.parts import Parts

            parts = stack.enter_context(Parts(config, passages=settings.passages, pages=pages))
            if isinstance(settings, CRAGSettings) and settings.approve_search:
                _check_approval(args, parts)
            doing.say("opening the index")
            _ = parts.retriever
            doing.say(f"loading {parts.answers}")
            name = args.graph.replace("-", "_")
            graph = parts.graph(name, settings, checkpointer=InMemorySaver())
        if config.reads_demo:
            doing.pause()
            tell(NO_INDEX, sys.stderr)
        yield graph, parts.settings(name, settings), parts


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import and load without garbage collection, and keep what comes of it out of later ones.

    All of it stays, and looking through it time and again takes a fifth of a first answer.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def result_as_json(result: dict[str, Any], seconds: float) -> str:
    """A result as JSON; documents become objects of id, text and metadata, and what a paused run
    waits for one of value and id."""
    from selfcorrect_rag.serving.saved import json_object, saved

    return as_json(saved(result, seconds), default=json_object, indent=2)


def _write_page(path: Path, result: dict[str, Any]) -> None:
    from selfcorrect_rag.render import render_run

    try:
        path.write_text(render_run(result), encoding="utf-8")
    except OSError as error:
        raise BadOption(f"--html {path}: {error.strerror}") from error


async def answered(graph: Any, given: Any, doing: Doing) -> tuple[dict[str, Any], float]:
    """The result of a graph's input, and the seconds that a person took to approve searches."""
    from langgraph.types import Command

    approving = 0.0
    while True:
        result = await _run(graph, given, doing)
        if "__interrupt__" not in result:
            return result, approving
        doing.pause()
        asked = time.perf_counter()
        (paused,) = result["__interrupt__"]
        given = Command(resume=_approval(paused.value))
        approving += time.perf_counter() - asked


async def _run(graph: Any, given: Any, doing: Doing) -> dict[str, Any]:
    """The result of a run; on a terminal its steps and tokens are shown as they come."""
    config = {"configurable": {"thread_id": "ask"}}
    if not doing.shown:
        return dict(await graph.ainvoke(given, config))
    result: dict[str, Any] = {}
    step = written = message = ""
    modes, keys = ["tasks", "messages", "values"], graph.output_channels
    async for mode, part in graph.astream(given, config, stream_mode=modes, output_keys=keys):
        if mode == "values":
            result = {**result, **part}
        elif mode == "messages":
            chunk = part[0]
            written = (written if chunk.id == message else "") + chunk.text
            message = chunk.id
        elif "input" in part:  # a step begins
            step = part["name"].replace("_", " ")
        doing.say(step, written)
    return result


def _approval(paused: dict[str, Any]) -> str:
    """A person's reply to a search; Enter alone and the end of the input are no."""
    from selfcorrect_rag.commands.show import console, say
    from selfcorrect_rag.state.intake import valid

    screen = console()
    say(screen, f"Search {paused['source']} for: {paused['query']}")
    try:
        return valid(screen.input("yes, no, or another query of two or more words: "))
    except EOFError:
        return "no"


def _check_approval(args: argparse.Namespace, parts: "Parts") -> None:
    if getattr(args, "json", False) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadOption("--approve asks in a terminal: not with --json, a pipe or a file")
    from selfcorrect_rag.search import NoWebSearch

    if isinstance(parts.web, NoWebSearch):
        raise BadOption("--approve has no search to ask about: give --web tavily or --web DIR")
