"""Held-out figures of the nano rationale model, as its card gives them.

    python -m selfcorrect_rag.nano.evaluate_rationales [--data DIR]

Made-up questions on names and in wordings never trained on, with one document of five that answers:
InstructRAG against in-context RALM, both by the graph and with the same model. With the folder of
real data also PopQA's 741 development questions, documents retrieved from all of their paragraphs.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.instruct_settings import InstructRAGSettings
from selfcorrect_rag.nano.embedded import load_rationale_model
from selfcorrect_rag.nano.rationales import BRIEFLY, new_reading
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.search import ChromaIndex
from selfcorrect_rag.training.consistency import contains_answer

CASES = 300
MODES = {
    "instruct_rag": InstructRAGSettings(mode="ft", rationale_tokens=120),
    "ralm": InstructRAGSettings(mode="ralm", instruction=BRIEFLY, rationale_tokens=120),
}


def on_the_made_up_world(cases: int = CASES) -> dict[str, dict[str, float]]:
    """For each mode, the share of questions whose answer is contained in what was written and, of
    InstructRAG, whose useful document is named and no other."""
    world = World("rationales", held_out=True)
    asked = []
    for _ in range(cases):
        reading = new_reading(world, held_out=True)
        asked.append((reading, reading.asked[world.random.randrange(len(reading.asked) - 1)]))
    figures = {}
    for mode, run in _runs(lambda query: []).items():
        results = [run(one.case.question, reading.documents) for reading, one in asked]
        figures[mode] = {
            "contained": _share(
                contains_answer(result["answer"] + " " + result["rationale"], [one.case.target])
                for result, (_, one) in zip(results, asked, strict=True)
            ),
            "answer": _share(
                contains_answer(result["answer"], [one.case.target])
                for result, (_, one) in zip(results, asked, strict=True)
            ),
        }
        if mode == "instruct_rag":
            figures[mode]["document"] = _share(
                result["useful_documents"] == [one.gold]
                for result, (_, one) in zip(results, asked, strict=True)
            )
    return figures


def on_popqa(data: Path) -> dict[str, float]:
    """For each mode, the share of the questions whose answer is contained."""
    lines = (data / "popqa_dev_741.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        index = ChromaIndex(Path(folder))
        paragraphs = {(p["title"], p["text"]) for row in rows for p in row["paragraphs"]}
        index.add([Document(text, metadata={"title": t}) for t, text in sorted(paragraphs)])
        retriever = index.as_retriever()
        return {
            mode: _share(
                contains_answer(result["answer"] + " " + result["rationale"], row["answers"])
                for row in rows
                for result in [run(row["question"], None)]
            )
            for mode, run in _runs(retriever).items()
        }


def _runs(retriever: Any) -> dict[str, Callable[[str, Sequence[Document] | None], dict[str, Any]]]:
    llm = load_rationale_model()

    def run(graph: Any) -> Callable[[str, Sequence[Document] | None], dict[str, Any]]:
        def ask(question: str, documents: Sequence[Document] | None) -> dict[str, Any]:
            given = {} if documents is None else {"documents": list(documents)}
            result: dict[str, Any] = graph.invoke({"question": question, **given})
            return result

        return ask

    return {
        mode: run(create_instruct_rag(llm, retriever, settings=settings))
        for mode, settings in MODES.items()
    }


def _share(held: Any) -> float:
    counted = [bool(each) for each in held]
    return round(sum(counted) / len(counted), 3)


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    data = parser.parse_args().data
    report: dict[str, Any] = {"made up": on_the_made_up_world()}
    if data:
        report["popqa"] = on_popqa(data)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
