"""Evaluates the graphs' results."""

from selfcorrect_rag.evaluation.judge import Judgement, ajudge_rationale, judge_rationale

__all__ = ["Judgement", "ajudge_rationale", "judge_rationale"]
