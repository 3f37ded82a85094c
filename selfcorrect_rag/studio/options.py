"""What the server's graphs run on: the options of ``ask``, as variables of the environment.

``--base-url`` is ``SELFCORRECT_BASE_URL``, and so on; one that may be repeated takes several
values, quoted as in a shell.
"""

import argparse
import os
import re
import shlex
from collections.abc import Sequence

from selfcorrect_rag.commands.correction import add_correction_options
from selfcorrect_rag.commands.demonstrations import add_demonstrations_option
from selfcorrect_rag.commands.engines import add_model_options, check_engine
from selfcorrect_rag.commands.knobs import BadKnob
from selfcorrect_rag.commands.retrieving import add_index_options

PREFIX = "SELFCORRECT_"
ALLOWED_HOSTS = PREFIX + "ALLOWED_HOSTS"
"""The variable with the names of ``--allow-host``, with spaces between them."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""By which this machine calls itself."""
_NAME = re.compile(r"[a-z0-9_.-]+|[0-9a-f.]*:[0-9a-f:.]+")
"""A name or an address of a machine, without scheme and port."""


def known_names(host: str, allowed: Sequence[str]) -> list[str]:
    """The names by which clients may call a server that listens at ``host``, in lower case.

    Raises:
        BadKnob: it would listen to other machines, and by no name, or a name is none.
    """
    names = [name.lower().strip("[]") for name in allowed]
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadKnob(f"--allow-host {name}: give a name alone, without scheme and port")
    if not names and not (host.lower() in LOOPBACK or host.startswith("127.")):
        raise BadKnob(
            f"--host {host} is open to other machines: say by which name they call the server, "
            "--allow-host NAME; it asks nobody for a password"
        )
    return [*LOOPBACK, *names]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option that has a variable."""
    add_index_options(parser)
    add_model_options(parser)
    add_correction_options(parser)
    add_demonstrations_option(parser)
    parser.add_argument(
        "--chat-model",
        metavar="NAME",
        help="PROVIDER:MODEL, or MODULE:ATTRIBUTE of a LangChain chat model: the chat agent talks "
        "with it, crag and instruct_rag answer with it, and it rewrites queries and follow-up "
        "questions. By default the agent is a rule, and nano models answer.",
    )


def from_environment() -> argparse.Namespace:
    """The options that the environment gives, checked.

    Raises:
        BadKnob, BadEngineOption: a variable's value is none that its option takes.
    """
    given = []
    for name, default in _defaults().items():
        value = os.environ.get(_variable(name), "")
        values = shlex.split(value) if isinstance(default, list) else [value]
        given += [f"--{name.replace('_', '-')}={value}" for value in values if value]
    try:
        args = _parser().parse_args(given)
    except argparse.ArgumentError as error:
        option = (error.argument_name or "").lstrip("-").replace("-", "_")
        raise BadKnob(f"{_variable(option)}: {error.message}") from error
    check_engine(args)
    return args


def as_environment(args: argparse.Namespace) -> dict[str, str]:
    """The variables that say the same as ``args``."""
    variables = {}
    for name, default in _defaults().items():
        value = getattr(args, name)
        if value != default:
            variables[_variable(name)] = (
                shlex.join(value) if isinstance(default, list) else str(value)
            )
    return variables


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)
    return parser


def _defaults() -> dict[str, object]:
    defaults = vars(_parser().parse_args([]))
    return {name: value for name, value in defaults.items() if name != "check"}


def _variable(name: str) -> str:
    return PREFIX + name.upper()
