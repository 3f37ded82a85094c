"""What the knobs of all graphs share: merging a run's context, refusing what no graph knows, and
controls for assistant editors."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from selfcorrect_rag.errors import BadSettings

LONGEST_TEXT = 1_000_000
"""Maximum characters of any one text, whatever the settings allow."""
WIDEST_SLIDER = 100
"""The widest range of a knob that is set by a slider; for wider ones a number is typed."""


def add_controls(schema: dict[str, Any]) -> None:
    """Add to each knob of a settings schema the control for assistant editors
    (``x_oap_ui_config``).

    A control is derived from the schema: bounds, choices, description and default.
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
        is_short = len(known) == 2 and known["max"] - known["min"] <= WIDEST_SLIDER
        step = 1 if form["type"] == "integer" else 0.01
        return {"type": "slider" if is_short else "number", **known, "step": step}
    kinds = {"boolean": "boolean", "array": "json", "object": "json"}
    return {"type": kinds.get(form["type"], "textarea")}


def knob(
    default: Any,
    description: str,
    *nodes: str,
    ge: Any = None,
    le: Any = None,
    choices: Callable[[], list[str]] | None = None,
) -> Any:
    """A settings field; LangGraph Studio shows it on ``nodes``, if any.

    ``choices`` gives the texts that a list may hold, when the schema is asked for.
    """

    def extend(schema: dict[str, Any]) -> None:
        if nodes:
            schema["langgraph_nodes"] = list(nodes)
        if choices:
            schema["items"]["enum"] = choices()
            schema["uniqueItems"] = True

    return Field(default, description=description, json_schema_extra=extend, ge=ge, le=le)


class Settings(BaseModel):
    """The knobs of all graphs.

    Raises:
        BadSettings: an unknown knob, or a value out of bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=add_controls)

    graph: ClassVar[str] = "every graph"
    """The graph's name in error messages."""

    max_model_calls: int | None = knob(
        2_000,
        "Most model calls for a question; the best answer that they allow is given. The default is "
        "many times what the other defaults can cost; null is no limit.",
        ge=1,
        le=100_000,
    )
    max_tokens: int | None = knob(
        None,
        "Tokens read and written for a question after which no step begins but the answer itself.",
        ge=1,
        le=100_000_000,
    )
    question_characters: int = knob(
        8_000, "Most characters of a question; the rest is cut.", ge=100, le=LONGEST_TEXT
    )
    document_characters: int = knob(
        20_000,
        "Most characters of a document or of a web page, and of its metadata; the rest is cut.",
        ge=100,
        le=LONGEST_TEXT,
    )
    given_documents: int = knob(
        100, "Most documents that the caller may give; the rest is left out.", ge=1, le=10_000
    )
    step_timeout: float | None = knob(
        None,
        "Seconds that a step may take; one that takes longer is given up as a fault "
        "(docs/faults.md).",
        ge=0.001,
        le=86_400,
    )
    sufficient_context: float | None = knob(
        None,
        "Refuse unless the model says, with at least this probability, that what was found is "
        "enough to answer: one model call before the answer. Null does not ask.",
        ge=0,
        le=1,
    )

    def __init__(self, **knobs: Any) -> None:
        """Set the given knobs; the rest keep their defaults."""
        self._refuse_unknown(knobs)
        try:
            super().__init__(**knobs)
        except ValidationError as error:
            first = error.errors()[0]
            reason = first["msg"].removeprefix("Value error, ")
            name = str(first["loc"][0]) if first["loc"] else ""
            raise BadSettings(reason, name) from error

    @classmethod
    def of(cls, given: object) -> Self:
        """This graph's settings from a factory's argument; None is the defaults.

        Raises:
            BadSettings: they are another graph's settings; see :meth:`merged`.
        """
        return cls(**cls._taken(given, shared=False))

    @classmethod
    def of_step(cls, given: object) -> Self:
        """A node's settings from its argument; a subclass's settings are kept whole."""
        return given if isinstance(given, cls) else cls.of(given)

    def merged(self, context: object) -> Self:
        """These settings, overridden by a run's context.

        Args:
            context: None, a dict of knobs, or settings of this graph or of one composed of it
                (Self-CRAG's are CRAG's and Self-RAG's too). It may be a parent graph's context:
                other objects and unknown keys are ignored.

        Raises:
            BadSettings: the context is settings of another graph, or a value is out of bounds.
        """
        taken = self._taken(context, shared=True)
        if not taken:
            return self
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**own, **taken})

    @classmethod
    def _taken(cls, given: object, *, shared: bool) -> dict[str, Any]:
        """The knobs of this graph that ``given`` sets; if ``shared``, other keys are ignored."""
        if isinstance(given, Settings):
            if not (isinstance(given, cls) or issubclass(cls, type(given))):
                raise BadSettings(
                    f"{type(given).__name__} is for {given.graph}, and this is {cls.graph}: give "
                    f"{cls.__name__}, or a dict of some of its knobs"
                )
            knobs = {name: getattr(given, name) for name in given.model_fields_set}
            foreign = _names_of_graphs(type(given))
        elif isinstance(given, Mapping):
            knobs, foreign = dict(given), set(given)
        elif given is None or shared:
            return {}
        else:
            raise BadSettings(
                f"{type(given).__name__} holds no settings of {cls.graph}: give {cls.__name__}, or "
                "a dict of some of its knobs"
            )
        if not shared:
            cls._refuse_unknown(name for name in knobs if name in foreign)
        return {name: value for name, value in knobs.items() if name in cls.model_fields}

    @classmethod
    def _refuse_unknown(cls, names: Iterable[str]) -> None:
        for name in names:
            if name not in cls.model_fields:
                known = list(cls.model_fields)
                near = difflib.get_close_matches(str(name), known, n=1)
                meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                raise BadSettings(f"{cls.graph} has no such knob; {meant}", str(name))


def _names_of_graphs(kind: type[Settings]) -> set[str]:
    """The knobs of ``kind`` that belong to our graphs, without those that a user's subclass
    adds."""
    ours = (c for c in kind.__mro__ if issubclass(c, Settings) and "graph" in vars(c))
    return {name for c in ours for name in c.model_fields}


class Context(TypedDict, total=False):
    """Some knobs of all graphs, as a dict: those of :class:`Settings`."""

    max_model_calls: int | None
    max_tokens: int | None
    question_characters: int
    document_characters: int
    given_documents: int
    step_timeout: float | None
    sufficient_context: float | None
