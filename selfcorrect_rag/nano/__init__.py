"""The embedded default: tiny trained models, and two small corpora."""

from selfcorrect_rag.nano.embedded import (
    demo_index,
    demo_questions,
    demo_web,
    generator_path,
    load_chat_model,
    load_generator,
    load_rationale_model,
    rationale_model_path,
)
from selfcorrect_rag.nano.evaluators import load_evaluator

__all__ = [
    "demo_index",
    "demo_questions",
    "demo_web",
    "generator_path",
    "load_chat_model",
    "load_evaluator",
    "load_generator",
    "load_rationale_model",
    "rationale_model_path",
]
