"""read_knowledge: hand CRAG's corrected knowledge to every beam as its passages."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.nodes.limits import first_beams
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.settings import SelfCRAGSettings


def read_knowledge() -> Node[Any]:
    """Give all knowledge to each beam that wants evidence, at its first segment and at later ones.

    (CRAG appendix B.2: processed knowledge replaces what Self-RAG retrieves.)
    """

    def step(state: Mapping[str, Any], run: Run[SelfCRAGSettings]) -> Update:
        every = list(range(len(state["knowledge"])))
        return {
            "beams": [
                {**beam, "retrieved": every} if beam["next"] == "retrieve" else beam
                for beam in first_beams(state, "retrieve")
            ]
        }

    return Node("read_knowledge", step, SelfCRAGSettings())
