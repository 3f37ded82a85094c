"""Fine-tuning: what the papers train, as functions and as `selfcorrect-rag train ...`."""
