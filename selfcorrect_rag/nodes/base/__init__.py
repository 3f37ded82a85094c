"""What the steps share: their form, limits, costs, citations, strips, and turns of a thread."""
