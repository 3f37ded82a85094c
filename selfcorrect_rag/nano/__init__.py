"""The embedded default: tiny trained models, and two small corpora."""

from selfcorrect_rag.nano.embedded import (
    critic_path,
    demo_index,
    demo_questions,
    demo_web,
    generator_path,
    load_chat_model,
    load_critic,
    load_generator,
    load_rationale_model,
    rationale_model_path,
)
from selfcorrect_rag.nano.evaluators import load_evaluator, nano_evaluator_path

__all__ = [
    "critic_path",
    "demo_index",
    "demo_questions",
    "demo_web",
    "generator_path",
    "load_chat_model",
    "load_critic",
    "load_evaluator",
    "load_generator",
    "load_rationale_model",
    "nano_evaluator_path",
    "rationale_model_path",
]
