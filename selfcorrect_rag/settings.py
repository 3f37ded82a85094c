"""The knobs of one run of each graph, passed as LangGraph context, and how editors show them."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.reflection import GROUPS, Group, Weights, registered_groups
from selfcorrect_rag.state.instruct_rag import Mode
from selfcorrect_rag.state.intake import LONGEST_TEXT
from selfcorrect_rag.thresholds import Thresholds


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
        step = 1 if form["type"] == "integer" else 0.01
        return {"type": "slider" if len(known) == 2 else "number", **known, "step": step}
    kinds = {"boolean": "boolean", "array": "json", "object": "json"}
    return {"type": kinds.get(form["type"], "textarea")}


def knob(default: Any, description: str, *nodes: str, ge: Any = None, le: Any = None) -> Any:
    """A settings field; LangGraph Studio shows it on ``nodes``, if any."""
    on_nodes: Any = {"langgraph_nodes": list(nodes)} if nodes else None
    return Field(default, description=description, json_schema_extra=on_nodes, ge=ge, le=le)


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
        "many times what the other defaults can cost; none (null in JSON) is no limit.",
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


class SelfRAGSettings(Settings):
    """Self-RAG's inference-time knobs; defaults are those of section 4.3 where given there."""

    graph = "Self-RAG"

    mode: Literal["adaptive", "always", "never"] = knob(
        "adaptive",
        "When to retrieve: when the model wants to, always, or never.",
        "decide_retrieval",
        "generate_and_critique",
    )
    threshold: float | None = knob(
        0.2,
        "Retrieve when P(Retrieval) over P(Retrieval) + P(No Retrieval) exceeds this; null "
        "retrieves when [Retrieval] is the likelier.",
        "decide_retrieval",
        "generate_and_critique",
        ge=0,
        le=1,
    )
    passages: int = knob(
        5,
        "Passages read at each segment (the paper: 5, for open questions 10).",
        "retrieve",
        ge=1,
        le=100,
    )
    beam_width: int = knob(
        2, "Partial answers kept after each segment.", "beam_select", ge=1, le=32
    )
    form: Literal["long", "short"] = knob(
        "long",
        "long: an answer of several segments, each with its own evidence; short: one whole answer"
        " for each passage, written past retrieval tokens to its end (the paper's short form, which"
        " closed sets take).",
        "generate_and_critique",
    )
    depth: int = knob(7, "Most segments of an answer in long form.", "beam_select", ge=1, le=64)
    segment_tokens: int = knob(
        100,
        "Most tokens of a segment, or of an answer in short form (the paper: 100; 50 for closed "
        "sets; 200 for bios).",
        "decide_retrieval",
        "generate_and_critique",
        "beam_select",
        "write_answer",
        ge=1,
        le=4096,
    )
    weight_isrel: float = knob(
        1.0,
        "Weight of the passage being relevant.",
        "generate_and_critique",
        "beam_select",
        ge=0,
        le=100,
    )
    weight_issup: float = knob(
        1.0,
        "Weight of the segment being supported by its passage.",
        "generate_and_critique",
        "beam_select",
        ge=0,
        le=100,
    )
    weight_isuse: float = knob(
        0.5,
        "Weight of the answer being useful.",
        "generate_and_critique",
        "beam_select",
        ge=0,
        le=100,
    )
    group_weights: dict[str, float] = knob(
        {},
        "Weights of registered reflection groups, 0 to 100, by name; the others keep their own.",
        "generate_and_critique",
        "beam_select",
    )
    weight_sequence: float = knob(
        1.0,
        "Weight of the segment's own probability, p(y|x,d) of Eq. 3.",
        "generate_and_critique",
        "beam_select",
        ge=0,
        le=100,
    )
    path_rule: Literal["mean", "sum", "product"] = knob(
        "mean",
        "How segment scores make a path's score; product is the official code's.",
        "generate_and_critique",
        "beam_select",
    )
    hard_constraints: tuple[str, ...] = knob(
        (),
        "Critique tokens that drop a candidate, e.g. [No support / Contradictory].",
        "generate_and_critique",
    )
    prune_below: float | None = knob(
        None,
        "Drop a passage whose ISREL score is below this before its segment is decoded; the best"
        " passage always stays.",
        "generate_and_critique",
        ge=0,
        le=1,
    )
    closed_set: bool = knob(
        False,
        "Sum scores by answer and choose the best answer, in short form.",
        "generate_and_critique",
        "beam_select",
        "write_answer",
    )
    options: tuple[str, ...] = knob(
        (),
        "The answers allowed in a closed set; implies closed_set.",
        "generate_and_critique",
        "beam_select",
        "write_answer",
    )
    instruction: str | None = knob(
        None,
        "Task instruction put before the question (the paper's are in prompts.TASK_INSTRUCTIONS).",
        "decide_retrieval",
        "generate_and_critique",
    )

    def model_post_init(self, context: Any, /) -> None:
        """Refuse constraints that are not critique tokens, and weights of unknown groups."""
        known = [t for group in GROUPS.values() if group.values for t in group.tokens]
        if unknown := [token for token in self.hard_constraints if token not in known]:
            raise ValueError(f"hard constraints {unknown} are none of {known}")
        own = [group.name for group in registered_groups()]
        if unknown := [name for name in self.group_weights if name not in own]:
            raise ValueError(
                f"group weights {unknown} name no registered group ({own}); the paper's have "
                "weight_isrel, weight_issup and weight_isuse"
            )
        if not all(0 <= weight <= 100 for weight in self.group_weights.values()):
            raise ValueError(f"group weights are 0 to 100, not {self.group_weights}")

    @property
    def weights(self) -> Weights:
        """The weights of Eq. 3-4."""
        paper = {
            Group.ISREL.value: self.weight_isrel,
            Group.ISSUP.value: self.weight_issup,
            Group.ISUSE.value: self.weight_isuse,
        }
        return Weights(self.weight_sequence, {**paper, **self.group_weights})

    @property
    def closed(self) -> bool:
        """Whether scores are summed by answer (section 3.3, closed-set tasks)."""
        return self.closed_set or bool(self.options)

    @property
    def short(self) -> bool:
        """Whether each candidate is a whole answer."""
        return self.form == "short" or self.closed


