"""Models behind small interfaces.

A reflection LLM continues prompts and criticises itself; a retrieval evaluator grades passages.
"""

from selfcorrect_rag.models.engines.engine import Completion, Engine, Request
from selfcorrect_rag.models.engines.engine_llm import EngineReflectionLLM
from selfcorrect_rag.models.engines.transformers import TransformersReflectionLLM
from selfcorrect_rag.models.engines.vllm import VLLMReflectionLLM, VLLMServerReflectionLLM
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import ChatEvaluator, RetrievalEvaluator
from selfcorrect_rag.models.t5_evaluator import T5Evaluator

__all__ = [
    "ChatEvaluator",
    "Completion",
    "Engine",
    "EngineReflectionLLM",
    "PromptedReflectionLLM",
    "ReflectionLLM",
    "Request",
    "RetrievalEvaluator",
    "T5Evaluator",
    "TransformersReflectionLLM",
    "VLLMReflectionLLM",
    "VLLMServerReflectionLLM",
]
