"""Rows, batches and training of the reader, the embedded model that answers from passages."""
