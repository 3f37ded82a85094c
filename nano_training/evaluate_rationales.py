"""Held-out figures of the nano rationale model, as its card gives them.

    python -m nano_training.evaluate_rationales [--model DIR] [--data DIR]

Made-up questions on names and in wordings never trained on, with one document of five that answers:
InstructRAG against in-context RALM, both by the graph and with the same model. Also the demo
corpus and, with the folder of real data, PopQA's 741 development questions.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from nano_training.rationale_data import BRIEFLY, new_document_set
from nano_training.world import World
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.models import ReflectionLLM, TransformersReflectionLLM
from selfcorrect_rag.nano import demo_index, demo_questions, rationale_model_path
from selfcorrect_rag.search import ChromaIndex
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.state.instruct_rag import InstructRAGInput

CASES = 300
MODES = {
    "instruct_rag": InstructRAGSettings(mode="ft", rationale_tokens=400),
    "ralm": InstructRAGSettings(mode="ralm", instruction=BRIEFLY, rationale_tokens=60),
}


Figures = dict[str, dict[str, float]]
"""By mode: shares of the questions."""


def on_the_made_up_world(llm: ReflectionLLM, cases: int = CASES) -> Figures:
    """Names and wordings never trained on, one document of five that answers."""
    world = World("rationales", held_out=True)
    rows = []
    for _ in range(cases):
        shared = new_document_set(world, held_out=True)
        one = shared.questions[world.random.randrange(len(shared.questions) - 1)]
        rows.append(
            EvaluationRow(one.case.question, [one.case.target], shared.documents, gold=one.gold)
        )
    return _figures(llm, rows, lambda query: [])


def on_the_demo_corpus(llm: ReflectionLLM) -> Figures:
    """Its factual questions, five documents retrieved for each."""
    facts = [row for row in demo_questions() if row["kind"] == "fact"]
    rows = [EvaluationRow(row["question"], row["answers"], title=row["title"]) for row in facts]
    with tempfile.TemporaryDirectory() as folder:
        return _figures(llm, rows, demo_index(Path(folder)).as_retriever())


def on_popqa(llm: ReflectionLLM, data: Path) -> Figures:
    """Five of all paragraphs retrieved for each question."""
    lines = (data / "popqa_dev_741.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    paragraphs = sorted({(p["title"], p["text"]) for row in found for p in row["paragraphs"]})
    rows = [
        EvaluationRow(row["question"], row["answers"], title=row["s_wiki_title"]) for row in found
    ]
    with tempfile.TemporaryDirectory() as folder:
        index = ChromaIndex(Path(folder))
        index.add([Document(text, metadata={"title": title}) for title, text in paragraphs])
        return _figures(llm, rows, index.as_retriever())


class EvaluationRow(NamedTuple):
    """A question with its answers, and with the document that has them."""

    question: str
    answers: list[str]
    documents: list[Document] | None = None
    """The documents; retrieved where None."""
    title: str = ""
    """Title of the document that answers, where documents are retrieved."""
    gold: int | None = None
    """Index of the document that answers, where documents are given."""


def _figures(llm: ReflectionLLM, rows: Sequence[EvaluationRow], retriever: Any) -> Figures:
    """How often the answer that was concluded contains a right one, and how often all that was
    written does (the paper's measure); of InstructRAG, how often the document that answers is
    named useful and no other."""
    figures = {}
    for mode, settings in MODES.items():
        graph = create_instruct_rag(llm, retriever, settings=settings)
        concluded = contained = named = 0
        for row in rows:
            given: InstructRAGInput = {"question": row.question}
            if row.documents is not None:
                given["documents"] = row.documents
            result = graph.invoke(given)
            concluded += contains_answer(result["answer"], row.answers)
            contained += contains_answer(f"{result['answer']} {result['rationale']}", row.answers)
            named += result["useful_documents"] == _answering(row, result["passages"])
        figures[mode] = {
            "concluded": round(concluded / len(rows), 3),
            "contained": round(contained / len(rows), 3),
        }
        if settings.mode == "ft":
            figures[mode]["document"] = round(named / len(rows), 3)
    return figures


def _answering(row: EvaluationRow, passages: Sequence[Document]) -> list[int]:
    if row.gold is not None:
        return [row.gold]
    return [i for i, passage in enumerate(passages) if passage.metadata["title"] == row.title]


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=rationale_model_path())
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    llm = TransformersReflectionLLM.from_pretrained(args.model)
    report = {"made up": on_the_made_up_world(llm), "demo corpus": on_the_demo_corpus(llm)}
    if args.data:
        report["popqa"] = on_popqa(llm, args.data)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
