"""Many questions at once: in this process, or on Ray Data."""

from selfcorrect_rag.bulk.answers import Summary
from selfcorrect_rag.bulk.batch import batch_questions
from selfcorrect_rag.bulk.graph_actor import GraphActor
from selfcorrect_rag.bulk.graph_maker import GraphMaker
from selfcorrect_rag.bulk.on_ray import Cluster
from selfcorrect_rag.bulk.questions import Columns

__all__ = ["Cluster", "Columns", "GraphActor", "GraphMaker", "Summary", "batch_questions"]