class CRAGSettings(Settings):
    """CRAG's knobs; defaults are those of appendix B.2 where given there."""

    graph = "CRAG"

    passages: int = knob(
        10, "Documents retrieved and graded (section 4.2: generally 10).", "retrieve", ge=1, le=100
    )
    upper: float | None = knob(
        None,
        "Correct when a document scores above this; null takes the evaluator's own.",
        "grade_documents",
        ge=-1,
        le=1,
    )
    lower: float | None = knob(
        None,
        "Incorrect when all score below this; null takes the evaluator's own.",
        "grade_documents",
        ge=-1,
        le=1,
    )
    without_action: Literal["none", "correct", "incorrect", "ambiguous"] = knob(
        "none",
        "Leave an action out, as in Table 2: correct and incorrect become ambiguous; without "
        "ambiguous the upper threshold alone decides.",
        "grade_documents",
    )
    decomposition: Literal["sentences", "windows", "passage"] = knob(
        "sentences",
        "Size of a strip: a few sentences, fifty words, or the whole document.",
        "refine_strips",
        "select_web_strips",
    )
    strips: int = knob(
        5,
        "Most strips kept of all retrieved documents, and as many of the web's.",
        "refine_strips",
        "select_web_strips",
        ge=1,
        le=100,
    )
    scored_strips: int = knob(
        100,
        "Most strips that the evaluator scores of all retrieved documents, and as many of the "
        "web's; the first of each document.",
        "refine_strips",
        "select_web_strips",
        ge=1,
        le=10_000,
    )
    strip_threshold: float = knob(
        -0.5,
        "Strips that score no higher are dropped.",
        "refine_strips",
        "select_web_strips",
        ge=-1,
        le=1,
    )
    refine: bool = knob(
        True, "Refine documents into strips (off: Table 3, without refinement).", "refine_strips"
    )
    rewrite: bool = knob(
        True,
        "Rewrite the question into keywords (off: Table 3, without rewriting).",
        "rewrite_query",
    )
    select: bool = knob(
        True,
        "Select strips of the web pages (off: Table 3, without selection).",
        "select_web_strips",
    )
    web_results: int = knob(5, "Pages taken from a web search.", "web_search", ge=1, le=50)
    approve_search: bool = knob(
        False,
        "Pause before a web search until a person says yes, no, or another query. Once a turn has "
        "begun with it, no later context takes it back.",
        "web_search",
    )
    instruction: str | None = knob(None, "Task instruction put before the question.", "generate")

    def thresholds(self, own: Thresholds) -> Thresholds:
        """A run's thresholds; those not set are the evaluator's ``own``.

        Raises:
            BadSettings: they are invalid together, such as a lower one above the upper.
        """
        upper = own.upper if self.upper is None else self.upper
        lower = own.lower if self.lower is None else self.lower
        try:
            return Thresholds(upper=upper, lower=lower)
        except ValueError as error:
            raise BadSettings(str(error)) from error


