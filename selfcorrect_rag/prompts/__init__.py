"""Every template that a model is given, and every reader of what it answers."""

from selfcorrect_rag.prompts.parts import Part, Prompt, decision_prompt, prompt_of, segment_prompt

__all__ = ["Part", "Prompt", "decision_prompt", "prompt_of", "segment_prompt"]
