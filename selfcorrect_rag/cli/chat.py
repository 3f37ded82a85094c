"""``selfcorrect-rag chat``: a conversation through a graph, in a terminal."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import click

from selfcorrect_rag.cli.ask import answered, opened
from selfcorrect_rag.cli.options import CONFIG, GRAPH
from selfcorrect_rag.cli.terminal import clear_line, progress_line, show_answer, tell


@click.command(params=[GRAPH, *CONFIG])
def chat_command(graph: str, **options: Any) -> None:
    """Keep a conversation about an index; each line of input is a question.

    A chat model (--model, or --set chat_model=NAME) rewrites later questions that refer to earlier
    ones. Ctrl-C stops an answer; an empty line or Ctrl-D ends the conversation.
    """
    from selfcorrect_rag.errors import SelfCorrectError

    show = progress_line()
    with opened(graph, show, **options) as (built, _), asyncio.Runner() as runner:
        while question := _next_question():
            try:
                result = answered(runner, built, {"messages": [("user", question)]}, show)
            except (KeyboardInterrupt, click.Abort):
                tell("stopped", err=True)
            except SelfCorrectError as error:
                tell(str(error), err=True)
            else:
                if result["question"] != result["original_question"]:
                    tell(f"asked as: {result['question']}", dim=True)
                show_answer(result)
                tell()


def _next_question() -> str:
    clear_line()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        with suppress(ImportError):  # arrow keys and earlier questions
            import readline  # noqa: F401
    try:
        return input("> " if is_terminal else "").strip()
    except EOFError:
        return ""
