"""Many questions through a graph, in this process or on Ray Data, resumable after a kill."""

from selfcorrect_rag.batch.run import Cluster, Summary, batch_questions

__all__ = ["Cluster", "Summary", "batch_questions"]
