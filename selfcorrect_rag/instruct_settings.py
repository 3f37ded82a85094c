"""The knobs of one run of InstructRAG, passed as LangGraph context."""

from typing import Literal

from selfcorrect_rag.instruct_state import Mode
from selfcorrect_rag.settings import Settings, knob


class InstructRAGSettings(Settings):
    """InstructRAG's knobs; defaults are those of appendix B where it gives one."""

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
        "Of random selection: the same seed and question draw the same demonstrations.",
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
        "Most tokens that a ReflectionLLM writes; any other model has its own limit. So many "
        "are kept free of the context.",
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
