"""The settings of one turn of each graph: a pydantic model a graph, passed as LangGraph context.

Factory defaults and a run's context are merged by the fields that were set.
"""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.reflection import VALUES, Weights
from selfcorrect_rag.thresholds import Thresholds

MAX_CHARACTERS = 1_000_000
"""Maximum characters of any one text, whatever the settings allow."""

PROTOCOL = "x-selfcorrect-protocol"
"""A key of a run's ``configurable``: the protocol of the LangGraph server, ``mcp`` or ``a2a``, that
began it. Their replies are plain text, so they list their sources."""

Mode = Literal["icl", "ft", "instruct", "no_retrieval", "ralm", "few_shot"]
"""How InstructRAG's model is prompted: with demonstrations, fine-tuned, by instruction alone; or a
baseline of section 3.1: without retrieval, in-context RALM, few-shot with instruction."""
if TYPE_CHECKING:
    CritiqueToken = str
else:
    CritiqueToken = Literal[tuple(token for values in VALUES.values() for token in values)]


def knob(default: Any, *nodes: str, ge: float | None = None, le: float | None = None) -> Any:
    """Declare a setting, which its docstring describes; LangGraph Studio shows it on ``nodes``."""
    extra: Any = {"langgraph_nodes": list(nodes)} if nodes else None
    return Field(default, json_schema_extra=extra, ge=ge, le=le)


class Settings(BaseModel):
    """The settings of all graphs; an unknown setting or a bad value raises `BadSettings`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    graph: ClassVar[str] = "every graph"
    """The graph's name in error messages."""

    max_model_calls: int | None = knob(2_000, ge=1, le=100_000)
    """Maximum model calls for a question; the best answer that they allow is given. The default is
    many times what the other defaults can cost; null disables the limit."""
    max_tokens: int | None = knob(None, ge=1, le=100_000_000)
    """Maximum tokens read and written for a question; beyond it only the answer is written."""
    question_characters: int = knob(8_000, ge=100, le=MAX_CHARACTERS)
    """Maximum characters of a question; the rest is cut."""
    document_characters: int = knob(20_000, ge=100, le=MAX_CHARACTERS)
    """Maximum characters of a document or of a web page, and of its metadata; the rest is cut."""
    given_documents: int = knob(100, ge=1, le=10_000)
    """Maximum documents that the caller may give; the rest is left out."""
    score_above: float | None = knob(None)
    """State an answer only if its ``score`` is above this, and refuse it otherwise, or if it has no
    score; null states every answer. `selfcorrect-rag calibrate --max-wrong` chooses it."""

    def __init__(self, **knobs: Any) -> None:
        """Set the given settings; the rest keep their defaults."""
        try:
            super().__init__(**knobs)
        except ValidationError as error:
            first = error.errors()[0]
            name, reason = str(first["loc"][0]), first["msg"]
            if first["type"] == "extra_forbidden":
                known = list(type(self).model_fields)
                near = difflib.get_close_matches(name, known, n=1) or [f"one of {', '.join(known)}"]
                reason = f"{self.graph} has no such setting; did you mean {near[0]}?"
            raise BadSettings(reason, name) from error

    @classmethod
    def of(cls, given: object) -> Self:
        """Read settings from a factory's or a node's argument; None is the defaults."""
        if isinstance(given, cls):  # Self-CRAG's, for one of CRAG's nodes, too
            return given
        return cls(**given) if isinstance(given, Mapping) else cls().merged(given, shared=False)

    def merged(self, context: object, *, shared: bool = True) -> Self:
        """Return these settings, overridden by the fields that a run's context sets.

        The context is None, a dict, or settings of this graph or of one composed of it; a
        ``shared`` one may be a parent graph's, also an object, whose other names are ignored.
        """
        cls, taken = type(self), dict[str, Any]()
        given = context if isinstance(context, Settings) else None
        if given and (isinstance(given, cls) or isinstance(self, type(given))):
            taken = {name: getattr(given, name) for name in given.model_fields_set}
        elif isinstance(context, Mapping):
            taken = dict(context)
        elif given or not (context is None or shared):
            graph = given.graph if given else "none of these graphs"
            raise BadSettings(
                f"{type(context).__name__} is for {graph}: give {cls.__name__}, or a dict of fields"
            )
        else:
            held = {name: getattr(context, name, None) for name in cls.model_fields}
            taken = {n: v for n, v in held.items() if v is not None and not callable(v)}
        if taken := {name: value for name, value in taken.items() if name in cls.model_fields}:
            return cls(**{**self.model_dump(exclude_unset=True), **taken})
        return self


