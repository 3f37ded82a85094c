"""Models behind small interfaces.

A reflection LLM continues prompts and criticises itself; a retrieval evaluator grades passages.
"""

from selfcorrect_rag.models.chat_evaluator import ChatEvaluator
from selfcorrect_rag.models.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.models.t5_evaluator import T5Evaluator
from selfcorrect_rag.models.transformers_llm import TransformersReflectionLLM
from selfcorrect_rag.models.vllm_llm import VLLMReflectionLLM
from selfcorrect_rag.models.vllm_server_llm import VLLMServerReflectionLLM

__all__ = [
    "ChatEvaluator",
    "PromptedReflectionLLM",
    "ReflectionLLM",
    "RetrievalEvaluator",
    "T5Evaluator",
    "TransformersReflectionLLM",
    "VLLMReflectionLLM",
    "VLLMServerReflectionLLM",
]
