"""The help of every command but `train`: each option says its meaning and its default."""

import argparse
import shlex
import subprocess
import sys

import pytest

from selfcorrect_rag.cli import COMMANDS, main, parser

SEES = """
import sys
from selfcorrect_rag.cli import main
try:
    main(sys.argv[1:])
finally:
    heavy = ("langgraph", "langchain_core", "pydantic", "torch", "chromadb")
    print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_needs_no_command_imports_none(option: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SEES, option], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = " ".join(capsys.readouterr().out.split())
    assert f"{command} {COMMANDS[command][1]}" in listed
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert not ended.value.code
    assert f"usage: selfcorrect-rag {command} " in capsys.readouterr().out


@pytest.mark.parametrize("command", ["ask", "batch", "index", "demo", "ui", "studio", "eval"])
def test_options_say_their_meaning_and_their_default(command: str) -> None:
    commands = parser([command])._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    made: argparse.ArgumentParser = commands[command]  # type: ignore[index]
    for action in made._actions[1:]:
        if action.option_strings:
            text = made._get_formatter()._expand_help(action)
            assert " Default: " in text, action.option_strings
            assert text.endswith("."), text
            assert action.metavar != "X"
            assert "null" not in text.lower(), text


@pytest.mark.parametrize(
    "command", ["ask", "batch", "chat", "index", "demo", "ui", "studio", "mcp", "eval"]
)
def test_the_examples_of_help_are_commands(command: str) -> None:
    commands = parser([command])._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    made = commands[command]  # type: ignore[index]
    assert made.examples
    for example in made.examples:
        name, *arguments = shlex.split(example.partition(" > ")[0])
        assert name == "selfcorrect-rag"
        parser([command]).parse_args(arguments)
        assert f"  {example}\n" in made.format_help()
