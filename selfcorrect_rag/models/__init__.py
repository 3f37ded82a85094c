"""Models behind small interfaces: a reflection LLM continues prompts and criticises itself."""

from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.transformers_llm import TransformersReflectionLLM

__all__ = ["ReflectionLLM", "TransformersReflectionLLM"]
