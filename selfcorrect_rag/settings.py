"""The knobs of one run, passed as LangGraph context."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from selfcorrect_rag.controls import add_controls
from selfcorrect_rag.reflection import TOKENS, Group, Weights
from selfcorrect_rag.thresholds import Thresholds

HARD_CONSTRAINTS = tuple(
    token for group in (Group.ISREL, Group.ISSUP, Group.ISUSE) for token in TOKENS[group]
)


def on_nodes(*nodes: str) -> dict[str, Any]:
    """Tells LangGraph Studio which nodes a knob belongs to."""
    return {"langgraph_nodes": list(nodes)}


class Settings(BaseModel):
    """What the knobs of all graphs share."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=add_controls)

    max_model_calls: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Most model calls for a question; the best answer that they allow is given.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Tokens read and written for a question after which no step begins but the "
        "answer itself.",
    )

    @property
    def is_limited(self) -> bool:
        """Whether something bounds what a question costs."""
        return self.max_model_calls is not None or self.max_tokens is not None

    def merged(self, context: object) -> Self:
        """These settings with what a run's context sets on top.

        A context may be None, a dict (perhaps a parent graph's, with keys of its own), settings of
        this kind, or somebody else's object, which says nothing about us.
        """
        if isinstance(context, type(self)):
            own_names = context.model_fields_set & type(self).model_fields.keys()
            given = {name: getattr(context, name) for name in own_names}
        elif isinstance(context, Mapping):
            given = {k: v for k, v in context.items() if k in type(self).model_fields}
        else:
            return self
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**own, **given})


class SelfRAGSettings(Settings):
    """Self-RAG's inference-time knobs; defaults are those of section 4.3 where it gives one."""

    mode: Literal["adaptive", "always", "never"] = Field(
        default="adaptive",
        description="When to retrieve: when the model wants to, always, or never.",
        json_schema_extra=on_nodes("decide_retrieval", "generate_and_critique"),
    )
    threshold: float | None = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Retrieve when P(Retrieval) over P(Retrieval) + P(No Retrieval) exceeds this; "
        "null retrieves when the model's own choice is [Retrieval].",
        json_schema_extra=on_nodes("decide_retrieval", "generate_and_critique"),
    )
    passages: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Passages read at each segment (the paper: 5, for open questions 10).",
        json_schema_extra=on_nodes("retrieve"),
    )
    beam_width: int = Field(
        default=2,
        ge=1,
        le=32,
        description="Partial answers kept after each segment.",
        json_schema_extra=on_nodes("beam_select"),
    )
    depth: int = Field(
        default=7,
        ge=1,
        le=64,
        description="Most segments of an answer; 1 is the paper's short form.",
        json_schema_extra=on_nodes("beam_select"),
    )
    segment_tokens: int = Field(
        default=100,
        ge=1,
        le=4096,
        description="Most tokens of a segment (the paper: 100; 50 for closed sets; 200 for bios).",
        json_schema_extra=on_nodes(
            "decide_retrieval", "generate_and_critique", "beam_select", "write_answer"
        ),
    )
    weight_isrel: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Weight of the passage being relevant.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    weight_issup: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Weight of the segment being supported by its passage.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    weight_isuse: float = Field(
        default=0.5,
        ge=0,
        le=100,
        description="Weight of the answer being useful.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    weight_sequence: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Weight of the segment's own probability, p(y|x,d) of Eq. 3.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    path_rule: Literal["mean", "sum", "product"] = Field(
        default="mean",
        description="How segment scores make a path's score; product is the official code's.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    hard_constraints: tuple[str, ...] = Field(
        default=(),
        description="Critique tokens that drop a candidate, e.g. [No support / Contradictory].",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    prune_below: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Drop a passage whose ISREL score is below this before its segment is "
        "decoded; the best passage always stays.",
        json_schema_extra=on_nodes("generate_and_critique"),
    )
    closed_set: bool = Field(
        default=False,
        description="Sum scores by answer and choose the best answer, with depth 1.",
        json_schema_extra=on_nodes("beam_select"),
    )
    options: tuple[str, ...] = Field(
        default=(),
        description="The answers allowed in a closed set; implies closed_set.",
        json_schema_extra=on_nodes("beam_select", "write_answer"),
    )
    instruction: str | None = Field(
        default=None,
        description="Task instruction put before the question (the paper's are in "
        "prompts.TASK_INSTRUCTIONS).",
        json_schema_extra=on_nodes("decide_retrieval", "generate_and_critique"),
    )

    def model_post_init(self, context: Any, /) -> None:
        """Refuse constraints that name no critique token."""
        unknown = [token for token in self.hard_constraints if token not in HARD_CONSTRAINTS]
        if unknown:
            raise ValueError(f"hard constraints {unknown} are none of {list(HARD_CONSTRAINTS)}")

    @property
    def weights(self) -> Weights:
        """The weights of Eq. 3-4."""
        return Weights(
            self.weight_isrel, self.weight_issup, self.weight_isuse, self.weight_sequence
        )

    @property
    def closed(self) -> bool:
        """Whether answers are summed (section 3.3, closed-set tasks)."""
        return self.closed_set or bool(self.options)


