"""The command ``selfcorrect-rag``: finds a command's file, and prints errors in one line."""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

import click

import selfcorrect_rag

COMMANDS = {
    "index": "Put your documents into an index.",
    "ask": "Answer a question from an index.",
    "chat": "Keep a conversation about an index.",
    "demo": "See the graphs work, offline.",
    "ui": "Open a local page to ask, watch and weigh.",
    "eval": "Compare methods on questions of your own.",
    "calibrate": "Choose an evaluator's thresholds.",
    "batch": "Answer many questions, here or on Ray.",
    "studio": "Serve the graphs to LangGraph Studio and to clients.",
    "mcp": "Serve the graphs as MCP tools.",
    "train": "Fine-tune what the papers train.",
    "settings": "List what --set takes.",
}
"""Each command, in the file of its name, and its one-line help."""


class LazyGroup(click.Group):
    """A group that imports a command's file when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {name!r}.{meant}")
        module = import_module(f"selfcorrect_rag.cli.{name}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # without importing any
            formatter.write_dl([*COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(selfcorrect_rag.__version__, message="%(version)s")
def cli() -> None:
    """Self-RAG, CRAG and InstructRAG as LangGraph graphs: index documents, ask questions, see why,
    and train what they need."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 1 for bad rows, 2 for other errors, in one line."""
    try:
        status = cli.main(arguments, prog_name="selfcorrect-rag", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("selfcorrect-rag: stopped", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; there is nobody to tell
        return 141
    except Exception as error:
        from selfcorrect_rag.cli.terminal import tell
        from selfcorrect_rag.errors import BadRows, SelfCorrectError

        if not isinstance(error, SelfCorrectError | OSError):  # a full disk, a file as a folder
            raise
        tell(f"selfcorrect-rag: {error}", err=True)
        return 1 if isinstance(error, BadRows) else 2


if __name__ == "__main__":
    sys.exit(main())
