"""Renders a run: as an HTML page, in a notebook, and its route in Mermaid."""

from selfcorrect_rag.render.page import RunPage, render_run, show_run
from selfcorrect_rag.render.route import render_route

__all__ = ["RunPage", "render_route", "render_run", "show_run"]
