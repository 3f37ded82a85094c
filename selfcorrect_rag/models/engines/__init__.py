"""Engines that many runs share: vLLM in this process, a vLLM server, and their token ids."""
