"""write_answer: turn the best beam into text with citations of its passages."""

from selfcorrect_rag.events import Answered
from selfcorrect_rag.nodes.base.citations import cited_passages, cited_text, settled
from selfcorrect_rag.nodes.base.node import Node, Update, current, emit
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, SILENT, kept, say
from selfcorrect_rag.prompts.closed_set import closed_answer
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.self_rag import Beam, SelfRAGState, Source


def write_answer(
    settings: SelfRAGSettings | None = None,
    source: Source = "passages",
    llm: object = None,
) -> Node:
    """Compose answer, citations and, where the run began with messages, the reply.

    Args:
        settings: Self-RAG's.
        source: the state key of the passages that candidates index.
        llm: the model that wrote the segments, which the reply names.
    """
    settings = SelfRAGSettings.of_step(settings)

    def run(state: SelfRAGState) -> Update:
        best, chosen = state["beams"][0], current(settings)
        segments = best["segments"]
        if state["options"]:
            # For a closed set the answer is the option itself.
            option = closed_answer(segments[0]["text"], chosen.options)
            segments = [{**segments[0], "text": option or segments[0]["text"]}]
        citations = cited_passages(best["segments"], state, source)
        answer = " ".join(segment["text"] for segment in segments)
        silent = [] if answer.strip() else [SILENT]
        answer = answer if not silent else NO_ANSWER
        cited = cited_text(segments, citations) if not silent else NO_ANSWER
        path = [(s["depth"], s["beam"], s["passage"]) for s in segments]
        said = "" if chosen.closed else cited_text(settled(state["beams"]), citations)
        say(state, cited, len(said))
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
            "notes": [*state["notes"], *silent, *_cut(best, chosen)],
            **kept(state, cited, citations, llm),
        }

    return Node("write_answer", run)


def _cut(beam: Beam, settings: SelfRAGSettings) -> list[str]:
    notes = [beam["cut"]] if beam["cut"] else []
    if beam["segments"][-1]["finish_reason"] == "length":
        notes.append(f"the last segment was cut at its limit of {settings.segment_tokens} tokens")
    return notes
