"""The embedded default: a tiny Self-RAG generator trained from scratch, and a small corpus."""

from selfcorrect_rag.nano.embedded import demo_index, demo_questions, generator_path, load_generator

__all__ = ["demo_index", "demo_questions", "generator_path", "load_generator"]
