"""The knobs of one run of InstructRAG, passed as LangGraph context."""

from typing import Literal

from pydantic import Field

from selfcorrect_rag.instruct_state import Mode
from selfcorrect_rag.settings import Settings, on_nodes


class InstructRAGSettings(Settings):
    """InstructRAG's knobs; defaults are those of appendix B where it gives one."""

    mode: Mode | None = Field(
        default=None,
        description="How the model is asked: InstructRAG by demonstrations (icl), fine-tuned (ft) "
        "or by instruction alone (instruct); baselines are no_retrieval, ralm and few_shot. Null "
        "is icl where demonstrations were given, else instruct.",
        json_schema_extra=on_nodes("read_question"),
    )
    passages: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Documents retrieved and shown (the paper: 5, for 2WikiMultiHopQA 10).",
        json_schema_extra=on_nodes("retrieve"),
    )
    order: Literal["best_last", "best_first"] = Field(
        default="best_last",
        description="Where the best document stands: next to the question, as in the official "
        "code, or first.",
        json_schema_extra=on_nodes("write_rationale"),
    )
    demonstrations: int = Field(
        default=2,
        ge=1,
        le=32,
        description="Demonstrations shown (modes icl and few_shot).",
        json_schema_extra=on_nodes("choose_demonstrations"),
    )
    selection: Literal["random", "fixed", "nearest"] = Field(
        default="random",
        description="Which demonstrations: drawn anew for each question, the first ones, or those "
        "whose questions are nearest by embedding.",
        json_schema_extra=on_nodes("choose_demonstrations"),
    )
    seed: int = Field(
        default=0,
        description="Of random selection: the same seed and question draw the same demonstrations.",
        json_schema_extra=on_nodes("choose_demonstrations"),
    )
    instruction: str | None = Field(
        default=None,
        description="Task-specific instruction put after the question (the paper's are in "
        "instruct_prompts.TASK_INSTRUCTIONS); mode ft takes none.",
        json_schema_extra=on_nodes("write_rationale"),
    )
    rationale_tokens: int = Field(
        default=256,
        ge=1,
        le=4096,
        description="Most tokens that a ReflectionLLM writes; any other model has its own limit. "
        "So many are kept free of the context.",
        json_schema_extra=on_nodes("write_rationale"),
    )
    context_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of prompt and rationale together; null asks the model. Documents that "
        "do not fit are dropped, the weakest first.",
        json_schema_extra=on_nodes("write_rationale"),
    )