class SelfCRAGSettings(SelfRAGSettings, CRAGSettings):
    """The knobs of both graphs, and how CRAG's knowledge becomes Self-RAG's passages."""

    graph = "Self-CRAG"

    passages: int = knob(
        10, "Documents retrieved and graded (section 4.2: generally 10).", "retrieve", ge=1, le=100
    )
    contexts: Literal["action", "all"] = knob(
        "action",
        "Passages that Self-RAG reads: the knowledge that the action asks for, document by "
        "document, or, as in the official code, internal, external and combined knowledge of "
        "every question as three passages.",
        "grade_documents",
        "recompose_knowledge",
    )


class InstructRAGSettings(Settings):
    """InstructRAG's knobs; defaults are those of appendix B where given there."""

    graph = "InstructRAG"

    mode: Mode | None = knob(
        None,
        "How the model is asked: InstructRAG by demonstrations (icl), fine-tuned (ft) or by "
        "instruction alone (instruct); baselines are no_retrieval, ralm and few_shot. Null is "
        "icl where demonstrations were given, else instruct.",
        "read_question",
    )
    passages: int = knob(
        5,
        "Documents retrieved and shown (the paper: 5, for 2WikiMultiHopQA 10).",
        "retrieve",
        ge=1,
        le=100,
    )
    order: Literal["best_last", "best_first"] = knob(
        "best_last",
        "Where the best document stands: next to the question, as in the official code, or first.",
        "write_rationale",
    )
    demonstrations: int = knob(
        2, "Demonstrations shown (modes icl and few_shot).", "choose_demonstrations", ge=1, le=32
    )
    selection: Literal["random", "fixed", "nearest"] = knob(
        "random",
        "Which demonstrations: drawn anew for each question, the first ones, or those whose "
        "questions are nearest by embedding.",
        "choose_demonstrations",
    )
    seed: int = knob(
        0,
        "Seed of random selection; the same seed and question draw the same demonstrations.",
        "choose_demonstrations",
    )
    instruction: str | None = knob(
        None,
        "Task-specific instruction put after the question (the paper's are in "
        "instruct_prompts.TASK_INSTRUCTIONS); mode ft takes none.",
        "write_rationale",
    )
    rationale_tokens: int = knob(
        256,
        "Most tokens that a ReflectionLLM writes, reserved in the context; any other model has "
        "its own limit.",
        "write_rationale",
        ge=1,
        le=4096,
    )
    context_tokens: int | None = knob(
        None,
        "Tokens of prompt and rationale together; null asks the model. Documents that do not "
        "fit are dropped, the weakest first.",
        "write_rationale",
        ge=1,
    )


class Context(TypedDict, total=False):
    """Some knobs of all graphs, as a dict: those of :class:`Settings`."""

    max_model_calls: int | None
    max_tokens: int | None
    question_characters: int
    document_characters: int
    given_documents: int
    step_timeout: float | None


class SelfRAGContext(Context, total=False):
    """Some knobs of Self-RAG, as a dict: those of :class:`SelfRAGSettings`."""

    mode: Literal["adaptive", "always", "never"]
    threshold: float | None
    passages: int
    beam_width: int
    form: Literal["long", "short"]
    depth: int
    segment_tokens: int
    weight_isrel: float
    weight_issup: float
    weight_isuse: float
    group_weights: Mapping[str, float]
    weight_sequence: float
    path_rule: Literal["mean", "sum", "product"]
    hard_constraints: Sequence[str]
    prune_below: float | None
    closed_set: bool
    options: Sequence[str]
    instruction: str | None


class CRAGContext(Context, total=False):
    """Some knobs of CRAG, as a dict: those of :class:`CRAGSettings`."""

    passages: int
    upper: float | None
    lower: float | None
    without_action: Literal["none", "correct", "incorrect", "ambiguous"]
    decomposition: Literal["sentences", "windows", "passage"]
    strips: int
    scored_strips: int
    strip_threshold: float
    refine: bool
    rewrite: bool
    select: bool
    web_results: int
    approve_search: bool
    instruction: str | None


class SelfCRAGContext(SelfRAGContext, CRAGContext, total=False):
    """Some knobs of Self-CRAG, as a dict: those of :class:`SelfCRAGSettings`."""

    contexts: Literal["action", "all"]


class InstructRAGContext(Context, total=False):
    """Some knobs of InstructRAG, as a dict: those of :class:`InstructRAGSettings`."""

    mode: Mode | None
    passages: int
    order: Literal["best_last", "best_first"]
    demonstrations: int
    selection: Literal["random", "fixed", "nearest"]
    seed: int
    instruction: str | None
    rationale_tokens: int
    context_tokens: int | None
