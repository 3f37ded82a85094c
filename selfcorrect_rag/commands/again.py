"""The options that make a saved result of ``ask`` again."""

import argparse
import json
from collections.abc import Mapping

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.serving.config import BadOption, ServingConfig, option_name
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state.intake import valid


def take_again(args: argparse.Namespace, graphs: Mapping[str, type[Settings]]) -> None:
    """Set the question, the graph and the options of the saved result ``args.again``, but those
    that ``args`` has.

    Raises:
        BadOption: it cannot be read, was not saved by ``ask --json``, or names code to import or
            an address, which only a person may give.
        BadSettings: a setting that no graph has, or that is out of bounds.
    """
    try:
        result = json.loads(args.again.read_text(encoding="utf-8"))
        made = result["made"]
        question, graph = result["original_question"], made["graph"]
        settings = graphs[graph](**made["settings"])
        config = ServingConfig(**made["config"])
        question = valid(question)
    except (BadOption, BadSettings):
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadOption(f"--again {args.again}: no result that ask --json saved") from error
    args.question = args.question or question
    args.graph = args.graph or graph
    for name in settings.model_fields_set & graphs[args.graph].model_fields.keys():
        if not hasattr(args, name):
            setattr(args, name, getattr(settings, name))
    foreign = config.reaching_out()
    for name, field in ServingConfig.model_fields.items():
        value = getattr(config, name)
        if hasattr(args, name) or value == field.default:
            continue
        if name in foreign:
            raise BadOption(
                f"--again {args.again} names {option_name(name)} {value}, which may run code or "
                "reach an address: give that option yourself"
            )
        setattr(args, name, value)
