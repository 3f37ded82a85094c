"""Settings as form fields, and form fields as settings."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.serving.config import BadOption, parse_value
from selfcorrect_rag.settings import GRAPHS, Settings

WEIGHTS = {
    "weight_sequence": "Weight of p(y)",
    "weight_isrel": "Weight of ISREL",
    "weight_issup": "Weight of ISSUP",
    "weight_isuse": "Weight of ISUSE",
}
THRESHOLDS = {"upper": "Correct above", "lower": "Incorrect below"}


def fields(graph: str, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a form field for each setting of a graph.

    Args:
        graph: its name in Python.
        given: texts of settings, which the fields show.
    """
    schema = GRAPHS[graph].model_json_schema()["properties"]
    found = []
    for name, setting in schema.items():
        control = setting["x_oap_ui_config"]
        if control["type"] == "boolean":
            control = {**control, "options": [{"value": "true"}, {"value": "false"}]}
        default = control.get("default")
        found.append(
            {
                "name": name,
                "label": name.replace("_", " ").capitalize(),
                "help": setting["description"],
                "type": control["type"],
                "options": [option["value"] for option in control.get("options", [])],
                "default": "" if default in (None, [], {}) else _text(default),
                "value": given.get(name, ""),
            }
        )
    return found


def settings_from(graph: str, given: Mapping[str, str]) -> Settings:
    """Return the settings that a form gives; empty fields keep their defaults.

    Raises:
        BadOption: a value is invalid; the message names the setting.
    """
    known = GRAPHS[graph].model_fields
    texts = {name: text for name, text in given.items() if name in known and text.strip()}
    try:
        return GRAPHS[graph](**{name: parse_value(name, text) for name, text in texts.items()})
    except BadSettings as error:
        raise BadOption(str(error)) from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
