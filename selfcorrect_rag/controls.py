"""Settings as the controls of an editor, such as that of assistants in LangGraph Studio."""

from typing import Any


def add_controls(schema: dict[str, Any]) -> None:
    """Give each knob of a settings schema the control that assistant editors show for it.

    All that a control says is in the schema already: bounds, choices, meaning and default.
    """
    for knob in schema["properties"].values():
        forms = [form for form in knob.get("anyOf", [knob]) if form.get("type") != "null"]
        knob["x_oap_ui_config"] = {**_control(forms[0]), "description": knob["description"]}
        if knob.get("default") is not None:
            knob["x_oap_ui_config"]["default"] = knob["default"]


def _control(form: dict[str, Any]) -> dict[str, Any]:
    if "enum" in form:
        options = [{"label": choice.replace("_", " "), "value": choice} for choice in form["enum"]]
        return {"type": "select", "options": options}
    if form["type"] in ("integer", "number"):
        bounds = {"minimum": "min", "maximum": "max"}
        known = {short: form[name] for name, short in bounds.items() if name in form}
        step = 1 if form["type"] == "integer" else 0.01
        return {"type": "slider" if len(known) == 2 else "number", **known, "step": step}
    return {"type": {"boolean": "boolean", "array": "json"}.get(form["type"], "textarea")}
