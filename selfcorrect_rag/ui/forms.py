"""The knobs of graphs as fields of a form, made from the schema of their settings, and read back.

A field that is left at its default is not given, so that a link says only what was changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from selfcorrect_rag.errors import BadSettings, one_line
from selfcorrect_rag.reflection import registered_groups
from selfcorrect_rag.render.markup import Html, element, folded, joined
from selfcorrect_rag.settings import GRAPHS, Settings

Values = Mapping[str, Sequence[str]]
"""The texts of a form or of a query string, by name."""
FIELDS = ("question", "graph", "index", "beside")
"""What a form asks besides knobs: ``beside`` is the run that the new one is compared with."""
LONGEST = 8_000
"""Most characters of a question, and of any text of a link."""
SWITCHES = {"on": True, "true": True, "off": False, "false": False}
"""What a switch may be: as a form sends it, and as a script may."""

TITLES = {
    "decide_retrieval": "Retrieval",
    "retrieve": "Retrieval",
    "grade_documents": "Correction",
    "refine_strips": "Strips",
    "select_web_strips": "Strips",
    "rewrite_query": "Web search",
    "web_search": "Web search",
    "generate": "Answer",
    "generate_and_critique": "Candidates and beams",
    "beam_select": "Candidates and beams",
    "read_question": "Rationale",
    "write_rationale": "Rationale",
    "choose_demonstrations": "Demonstrations",
    "": "Limits",
}
"""The heading that a knob stands under, by the first step that it is of."""


@cache
def schema(graph: str) -> dict[str, dict[str, Any]]:
    """The knobs of a graph, as its settings' JSON schema describes them."""
    knobs: dict[str, dict[str, Any]] = GRAPHS[graph].model_json_schema()["properties"]
    if not registered_groups():
        knobs.pop("group_weights", None)
    return knobs


def read(graph: str, given: Values) -> Settings:
    """The settings of a graph that texts give.

    Args:
        graph: as settings name it.
        given: texts by knob; an empty text is the default, or none where a knob may be none.

    Raises:
        BadSettings: no knob has such a name, or a value is no number or out of bounds.
    """
    knobs: dict[str, Any] = {}
    for name, texts in given.items():
        about = schema(graph).get(name)
        value = _value(name, about, texts) if about else texts  # which the settings refuse
        if about is None or value != about["default"]:
            knobs[name] = value
    return GRAPHS[graph](**knobs)


def knobs_of(graph: str, given: Values) -> Values:
    """The knobs of a graph among the fields of a form or of a link, by their own names.

    Args:
        graph: as settings name it.
        given: ``passages`` and ``crag.passages`` are the same for CRAG; a form also sends those of
            the other graphs, which are left out.

    Raises:
        BadSettings: a field is neither of :data:`FIELDS` nor of a graph.
    """
    knobs, own = {}, {}
    for field, texts in given.items():
        of, dot, name = field[:200].rpartition(".")
        of = as_graph(of)
        if dot and of not in GRAPHS:
            raise BadSettings(f"there is no graph {of!r}", field[:200])
        if of == graph:
            own[name] = texts
        elif not dot and field not in FIELDS:
            knobs[name] = texts
    return {**knobs, **own}


def as_graph(name: str) -> str:
    """A graph's name as settings have it: ``self-crag``, as the command line says, is
    ``self_crag``."""
    return name.replace("-", "_")


def _value(name: str, about: Mapping[str, Any], texts: Sequence[str]) -> Any:
    forms = [form["type"] for form in about.get("anyOf", [about]) if "type" in form]
    kind, text = forms[0], (texts[-1] if texts else "").strip()
    if kind == "array":
        return [line for text in texts for line in map(str.strip, text.splitlines()) if line]
    if not text:
        return None if "null" in forms else about["default"]
    if kind == "boolean":
        if text not in SWITCHES:
            raise BadSettings(f"{text[:40]!r} is neither on nor off", name)
        return SWITCHES[text]
    try:
        if kind == "object":
            pairs = (line.partition("=") for line in text.splitlines() if line.strip())
            return {group.strip(): float(weight) for group, _, weight in pairs}
        return {"integer": int, "number": float}.get(kind, str)(text)
    except ValueError as error:
        raise BadSettings(f"{text[:40]!r} is no number", name) from error


