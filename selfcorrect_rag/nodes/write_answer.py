"""write_answer: turn the best beam into text with citations of its passages."""

from collections.abc import Mapping
from typing import Any

from langgraph.types import Overwrite

from selfcorrect_rag.nodes.citations import cited_passages, cited_text
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.reply import NO_ANSWER, SILENT, answered
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Source


def write_answer(
    settings: SelfRAGSettings | None = None, source: Source = "passages", llm: object = None
) -> Node[SelfRAGSettings]:
    """Compose answer, citations and, if messages began the run, the reply, which names ``llm``.

    ``source`` is the state key of the passages that candidates index.
    """

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        best: Beam = state["beams"][0]
        segments = best["segments"]
        if state["options"]:  # for a closed set the answer is the option itself
            segments = [{**segments[0], "text": next(iter(state["options"]))}]
        size = sum(len(passage.page_content) for passage in state[source])
        citations = await run.compute(
            cited_passages, best["segments"], state, source, characters=size
        )
        answer = " ".join(segment["text"] for segment in segments)
        cited = cited_text(segments, citations)
        notes = [best["cut"]] if best["cut"] else []
        if not answer.strip():
            answer = cited = NO_ANSWER
            notes.insert(0, SILENT)
        if best["segments"][-1]["finish_reason"] == "length":
            limit = run.settings.segment_tokens
            notes.append(f"the last segment was cut at its limit of {limit} tokens")
        path = [(s["depth"], s["beam"], s["passage"]) for s in segments]
        candidates = [
            {**c, "chosen": (c["depth"], c["beam"], c["passage"]) in path}
            for c in state["candidates"]
        ]
        return {
            "score": best["score"],
            "candidates": Overwrite(candidates),
            "notes": notes,
            **answered(state, run, answer, cited, citations, llm, said=state["said"]),
        }

    return Node("write_answer", step, SelfRAGSettings.of(settings))
