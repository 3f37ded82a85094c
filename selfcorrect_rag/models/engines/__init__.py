"""Engines that concurrent runs share: vLLM in this process, a vLLM server, and tokenization."""
