"""Graders of documents for CRAG: T5, any cross-encoder, and chat models."""
