"""Measure versions with dates on a set made by rule: ``python -m benchmarks.dates``.

60 notes, each in three versions of different years with another name, and two questions: about now,
and naming the middle year. Self-RAG with the embedded reader; shares of right answers with their
intervals in one line of JSON. Names are those of PopQA's questions (../shared/data).
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from benchmarks import share
from reader_training.rows import DATA, lines
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.reader import ReaderLLM

EXAMPLE = Path(__file__).parents[1] / "examples" / "dated_documents.py"
TOWNS = "Oslo Lima Cork Graz Lyon Bonn Riga Kobe Bari Linz Turin Porto Gent Umea Split Brno Perth"
NOTES = (
    ("The director of the {} museum is {}.", "Who {} the director of the {} museum{}?", "is was"),
    ("{1} leads the {0} office.", "Who {} the {} office{}?", "leads led"),
    ("The mayor of {} is {}.", "Who {} the mayor of {}{}?", "is was"),
)


def cases() -> Iterator[tuple[list[Document], str, str, str]]:
    """Yield each question's versions, the question, its answer, and its kind."""
    rng, rows = random.Random(0), [*lines(DATA / "popqa_dev_741.jsonl")][:240]
    names = iter(rng.sample([row["s_wiki_title"].split(" (")[0] for row in rows], len(rows)))
    for town in f"{TOWNS} Quito Dakar Accra".split():
        for text, question, verbs in NOTES:
            years, said = sorted(rng.sample(range(2012, 2026), 3)), [next(names) for _ in range(3)]
            versions = [
                Document(text.format(town, name), metadata={"title": town, "date": f"{year}-06-01"})
                for year, name in zip(years, said, strict=True)
            ]
            rng.shuffle(versions)
            now, then = verbs.split()
            yield versions, question.format(now, town, ""), said[2], "now"
            yield versions, question.format(then, town, f" in {years[1]}"), said[1], "a year"


if __name__ == "__main__":
    current = run_path(str(EXAMPLE))["current"]
    llm, right = ReaderLLM.load(), defaultdict[str, list[bool]](list)
    for versions, question, answer, kind in cases():
        dated = [
            Document(f"As of {v.metadata['date']}: {v.page_content}", metadata=v.metadata)
            for v in versions
        ]
        for note, found in (("", versions), (", date in the text", dated)):
            every: Any = RunnableLambda(lambda query: found)  # noqa: B023
            for way, retriever in (("all", every), ("newest", current(every))):
                said = create_self_rag(llm, retriever).invoke({"question": question})["answer"]
                right[f"{way}{note}: {kind}"].append(contains_answer(said, [answer]))
    print(json.dumps({"benchmark": "dates", **{name: share(hits) for name, hits in right.items()}}))
