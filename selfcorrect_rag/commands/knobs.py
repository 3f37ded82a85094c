"""The settings of a run as command-line options, read off the graphs' settings classes."""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.serving.config import BadOption, option_name
from selfcorrect_rag.serving.options import arguments, shown_default
from selfcorrect_rag.settings import Settings

OPTIONS = {"approve_search": "--approve"}
"""The options of settings that are not simply their names."""
_NULL = re.compile(r"\b([Nn])ull\b")
"""What Studio's form calls a value that is not set; on the command line it is none."""


def add_knobs(parser: argparse.ArgumentParser, settings: Mapping[str, type[Settings]]) -> None:
    """Add one option for each setting of any graph, with its description and default.

    ``settings`` are the graphs' classes by the graphs' names. Options are grouped by the graphs
    that have them; where graphs differ in what a setting means, its help says so for each.
    """
    groups: dict[str, Any] = {}
    for name, fields in _fields(settings).items():
        title = f"knobs of {_listed(fields, 'and')}"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        groups[title].add_argument(
            knob_option(name),
            dest=name,
            default=argparse.SUPPRESS,
            help=_NULL.sub(_none, _help(fields)).replace("%", "%%"),
            **_arguments(fields.values()),
        )


def settings_from(
    args: argparse.Namespace, settings: Mapping[str, type[Settings]], graph: str
) -> Settings:
    """The settings of ``graph`` that the options give.

    Raises:
        BadOption: a value is outside its bounds, or an option is of another graph; the message
            names the option, and the bound or the graphs.
    """
    given = {}
    for name, fields in _fields(settings).items():
        if hasattr(args, name):
            refuse_unless(graph in fields, knob_option(name), fields)
            value = getattr(args, name)
            is_mapping = all(isinstance(field.default, dict) for field in fields.values())
            given[name] = dict(value) if is_mapping else value
    try:
        return settings[graph](**given)
    except BadSettings as error:
        option = f"{knob_option(error.knob)}: " if error.knob else ""
        raise BadOption(f"{option}{error.reason}") from error


def refuse_unless(belongs: bool, option: str, graphs: Iterable[str]) -> None:
    """Raise a BadOption that names the graphs which ``option`` is for, unless it belongs."""
    if not belongs:
        raise BadOption(f"{option} is for --graph {_listed(graphs, 'or')}")


def _fields(settings: Mapping[str, type[Settings]]) -> dict[str, dict[str, FieldInfo]]:
    """Every setting by its name, as each graph that has it describes it."""
    found: dict[str, dict[str, FieldInfo]] = {}
    for graph, kind in settings.items():
        for name, field in kind.model_fields.items():
            found.setdefault(name, {})[graph] = field
    return found


def knob_option(name: str) -> str:
    """The option of the command line for a setting, or for a field of the configuration."""
    return OPTIONS.get(name) or option_name(name)


def _none(null: re.Match[str]) -> str:
    return f"{null[1]}one"


def _listed(graphs: Iterable[str], word: str) -> str:
    *rest, last = graphs
    return f"{', '.join(rest)} {word} {last}" if rest else last


def _help(fields: Mapping[str, FieldInfo]) -> str:
    meanings: dict[str, list[str]] = {}
    for graph, field in fields.items():
        meaning = f"{field.description} Default: {shown_default(field)}."
        meanings.setdefault(meaning, []).append(graph)
    if len(meanings) == 1:
        return next(iter(meanings))
    return " ".join(f"{_listed(of, 'and')}: {meaning}" for meaning, of in meanings.items())


def _arguments(fields: Iterable[FieldInfo]) -> dict[str, Any]:
    """How argparse reads a setting: as its first graph does, with the choices of all."""
    first, *others = map(arguments, fields)
    choices = [choice for form in (first, *others) for choice in form.get("choices", ())]
    return {**first, "choices": list(dict.fromkeys(choices))} if choices else first
