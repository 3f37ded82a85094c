"""The command ``selfcorrect-rag``, one file a command."""
