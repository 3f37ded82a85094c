"""``selfcorrect-rag ask``: one question through a graph, in a terminal."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, GRAPH, JSON, NO_INDEX, config_from
from selfcorrect_rag.cli.terminal import (
    progress_line,
    show_answer,
    show_explanation,
    tell,
    tell_json,
)


@click.command(params=[GRAPH, *CONFIG, JSON])
@click.argument("question")
@click.option("--explain", is_flag=True, help="Print what led to the answer, too.")
@click.option("--html", type=Path, metavar="FILE", help="Write the run as one page, too.")
def ask_command(
    question: str, graph: str, explain: bool, as_json: bool, html: Path | None, **options: Any
) -> None:
    """Answer QUESTION from an index, with its sources.

    In a pipe, only the answer is printed, unless --explain or --json asks for more.

    \b
    selfcorrect-rag ask "Who approves the deployments?"
    selfcorrect-rag ask "..." --model openai:gpt-4o-mini --graph crag --web tavily
    selfcorrect-rag ask "..." --set passages=10 --set weight_issup=2 --explain
    """
    if not question.strip():
        raise click.BadParameter("the question is empty")
    show = progress_line()
    with opened(graph, show, **options) as (built, parts), asyncio.Runner() as runner:
        started = time.perf_counter()
        result = answered(runner, built, {"question": question}, show)
        result["seconds"] = round(time.perf_counter() - started, 3)
        source, answers = parts.source, parts.answers
    if as_json:
        tell_json({name: value for name, value in result.items() if name != "messages"})
    elif not (explain or sys.stdout.isatty()):
        tell(result["answer"])
    else:
        show_answer(result)
    if explain and not as_json:
        tell()
        show_explanation(result, source, answers)
    if html:  # last: an answer is shown even if its page cannot be written
        write_page(html, result)


def write_page(path: Path, result: Mapping[str, Any]) -> None:
    """Write a run as a page beside its place and move it there, private to the user; BadParameter
    if the file is somebody else's or cannot be written."""
    from selfcorrect_rag.journal import replace_file
    from selfcorrect_rag.ui.page import render_run

    page = render_run(result)
    try:  # every page of a run names the package
        if path.exists() and b"selfcorrect-rag" not in path.read_bytes():
            raise click.BadParameter(f"{path} exists and was not written by this command")
        with replace_file(path) as draft:
            draft.touch(mode=0o600)
            draft.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from error


@contextmanager
def opened(graph: str, show: Callable[[str], None], **options: Any) -> Iterator[tuple[Any, Any]]:
    """Open the graph of these options, with a checkpointer, and its parts."""
    config = config_from(graph=graph, **options)
    show("loading")
    from langgraph.checkpoint.memory import InMemorySaver

    from selfcorrect_rag.serving.parts import Parts

    with Parts(config) as parts:
        settings = parts.settings(graph)
        if getattr(settings, "approve_search", False) and not sys.stdin.isatty():
            raise click.UsageError("approve_search asks in a terminal: not in a pipe")
        show(f"opening {parts.source}")
        built = parts.graph(graph, settings, checkpointer=InMemorySaver())
        if config.reads_demo:
            tell(NO_INDEX, err=True)
        yield built, parts


def answered(
    runner: asyncio.Runner, graph: Any, given: Any, show: Callable[[str], None]
) -> dict[str, Any]:
    """Run a graph to its end, and ask the person at the terminal to approve its searches."""
    from langgraph.types import Command

    config: Any = {"configurable": {"thread_id": "terminal"}}
    outputs = graph.get_output_jsonschema()["properties"]

    async def run(given: Any) -> tuple[dict[str, Any], Any]:
        async for mode, part in graph.astream(given, config, stream_mode=["tasks", "values"]):
            if mode == "values":
                result = part
            elif "input" in part:  # a step begins
                show(part["name"].replace("_", " "))
        return result, (await graph.aget_state(config)).interrupts

    while True:
        result, pauses = runner.run(run(given))
        if not pauses:
            return {key: result[key] for key in outputs if key in result}
        asked = pauses[0].value
        tell(f"Search {asked['source']} for: {asked['query']}")
        reply: str = click.prompt("yes, no, or another query", default="no").strip()
        consent = {"yes": True, "y": True, "no": False, "n": False}
        given = Command(resume=consent.get(reply.lower(), reply))
