"""Shared by the steps: their form, limits, costs, citations, strips, and turns of a thread."""