def texts(settings: Settings, names: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The texts that a form shows for settings; those of ``names``, or of the knobs that differ
    from their defaults."""
    shown = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name in names if names is not None else value != field.default:
            shown[name] = _texts(value)
    return shown


def _texts(value: Any) -> list[str]:
    if isinstance(value, tuple | list):
        return [str(part) for part in value]
    if isinstance(value, Mapping):
        return ["\n".join(f"{group}={_exact(weight)}" for group, weight in value.items())]
    if isinstance(value, bool):
        return ["on" if value else "off"]
    return ["" if value is None else _exact(value) if isinstance(value, float) else str(value)]


def _exact(value: float) -> str:
    """A number as short as it can be, that is read back as the same."""
    return repr(value).removesuffix(".0")


def query(settings: Settings, **more: str) -> str:
    """A query string with ``more``, and the knobs that differ from their defaults."""
    return urlencode({**more, **texts(settings)}, doseq=True)


def fields(graph: str, settings: Settings, prefix: str, bad: str = "") -> Html:
    """All knobs of a graph, under folded headings; those that differ from their defaults, and the
    ``bad`` one, are unfolded."""
    groups: dict[str, list[str]] = {}
    for name, about in schema(graph).items():
        first = about.get("langgraph_nodes", [""])[0]
        groups.setdefault(TITLES.get(first, "More"), []).append(name)
    order = sorted(groups, key=lambda title: title == "Limits")
    changed = texts(settings)
    return joined(
        folded(
            joined(
                [
                    title,
                    _count(sum(name in changed for name in groups[title])),
                    element("span", ", ".join(map(in_words, groups[title])), class_="help names"),
                ]
            ),
            element(
                "div",
                *(
                    field(name, schema(graph)[name], settings, prefix, is_bad=name == bad)
                    for name in groups[title]
                ),
                class_="knobs",
            ),
            is_open=any(name in changed or name == bad for name in groups[title]),
        )
        for title in order
    )


def _count(changed: int) -> Html | None:
    return element("span", f"{changed} changed", class_="badge chosen") if changed else None


def field(
    name: str, about: Mapping[str, Any], settings: Settings, prefix: str = "", is_bad: bool = False
) -> Html:
    """A knob: label, control and help."""
    control, key = about["x_oap_ui_config"], f"knob-{prefix}{name}"
    shown = _texts(getattr(settings, name))
    given = {
        "id": key,
        "name": prefix + name,
        "aria_describedby": f"{key}-help",
        "aria_invalid": "true" if is_bad else None,
    }
    options = about.get("items", {}).get("enum")
    told = element("p", about["description"], id=f"{key}-help", class_="help")
    label = element("label", in_words(name), for_=key)
    match control["type"]:
        case "boolean":
            box = element("input", type="checkbox", value="on", checked=shown == ["on"], **given)
            off = element("input", type="hidden", name=prefix + name, value="off")
            return element("div", off, box, label, told, class_="knob switch")
        case "select":
            unset = [{"label": "not set", "value": ""}] if about["default"] is None else []
            choices = [
                element(
                    "option",
                    option["label"],
                    value=option["value"],
                    selected=shown == [option["value"]],
                )
                for option in unset + control["options"]
            ]
            return element("div", label, element("select", *choices, **given), told, class_="knob")
        case "slider" | "number":
            step = "1" if control["step"] == 1 else "any"
            bounds = {key: control.get(key) for key in ("min", "max")}
            empty = "none" if about["default"] is None else None
            number = element(
                "input",
                type="number",
                inputmode="decimal",
                step=step,
                value=shown[0],
                placeholder=empty,
                **bounds,
                **given,
            )
            return element("div", label, number, told, class_="knob")
        case "json" if options:
            return tokens(name, options, shown, prefix, told)
    area = element("textarea", "\n".join(shown), rows=2, **given)
    return element("div", label, area, told, class_="knob wide")


def tokens(
    name: str, options: Sequence[str], chosen: Sequence[str], prefix: str = "", told: object = None
) -> Html:
    """A choice of tokens."""
    boxes = (
        element(
            "label",
            element(
                "input",
                type="checkbox",
                name=prefix + name,
                value=option,
                checked=option in chosen,
            ),
            element("span", option.strip("[]")),
            class_="token-box",
        )
        for option in options
    )
    return element(
        "fieldset", element("legend", in_words(name)), *boxes, told, class_="knob wide tokens"
    )


LABELS = {
    "weight_isrel": "Weight of ISREL",
    "weight_issup": "Weight of ISSUP",
    "weight_isuse": "Weight of ISUSE",
    "weight_sequence": "Weight of p(y)",
    "max_model_calls": "Most model calls",
    "max_tokens": "Most tokens",
    "upper": "Upper threshold",
    "lower": "Lower threshold",
}


def in_words(name: str) -> str:
    """The name of a knob, for people."""
    return LABELS.get(name) or name.replace("_", " ").capitalize()


def told(value: Any) -> str:
    """The value of a knob, for people."""
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "on", False: "off"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return _exact(value) if isinstance(value, float) else str(value)


def refused(fault: BadSettings) -> str:
    """Why a form is refused, with the knob as people see it."""
    reason = one_line(fault.reason, 300)
    return f"{in_words(fault.knob)}: {reason}" if fault.knob else reason
