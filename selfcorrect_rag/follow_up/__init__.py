"""Makes English follow-up questions stand alone, by rule."""

from selfcorrect_rag.follow_up.standalone import standalone_question

__all__ = ["standalone_question"]
