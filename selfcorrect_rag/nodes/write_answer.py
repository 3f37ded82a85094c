"""write_answer: the best beam as text, with citations to the passages it came from."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage

from selfcorrect_rag.nodes.base import Node, Update, current, emit, plain_node
from selfcorrect_rag.nodes.beam_select import closed_answer
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Candidate, Citation, SelfRAGState, Source


def write_answer(settings: SelfRAGSettings, source: Source = "passages") -> Node[SelfRAGState]:
    """Compose answer, citations and, where the run began with messages, the reply.

    ``source`` is where in the state the passages stand that candidates point into.
    """

    def run(state: SelfRAGState) -> Update:
        best = state["beams"][0]
        citations = _citations(best, cast(Mapping[str, Any], state)[source])
        answer = " ".join(segment["text"] for segment in best["segments"])
        cited = " ".join(_cited(segment, citations) for segment in best["segments"])
        if state["options"]:
            # A closed set is answered by the option itself.
            option = closed_answer(best["segments"][0]["text"], current(settings).options)
            answer = option or answer
        path = [(s["depth"], s["beam"], s["passage"]) for s in best["segments"]]
        update: Update = {
            "answer": answer,
            "cited_answer": cited,
            "citations": citations,
            "score": best["score"],
            "candidates": [
                {**c, "chosen": (c["depth"], c["beam"], c["passage"]) in path}
                for c in state["candidates"]
            ],
            "notes": [*state["notes"], *_cut(best, current(settings))],
        }
        emit("answered", answer=answer, citations=len(citations))
        messages = state.get("messages") or []
        if messages and isinstance(messages[-1], HumanMessage):
            update["messages"] = [AIMessage(cited)]
        return update

    return plain_node(run)


def _citations(beam: Beam, passages: Sequence[Document]) -> list[Citation]:
    """One for each passage the answer's segments were generated from, in order of appearance.

    A passage that its segment's critique calls irrelevant is no evidence and is not cited.
    """
    citations: dict[int, Citation] = {}
    for segment in beam["segments"]:
        passage = segment["passage"]
        if passage is None or _irrelevant(segment):
            continue
        if passage not in citations:
            metadata = passages[passage].metadata
            citations[passage] = Citation(
                number=len(citations) + 1,
                passage=passage,
                title=str(metadata.get("title") or ""),
                source=str(metadata.get("source") or passages[passage].id or ""),
                text=passages[passage].page_content,
                segments=[],
            )
        citations[passage]["segments"].append(segment["depth"])
    return list(citations.values())


def _irrelevant(segment: Candidate) -> bool:
    return segment["isrel"] is not None and segment["isrel"] < 0.5


def _cited(segment: Candidate, citations: Sequence[Citation]) -> str:
    numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
    return segment["text"] + "".join(f" [{number}]" for number in numbers)


def _cut(beam: Beam, settings: SelfRAGSettings) -> list[str]:
    if beam["segments"][-1]["finish_reason"] != "length":
        return []
    return [f"the last segment was cut at its limit of {settings.segment_tokens} tokens"]
