"""A run as a page: the answer first, then what led to it."""

from selfcorrect_rag.render.page import RunPage, render_run, show_run

__all__ = ["RunPage", "render_run", "show_run"]
