"""Evaluates the graphs' results."""

from selfcorrect_rag.evaluation.judges import Judgement, ajudge, alignment, judge

__all__ = ["Judgement", "ajudge", "alignment", "judge"]
