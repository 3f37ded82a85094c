"""The help of every command but `train`: each option says its meaning and its default."""

import argparse

import pytest

from selfcorrect_rag.cli import parser

COMMANDS = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]


@pytest.mark.parametrize("command", ["ask", "index", "demo", "studio", "eval"])
def test_options_say_their_meaning_and_their_default(command: str) -> None:
    made: argparse.ArgumentParser = COMMANDS[command]  # type: ignore[index]
    for action in made._actions[1:]:
        if action.option_strings:
            text = made._get_formatter()._expand_help(action)
            assert " Default: " in text, action.option_strings
            assert text.endswith("."), text
            assert action.metavar != "X"
