"""``selfcorrect-rag chat``: a conversation with a graph, each answer with its sources."""

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from selfcorrect_rag.commands.ask import add_graph_options, answered, opened
from selfcorrect_rag.commands.doing import Doing
from selfcorrect_rag.commands.terminal import as_line, tell
from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.serving.config import ServingConfig

PROMPT = "> "
"""What asks for a question on a terminal."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``chat``."""
    parser = add(
        usage="%(prog)s [options]",
        description="Keep a conversation about an index: each answer with its sources.",
        examples=(
            "selfcorrect-rag chat",
            "selfcorrect-rag chat --graph self-crag --web tavily --approve",
            "selfcorrect-rag chat --engine chat --model openai:gpt-4o-mini",
        ),
        epilog="Later questions may refer to earlier ones. Ctrl-C stops an answer; an empty line "
        "or Ctrl-D ends the conversation.",
    )
    add_graph_options(parser, ServingConfig.model_fields)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer the lines of standard input, each as a turn of one conversation."""
    import asyncio

    from selfcorrect_rag.commands.show import console, show_turn

    doing: Doing = args.doing
    with opened(args) as (graph, _, _), asyncio.Runner() as runner:
        doing.pause()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on an answer can stop
        while question := _asked():
            try:
                # As a message: only these are the conversation that a later turn refers to.
                turn = {"messages": [("user", question)]}
                result, _ = runner.run(answered(graph, turn, doing))
            except KeyboardInterrupt:
                doing.pause()
                tell("stopped", sys.stderr)
            except SelfCorrectError as error:
                doing.pause()
                tell(as_line(error), sys.stderr)
            else:
                doing.pause()
                show_turn(console(), result)
    return 0


def _asked() -> str:
    """The next question; empty at the end of the input."""
    from selfcorrect_rag.state.intake import valid

    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if asks:
        with suppress(ImportError):  # arrow keys and earlier questions, where Python has them
            import readline  # noqa: F401
    while True:
        try:
            return valid(input(PROMPT if asks else "")).strip()
        except KeyboardInterrupt:
            print()  # the begun line is dropped
        except EOFError:
            if asks:
                print()
            return ""
