"""Sets of which nothing is trained on: PopQA, HotpotQA and MuSiQue."""

import json
from typing import Any

from reader_training.rows import DATA, Row, lines, tidy
from selfcorrect_rag.evaluation.metrics import contains_answer

Pages = list[tuple[str, str]]
"""Titles and texts."""


def popqa() -> list[Row]:
    """Its development questions, with their subject's page."""
    rows = []
    for found in lines(DATA / "popqa_dev_741.jsonl"):
        page = found["paragraphs"][0]
        answers = tuple(found["answers"])
        rows.append(Row(found["question"], page["title"], tidy(page["text"]), answers, "popqa"))
    return rows


def musique_hops() -> list[Row]:
    """MuSiQue's first hops that are asked in words, each with the paragraph that answers it."""
    rows = []
    for found in _musique():
        for hop in found["question_decomposition"]:
            page = found["paragraphs"][hop["paragraph_support_idx"]]
            row = Row(
                hop["question"],
                page["title"],
                tidy(page["paragraph_text"]),
                (hop["answer"],),
                "musique",
            )
            is_asked = "#" not in row.question and ">>" not in row.question
            if is_asked and contains_answer(row.passage, row.answers):
                rows.append(row)
    return list(dict.fromkeys(rows))


def hotpotqa() -> list[Row]:
    """HotpotQA's questions that are not for yes or no; which passage answers is not said."""
    return [
        Row(found["question"], "", "", (found["answer"],), "hotpotqa")
        for found in json.loads((DATA / "hotpotqa_train100.json").read_text())
        if found["answer"] not in ("yes", "no")
    ]


def pages() -> Pages:
    """The passages of all three sets, right ones and others."""
    found = [
        (page["title"], tidy(page["text"]))
        for row in lines(DATA / "popqa_dev_741.jsonl")
        for page in row["paragraphs"]
    ]
    corpus = json.loads((DATA / "hotpotqa_train100_corpus.json").read_text())
    found += [(title, tidy("".join(text))) for title, text in corpus.items()]
    found += [
        (page["title"], tidy(page["paragraph_text"]))
        for row in _musique()
        for page in row["paragraphs"]
    ]
    return found


def _musique() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / "musique_train100.json").read_text())
    return rows
