"""Self-RAG's knobs, as a class and as a dict."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from selfcorrect_rag.reflection import GROUPS, Group, Weights, registered_groups
from selfcorrect_rag.settings.base import Context, Settings, knob


def _critique_tokens() -> list[str]:
    return [t for group in GROUPS.values() if group.values for t in group.tokens]


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
        choices=_critique_tokens,
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
        known = _critique_tokens()
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