class SelfRAGSettings(Settings):
    """Self-RAG's inference-time settings; defaults are section 4.3's where given there."""

    graph = "Self-RAG"

    mode: Literal["adaptive", "always", "never"] = knob(
        "adaptive", "decide_retrieval", "generate_and_critique"
    )
    """When to retrieve: when the model wants to, always, or never."""
    threshold: float | None = knob(0.2, "decide_retrieval", "generate_and_critique", ge=0, le=1)
    """Retrieve when P(Retrieval) over P(Retrieval) + P(No Retrieval) exceeds this; null retrieves
    when [Retrieval] is the likelier."""
    passages: int = knob(5, "retrieve", ge=1, le=100)
    """Passages read at each segment (the paper: 5, for open questions 10)."""
    beam_width: int = knob(2, "beam_select", ge=1, le=32)
    """Partial answers kept after each segment."""
    form: Literal["long", "short"] = knob("long", "generate_and_critique")
    """long: an answer of several segments, each with its own evidence; short: one whole answer for
    each passage, written past retrieval tokens to its end (the paper's form for closed sets)."""
    depth: int = knob(7, "beam_select", ge=1, le=64)
    """Maximum segments of an answer in long form."""
    segment_tokens: int = knob(100, "generate_and_critique", ge=1, le=4096)
    """Maximum tokens of a segment, or of an answer in short form (the paper: 100; 50 for closed
    sets; 200 for bios)."""
    weight_isrel: float = knob(1.0, "generate_and_critique", ge=0, le=100)
    """Weight of the passage being relevant."""
    weight_issup: float = knob(1.0, "generate_and_critique", ge=0, le=100)
    """Weight of the segment being supported by its passage."""
    weight_isuse: float = knob(0.5, "generate_and_critique", ge=0, le=100)
    """Weight of the answer being useful."""
    weight_sequence: float = knob(1.0, "generate_and_critique", ge=0, le=100)
    """Weight of the segment's own probability, p(y|x,d) of Eq. 3."""
    path_rule: Literal["mean", "sum", "product"] = knob("mean", "generate_and_critique")
    """How segment scores make a path's score; product is the official code's."""
    hard_constraints: tuple[CritiqueToken, ...] = knob((), "generate_and_critique")
    """Critique tokens that drop a candidate, e.g. [No support / Contradictory]."""
    prune_below: float | None = knob(None, "generate_and_critique", ge=0, le=1)
    """Drop a passage whose ISREL score is below this before its segment is decoded; the best
    passage always stays."""
    closed_set: bool = knob(False, "beam_select")
    """Sum scores by answer and choose the best answer, in short form."""
    options: tuple[str, ...] = knob((), "beam_select")
    """The answers allowed in a closed set; implies closed_set."""
    instruction: str | None = knob(None, "decide_retrieval", "generate_and_critique")
    """Task instruction before the question (prompts.self_rag.TASK_INSTRUCTIONS: the paper's)."""

    @property
    def weights(self) -> Weights:
        """The weights of Eq. 3-4."""
        return Weights(
            self.weight_sequence, self.weight_isrel, self.weight_issup, self.weight_isuse
        )

    @property
    def closed(self) -> bool:
        """Whether scores are summed by answer (section 3.3, closed-set tasks)."""
        return self.closed_set or bool(self.options)

    @property
    def short(self) -> bool:
        """Whether each candidate is a whole answer."""
        return self.form == "short" or self.closed


