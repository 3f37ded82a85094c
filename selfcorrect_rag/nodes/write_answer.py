"""write_answer: the best beam as text, with citations to the passages it came from."""

from collections.abc import Mapping
from typing import Any, cast

from selfcorrect_rag.closed_set import closed_answer
from selfcorrect_rag.events import Answered
from selfcorrect_rag.nodes.base import Node, Update, current, emit, plain_node
from selfcorrect_rag.nodes.citing import citations_of, cited_text, settled
from selfcorrect_rag.nodes.reply import reply, say
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, SelfRAGState, Source


def write_answer(settings: SelfRAGSettings, source: Source = "passages") -> Node[SelfRAGState]:
    """Compose answer, citations and, where the run began with messages, the reply.

    ``source`` is where in the state the passages stand that candidates point into.
    """

    def run(state: SelfRAGState) -> Update:
        best = state["beams"][0]
        citations = citations_of(best["segments"], cast(Mapping[str, Any], state)[source])
        answer = " ".join(segment["text"] for segment in best["segments"])
        cited = cited_text(best["segments"], citations)
        if state["options"]:
            # A closed set is answered by the option itself.
            option = closed_answer(best["segments"][0]["text"], current(settings).options)
            answer = option or answer
        path = [(s["depth"], s["beam"], s["passage"]) for s in best["segments"]]
        said = cited_text(settled(state["beams"]), citations)
        say(state, cited[len(said) :] if said else "")
        emit(Answered(event="answered", answer=answer, citations=len(citations)))
        return {
            "answer": answer,
            "cited_answer": cited,
            "citations": citations,
            "score": best["score"],
            "candidates": [
                {**c, "chosen": (c["depth"], c["beam"], c["passage"]) in path}
                for c in state["candidates"]
            ],
            "notes": [*state["notes"], *_cut(best, current(settings))],
            **reply(state, cited),
        }

    return plain_node(run)


def _cut(beam: Beam, settings: SelfRAGSettings) -> list[str]:
    if beam["segments"][-1]["finish_reason"] != "length":
        return []
    return [f"the last segment was cut at its limit of {settings.segment_tokens} tokens"]
