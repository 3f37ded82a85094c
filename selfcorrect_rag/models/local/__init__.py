"""Checkpoints on transformers in this process: reading prompts once and decoding together."""
