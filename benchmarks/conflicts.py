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

from benchmarks import documents, share
from reader_training.rows import Retrieved, retrieved
from selfcorrect_rag.agents.conflicts import find_conflicts
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.serving import Parts, ServingConfig

PASSAGES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, help="questions, the first ones")
    rows = [row for row in retrieved(2) if row.source != "multihop"][: parser.parse_args().limit]
    found, alike = defaultdict[str, list[bool]](list), defaultdict[str, list[str]](list)
    rng = random.Random(0)
    for row in rows:
        alike[kind(row)].append(row.answers[0])
    with Parts(ServingConfig()) as parts:
        graph, identity = parts.graph("self_rag"), parts.reader.identity
        for row in rows:
            pages = documents(row.passages)[:PASSAGES]
            result = graph.invoke({"question": row.question, "documents": pages})
            is_alarm = bool(find_conflicts(result))
            found["all_alarms"].append(is_alarm)
            others = [a for a in alike[kind(row)] if not contains_answer(a, row.answers)]
            other = rng.choice(others) if others else ""
            page = plant(result, row, other) if other else None
            if page is None:
                continue
            given = [*pages[: PASSAGES - 1], page]
            if not any(contains_answer(p.page_content, row.answers) for p in given[:-1]):
                continue  # the right passage was the last
            result = graph.invoke({"question": row.question, "documents": given})
            claims = [claim["answer"] for claim in find_conflicts(result)]
            every = (row.answers, [other])
            is_told = [any(contains_answer(c, names) for c in claims) for names in every]
            found["told"].append(all(is_told))
            stated = [c["text"] for c in result["candidates"]]
            found["listed"].append(any(contains_answer(s, [other]) for s in stated))
            found["false_alarms"].append(is_alarm)
    shares = {name: share(values) for name, values in found.items()}
    counts = {"planted": len(found["told"]), "questions": len(rows)}
    print(json.dumps({"benchmark": "conflicts", "reader": identity, **shares, **counts}))


def kind(row: Retrieved) -> str:
    """Return what tells which answers could stand in its place: PopQA's pattern of the question."""
    return " ".join([row.source, *row.question.split()[: 3 * (row.source == "popqa")]])


def plant(result: Any, row: Retrieved, other: str) -> Document | None:
    """Return the passage of a right answer with ``other`` in its place; None without one."""
    (best, *_) = [c for c in result["candidates"] if c["chosen"]]
    if best["passage"] is None or not contains_answer(best["text"], row.answers):
        return None
    page = result["passages"][best["passage"]]
    answers = sorted({best["text"], *row.answers}, key=len, reverse=True)
    pattern = "|".join(re.escape(answer) for answer in answers if len(answer) > 1)
    changed = re.sub(rf"\b(?:{pattern})\b", lambda _: other, page.page_content)
    is_same = changed == page.page_content
    return None if is_same else page.model_copy(update={"page_content": changed})


if __name__ == "__main__":
    main()
