"""Shared by the nodes: the Node class, limits, costs, citations, strips, and a thread's turns."""
