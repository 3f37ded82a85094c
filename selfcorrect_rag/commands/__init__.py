"""One module a subcommand of ``selfcorrect-rag``."""
