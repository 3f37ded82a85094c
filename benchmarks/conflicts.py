"""Measure how often planted conflicts are told: ``python -m benchmarks.conflicts``.

The embedded reader answers PopQA's and TriviaQA's questions of split 2 by Self-RAG, from the
passages that were retrieved for them (../shared/data/retrieved5_dev.jsonl.gz; split 3 is not read).
Of each right answer that stands in the passage it was written from, a copy of this passage with
another question's answer in its place is planted behind the first four. Ends in one line of JSON:

told          share of the planted questions whose conflict lists the right and the planted answer
listed        share of them in which the planted answer was stated at all
false_alarms  share of the same questions, nothing planted, with a conflict of any kind, which may
              be a real one: passages of other people of that name
all_alarms    the same of all questions
"""

import argparse
import json
import random
import re
from collections import defaultdict
from typing import Any

from langchain_core.documents import Document

from reader_training.rows import Retrieved, retrieved
from selfcorrect_rag.agents.conflicts import find_conflicts
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.serving import Parts, ServingConfig

PASSAGES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, help="questions, the first ones")
    limit = parser.parse_args().limit
    rows = [row for row in retrieved(2) if row.source != "multihop"][:limit]
    found: dict[str, list[float]] = {name: [] for name in ("told", "listed", "false_alarms")}
    every, rng, kinds = list[float](), random.Random(0), alike(rows)
    with Parts(ServingConfig()) as parts:
        graph = parts.graph("self_rag")
        identity = parts.reader.identity
        for row in rows:
            pages = [Document(text, metadata={"title": title}) for title, text in row.passages]
            result = graph.invoke({"question": row.question, "documents": pages[:PASSAGES]})
            alarm = float(bool(find_conflicts(result)))
            every.append(alarm)
            others = [a for a in kinds[kind(row)] if not contains_answer(a, row.answers)]
            planted = plant(result, row, rng.choice(others)) if others else None
            if planted is None:
                continue
            page, other = planted
            given = [*pages[: PASSAGES - 1], page]
            if not any(contains_answer(p.page_content, row.answers) for p in given[:-1]):
                continue  # the right passage was the last
            result = graph.invoke({"question": row.question, "documents": given})
            claims = [claim["answer"] for claim in find_conflicts(result)]
            stated = [c["text"] for c in result["candidates"]]
            is_told = [
                any(contains_answer(c, names) for c in claims) for names in (row.answers, [other])
            ]
            found["told"].append(float(all(is_told)))
            found["listed"].append(float(any(contains_answer(s, [other]) for s in stated)))
            found["false_alarms"].append(alarm)
    shares: dict[str, Any] = {name: share(values) for name, values in found.items()}
    shares |= {"all_alarms": share(every), "planted": len(found["told"]), "questions": len(every)}
    print(json.dumps({"benchmark": "conflicts", "reader": identity, **shares}))


def kind(row: Retrieved) -> str:
    """Return what tells which answers could stand in its place: PopQA's pattern of the question."""
    words = row.question.split()
    return " ".join([row.source, *words[:3]]) if row.source == "popqa" else row.source


def alike(rows: list[Retrieved]) -> dict[str, list[str]]:
    """Return the answers of the questions of each kind."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[kind(row)].append(row.answers[0])
    return found


def plant(result: Any, row: Retrieved, other: str) -> tuple[Document, str] | None:
    """Return the passage of a right answer with ``other`` in its place; None without one."""
    (best, *_) = [c for c in result["candidates"] if c["chosen"]]
    if best["passage"] is None or not contains_answer(best["text"], row.answers):
        return None
    page = result["passages"][best["passage"]]
    pattern = "|".join(
        re.escape(a) for a in sorted({best["text"], *row.answers}, key=len)[::-1] if len(a) > 1
    )
    changed = re.sub(rf"\b(?:{pattern})\b", lambda _: other, page.page_content)
    if changed == page.page_content:
        return None
    return Document(changed, metadata=dict(page.metadata)), other


def share(values: list[float]) -> list[float]:
    """Return the mean with its 95 % bootstrap interval."""
    found = bootstrap_mean(values)
    return [round(each, 4) for each in (found.value, found.low, found.high)]


if __name__ == "__main__":
    main()
