"""What the graph itself costs: Self-RAG over a model and a retriever that cost nothing.

    python -m benchmarks.graph

Prints one line of JSON. ``graph_ms`` is a whole ``invoke`` at 10 passages (aim: <= 5 ms over the
same model calls made directly); ``async_ms`` the same by ``ainvoke``; ``direct_ms`` the two model
calls alone, through LangChain; ``overhead_ms`` the difference.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.prompts import Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.reflection import TOKENS, Group, Reflection
from selfcorrect_rag.state import Piece, Segment

PASSAGES = [Document("A passage of some words. " * 20, id=str(i)) for i in range(10)]
QUESTION = "Who wrote it?"


class FreeReflectionLLM(ReflectionLLM):
    """Gives the same segment for every prompt, at once."""

    @property
    def _llm_type(self) -> str:
        return "free-reflection"

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        groups = [Group.RETRIEVE] if "choose" in options else [Group.ISREL, Group.ISSUP]
        return [_segment(groups) for _ in prompts]

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return self._segments(prompts, **options)


def _segment(groups: Sequence[Group]) -> Segment:
    return Segment(
        text="An answer of one sentence.",
        pieces=[Piece(kind="text", text="An answer of one sentence.")],
        reflections=[
            Reflection(
                group=group.value,
                position=0,
                token=TOKENS[group][1],
                logprobs=dict.fromkeys(TOKENS[group], -1.0),
            )
            for group in groups
        ],
        next=None,
        finish_reason="end",
        tokens=10,
        logprob=-1.0,
        prompt_tokens=100,
        shortened=0,
        requests=0,
    )


def _milliseconds(run: Callable[[], object], repeats: int = 200) -> float:
    """Median of ``repeats`` runs, after a warm-up."""
    times = []
    for _ in range(repeats + 20):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times[20:])


def main() -> None:
    llm = FreeReflectionLLM()
    graph = create_self_rag(llm, lambda query: PASSAGES)
    context: Any = {"passages": len(PASSAGES)}

    def direct() -> None:
        llm.choose([decision_prompt(QUESTION)], Group.RETRIEVE)
        llm.generate_segments(
            [segment_prompt(QUESTION, [], PASSAGES, "retrieve", i) for i in range(len(PASSAGES))]
        )

    with asyncio.Runner() as runner:
        figures = {
            "graph_ms": _milliseconds(
                lambda: graph.invoke({"question": QUESTION}, context=context)
            ),
            "async_ms": _milliseconds(
                lambda: runner.run(graph.ainvoke({"question": QUESTION}, context=context))
            ),
            "direct_ms": _milliseconds(direct),
        }
    figures["overhead_ms"] = figures["graph_ms"] - figures["direct_ms"]
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"benchmark": "graph", "passages": len(PASSAGES), **rounded}))


if __name__ == "__main__":
    main()
