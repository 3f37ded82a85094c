"""Tiny trained models and two small corpora, with which everything runs offline."""

from selfcorrect_rag.nano.loaders import (
    demo_index,
    demo_passages,
    demo_questions,
    demo_web,
    generator_path,
    load_chat_model,
    load_generator,
    load_rationale_model,
    rationale_model_path,
)

__all__ = [
    "demo_index",
    "demo_passages",
    "demo_questions",
    "demo_web",
    "generator_path",
    "load_chat_model",
    "load_generator",
    "load_rationale_model",
    "rationale_model_path",
]
