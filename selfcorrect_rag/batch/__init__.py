"""Many questions through a graph, in this process or on Ray Data, resumable after a kill."""

from selfcorrect_rag.batch.questions import BadQuestions, Columns
from selfcorrect_rag.batch.run import Cluster, GraphSource, NoGraph, Summary, batch_questions

__all__ = [
    "BadQuestions",
    "Cluster",
    "Columns",
    "GraphSource",
    "NoGraph",
    "Summary",
    "batch_questions",
]