class CRAGSettings(Settings):
    """CRAG's settings; defaults are appendix B.2's where given there."""

    graph = "CRAG"

    passages: int = knob(5, "retrieve", ge=1, le=100)
    """Documents retrieved and graded (section 4.2: generally 10); five as in the other graphs."""
    upper: float | None = knob(None, "grade_documents", ge=-1, le=1)
    """Correct when a document scores above this; null takes the evaluator's own."""
    lower: float | None = knob(None, "grade_documents", ge=-1, le=1)
    """Incorrect when all score below this; null takes the evaluator's own."""
    without_action: Literal["none", "correct", "incorrect", "ambiguous"] = knob(
        "none", "grade_documents"
    )
    """Leave an action out, as in Table 2: correct and incorrect become ambiguous; without ambiguous
    the upper threshold alone decides."""
    decomposition: Literal["sentences", "windows", "passage"] = knob(
        "sentences", "refine_strips", "select_web_strips"
    )
    """Size of a strip: a few sentences, fifty words, or the whole document."""
    strips: int = knob(5, "refine_strips", "select_web_strips", ge=1, le=100)
    """Maximum strips kept of all retrieved documents, and as many of the web's."""
    scored_strips: int = knob(100, "refine_strips", "select_web_strips", ge=1, le=10_000)
    """Maximum strips that the evaluator scores of all retrieved documents, and as many of the
    web's; the first of each document."""
    strip_threshold: float = knob(-0.5, "refine_strips", "select_web_strips", ge=-1, le=1)
    """Strips that score no higher are dropped."""
    refine: bool = knob(True, "refine_strips")
    """Refine documents into strips (off: Table 3, without refinement)."""
    rewrite: bool = knob(True, "rewrite_query")
    """Rewrite the question into keywords (off: Table 3, without rewriting)."""
    select: bool = knob(True, "select_web_strips")
    """Select strips of the web pages (off: Table 3, without selection)."""
    web_results: int = knob(5, "web_search", ge=1, le=50)
    """Pages taken from a web search."""
    approve_search: bool = knob(False, "web_search")
    """Pause before a web search until a person says yes, no, or another query. Once a turn has
    begun with it, no later context takes it back."""
    instruction: str | None = knob(None, "generate")
    """Task instruction put before the question."""

    def thresholds(self, own: Thresholds) -> Thresholds:
        """Return a run's thresholds; those not set are the evaluator's ``own``."""
        upper = own.upper if self.upper is None else self.upper
        lower = own.lower if self.lower is None else self.lower
        return Thresholds(upper=upper, lower=lower)


class SelfCRAGSettings(SelfRAGSettings, CRAGSettings):
    """The settings of both graphs."""

    graph = "Self-CRAG"


class InstructRAGSettings(Settings):
    """InstructRAG's settings; defaults are appendix B's where given there."""

    graph = "InstructRAG"

    prompt_mode: Mode | None = knob(None, "read_question")
    """How the model is asked: InstructRAG by demonstrations (icl), fine-tuned (ft) or by
    instruction alone (instruct); baselines are no_retrieval, ralm and few_shot. Null is icl if
    demonstrations were given, else instruct."""
    passages: int = knob(5, "retrieve", ge=1, le=100)
    """Documents retrieved and shown (the paper: 5, for 2WikiMultiHopQA 10)."""
    order: Literal["best_last", "best_first"] = knob("best_last", "write_rationale")
    """Place of the best document: next to the question, as in the official code, or first."""
    max_demonstrations: int = knob(2, "choose_demonstrations", ge=1, le=32)
    """Most demonstrations shown (with icl and few_shot)."""
    selection: Literal["random", "fixed"] = knob("random", "choose_demonstrations")
    """How they are chosen: drawn anew for each question, or the first ones."""
    seed: int = knob(0, "choose_demonstrations")
    """Seed of random selection; the same seed and question draw the same demonstrations."""
    instruction: str | None = knob(None, "write_rationale")
    """Task-specific instruction put after the question (the paper's are in
    prompts.instruct_rag.TASK_INSTRUCTIONS); prompt_mode ft takes none."""
    rationale_tokens: int = knob(256, "write_rationale", ge=1, le=4096)
    """Maximum tokens of a ReflectionLLM's rationale, reserved in the context; others set theirs."""
    context_tokens: int | None = knob(None, "write_rationale", ge=1)
    """Tokens of prompt and rationale together; null asks the model. Documents that do not fit are
    dropped, the weakest first."""


GRAPHS: dict[str, type[Settings]] = {
    "self_rag": SelfRAGSettings,
    "crag": CRAGSettings,
    "self_crag": SelfCRAGSettings,
    "instruct_rag": InstructRAGSettings,
}
"""The graphs by name, with their settings."""