class CRAGSettings(Settings):
    """CRAG's knobs; defaults are those of appendix B.2 where it gives one."""

    passages: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Documents retrieved and graded (section 4.2: generally 10).",
        json_schema_extra=on_nodes("retrieve"),
    )
    upper: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="Correct when a document scores above this; null takes the evaluator's own.",
        json_schema_extra=on_nodes("grade_documents"),
    )
    lower: float | None = Field(
        default=None,
        ge=-1,
        le=1,
        description="Incorrect when all score below this; null takes the evaluator's own.",
        json_schema_extra=on_nodes("grade_documents"),
    )
    without_action: Literal["none", "correct", "incorrect", "ambiguous"] = Field(
        default="none",
        description="Leave an action out, as in Table 2: correct and incorrect become ambiguous; "
        "without ambiguous the upper threshold alone decides.",
        json_schema_extra=on_nodes("grade_documents"),
    )
    decomposition: Literal["sentences", "windows", "passage"] = Field(
        default="sentences",
        description="What a strip is: a few sentences, fifty words, or the whole document.",
        json_schema_extra=on_nodes("refine_strips", "select_web_strips"),
    )
    strips: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Most strips kept of all retrieved documents, and as many of the web's.",
        json_schema_extra=on_nodes("refine_strips", "select_web_strips"),
    )
    strip_threshold: float = Field(
        default=-0.5,
        ge=-1,
        le=1,
        description="Strips that score no higher are dropped.",
        json_schema_extra=on_nodes("refine_strips", "select_web_strips"),
    )
    refine: bool = Field(
        default=True,
        description="Refine documents into strips (off: Table 3, without refinement).",
        json_schema_extra=on_nodes("refine_strips"),
    )
    rewrite: bool = Field(
        default=True,
        description="Rewrite the question into keywords (off: Table 3, without rewriting).",
        json_schema_extra=on_nodes("rewrite_query"),
    )
    select: bool = Field(
        default=True,
        description="Select among what the web gave (off: Table 3, without selection).",
        json_schema_extra=on_nodes("select_web_strips"),
    )
    web_results: int = Field(
        default=5,
        ge=1,
        le=50,
        description="Pages taken from a web search.",
        json_schema_extra=on_nodes("web_search"),
    )
    approve_search: bool = Field(
        default=False,
        description="Pause before a web search until a person says yes, no, or another query.",
        json_schema_extra=on_nodes("web_search"),
    )
    instruction: str | None = Field(
        default=None,
        description="Task instruction put before the question.",
        json_schema_extra=on_nodes("generate"),
    )

    def thresholds(self, own: Thresholds) -> Thresholds:
        """Those of a run, where ``own`` are the evaluator's.

        Raises:
            ValueError: together they are none, as where the lower is above the upper.
        """
        return Thresholds(
            upper=own.upper if self.upper is None else self.upper,
            lower=own.lower if self.lower is None else self.lower,
        )


class SelfCRAGSettings(SelfRAGSettings, CRAGSettings):
    """The knobs of both, and how CRAG's knowledge becomes Self-RAG's passages."""

    passages: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Documents retrieved and graded (section 4.2: generally 10).",
        json_schema_extra=on_nodes("retrieve"),
    )
    contexts: Literal["action", "all"] = Field(
        default="action",
        description="What Self-RAG reads: the knowledge that the action asks for, document by "
        "document, or, as the official code does, internal, external and combined knowledge of "
        "every question as three passages.",
        json_schema_extra=on_nodes("grade_documents", "recompose_knowledge"),
    )
