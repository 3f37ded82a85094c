"""read_knowledge: hand CRAG's corrected knowledge to every beam as its passages."""

from selfcorrect_rag.nodes.base.limits import with_first_beam
from selfcorrect_rag.nodes.base.node import Node, Update
from selfcorrect_rag.state.crag import SelfCRAGState


def read_knowledge() -> Node:
    """Give all knowledge to each beam that wants evidence, at its first segment and at later ones.

    (CRAG appendix B.2: processed knowledge replaces what Self-RAG retrieves.)
    """

    def run(state: SelfCRAGState) -> Update:
        state, every = with_first_beam(state, "retrieve"), list(range(len(state["knowledge"])))
        return {
            "beams": [
                {**beam, "retrieved": every} if beam["next"] == "retrieve" else beam
                for beam in state["beams"]
            ]
        }

    return Node("read_knowledge", run)
