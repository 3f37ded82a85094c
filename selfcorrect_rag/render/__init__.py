"""A run as a picture: one HTML page, the same in a notebook, and its route in Mermaid."""

from selfcorrect_rag.render.mermaid import render_route
from selfcorrect_rag.render.notebook import RunPage, show_run
from selfcorrect_rag.render.page import render_run

__all__ = ["RunPage", "render_route", "render_run", "show_run"]
