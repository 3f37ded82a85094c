"""InstructRAG's knobs, as a class and as a dict."""

from typing import Literal

from selfcorrect_rag.settings.base import Context, Settings, knob

Mode = Literal["icl", "ft", "instruct", "no_retrieval", "ralm", "few_shot"]
"""How the model is prompted. InstructRAG: with demonstrations, fine-tuned, by instruction alone.

Baselines (section 3.1): without retrieval, in-context RALM, few-shot demonstrations with
instruction.
"""


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
