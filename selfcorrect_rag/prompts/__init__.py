"""All prompt templates, and the parsers of models' answers."""

from selfcorrect_rag.prompts.parts import Part, Prompt, prompt_of
from selfcorrect_rag.prompts.self_rag import decision_prompt, segment_prompt

__all__ = ["Part", "Prompt", "decision_prompt", "prompt_of", "segment_prompt"]
