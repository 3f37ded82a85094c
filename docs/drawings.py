"""Draw the four graphs, as they are compiled, into docs/assets: python docs/drawings.py.

It needs Graphviz's ``dot``. A test compares the drawings with the graphs.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import RetrievalEvaluator

ASSETS = Path(__file__).parent / "assets"
STYLE = """
    rankdir=TB; bgcolor="transparent"; nodesep=0.35; ranksep=0.45;
    node [shape=box, style="rounded,filled", fillcolor="#eef1fb", color="#4a5f9e",
          fontname="Helvetica,Arial,sans-serif", fontsize=12, height=0.4, margin="0.15,0.05"];
    edge [color="#666666", fontname="Helvetica,Arial,sans-serif", fontsize=10,
          fontcolor="#444444", arrowsize=0.7];
    "__start__" [label="start", shape=plaintext, style="", height=0.2];
    "__end__" [label="end", shape=plaintext, style="", height=0.2];
"""
ASKS_A_MODEL = {
    "decide_retrieval",
    "generate",
    "generate_and_critique",
    "grade_documents",
    "refine_strips",
    "rewrite_query",
    "select_web_strips",
    "write_rationale",
}
"""Drawn in another colour."""


class NoEvaluator(RetrievalEvaluator):
    def score(self, question: str, passages: Any) -> list[float]:
        return [0.0 for _ in passages]


def graphs() -> dict[str, Any]:
    """The four graphs, with models that nothing asks."""
    llm, evaluator = FakeListChatModel(responses=[""]), NoEvaluator()
    return {
        "self-rag": create_self_rag(llm, None),
        "crag": create_crag(llm, None, evaluator),
        "self-crag": create_self_crag(llm, None, evaluator),
        "instruct-rag": create_instruct_rag(llm, None),
    }


def dot(graph: Any) -> str:
    """A compiled graph in Graphviz's language."""
    drawn = graph.get_graph()
    nodes = [
        f'"{name}" [fillcolor="#fdf0d5", color="#b07d1a"];'
        for name in drawn.nodes
        if name in ASKS_A_MODEL
    ]
    edges = []
    for edge in drawn.edges:
        label = f' [label=" {edge.data} "]' if edge.data else ""
        edges.append(f'"{edge.source}" -> "{edge.target}"{label};')
    return "\n".join(["digraph {", STYLE, *nodes, *edges, "}"])


def main() -> None:
    for name, graph in graphs().items():
        made = subprocess.run(
            ["dot", "-Tsvg"], input=dot(graph), capture_output=True, text=True, check=True
        )
        svg = re.sub(r"<!--.*?-->\n?", "", made.stdout[made.stdout.index("<svg") :], flags=re.S)
        (ASSETS / f"graph-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
