"""The questions of the generator and of InstructRAG, with passages as they are retrieved:
``python -m smollm2_training.questions --out FOLDER``.

``instructions.jsonl`` has all rows, of which `augment.py` makes the generator's, and
``questions.jsonl`` those with accepted answers, of which SmolLM2-Instruct writes rationales.
Splits 2 and 3, and the questions of NQ-open that are set aside, are never read.
"""

import argparse
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from reader_training.rows import DATA, encyclopedia, lines, natural_questions, real_rows, retrieved
from selfcorrect_rag.intake import title_of
from selfcorrect_rag.journal import write_rows
from selfcorrect_rag.reflection import GROUP_OF, RETRIEVAL
from selfcorrect_rag.search import Index

PASSAGES = 5
"""Passages of a question."""
PAGES = 20
"""Passages of the index for each question, if only some questions are taken."""
MOST = {"nq": 900, "strategyqa": 100, "arc": 150, "selfrag": 50}
"""Questions of a set by default; of those with retrieved passages all are taken."""
MOST_RATIONALES = 500
"""Questions of which rationales are written, by default."""
PARAGRAPHS = re.compile(r"<paragraph>.*?</paragraph>", re.DOTALL)
_TOKENS = re.compile("|".join(map(re.escape, GROUP_OF)))


def plain_output(output: str) -> str:
    """Return an output of Self-RAG's training set without passages and reflection tokens."""
    return _TOKENS.sub("", PARAGRAPHS.sub("", output)).strip()


def strategy_rows() -> list[dict[str, Any]]:
    """Return StrategyQA's questions, whose answers are yes and no."""
    rows = json.loads((DATA / "strategyqa_dev_229.json").read_text(encoding="utf-8"))
    return [
        {"instruction": row["question"], "output": "yes" if row["answer"] else "no"} for row in rows
    ]


def arc_rows() -> list[dict[str, Any]]:
    """Return ARC-Challenge's questions with their options; the output is the right one's text."""
    return [
        {
            "instruction": "\n".join([row["question"], *map(": ".join, row["choices"].items())]),
            "output": row["choices"][row["answer"]],
        }
        for row in lines(DATA / "arc_challenge_dev_299.jsonl")
    ]


def sample_rows() -> list[dict[str, Any]]:
    """Return instructions of Self-RAG's own training set, with their outputs, and whether passages
    were retrieved for them."""
    return [
        {
            "instruction": row["instruction"],
            "output": plain_output(row["output"]),
            "retrieves": RETRIEVAL in PARAGRAPHS.sub("", row["output"]),
        }
        for row in lines(DATA / "selfrag_generator_train_50samples.jsonl")
    ]


def all_rows(folder: Path, most: int | None) -> Iterator[dict[str, Any]]:
    """Yield rows with their ``documents``: those of the files, and else the best of an index in
    ``folder`` over the passages of NQ-open and of Wikipedia. ``most`` limits each set, in place of
    :data:`MOST`."""
    for asked in retrieved(0, 1)[:most]:
        pages = [{"title": title, "text": text} for title, text in asked.passages[:PASSAGES]]
        made = {"instruction": asked.question, "output": asked.answers[0], "documents": pages}
        yield {**made, "question": asked.question, "answers": asked.answers, "set": asked.source}
    index = _open_index(folder, most)
    nq = [
        {"instruction": r.question, "output": r.answers[0], "question": r.question,
         "answers": r.answers}
        for r in real_rows().train
        if r.source == "nq"
    ]  # fmt: skip
    others = {"strategyqa": strategy_rows(), "arc": arc_rows(), "selfrag": sample_rows()}
    for name, rows in [("nq", nq), *others.items()]:
        for row in rows[: most or MOST[name]]:
            found = index.search(row["instruction"], PASSAGES)
            documents = [{"title": title_of(d), "text": d.page_content} for d in found]
            yield {**row, "documents": documents, "set": name}


def _open_index(folder: Path, most: int | None) -> Index:
    """Open the index, made once; one under its own name is whole."""
    path = folder / f"index-{most or 'all'}"
    if not path.exists():
        part = path.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        pages = [(row.title, row.passage) for row in natural_questions()][: most and most * PAGES]
        pages += encyclopedia()[: most and most * PAGES]
        texts = dict.fromkeys(pages)
        Index(part).add(Document(text, metadata={"title": title}) for title, text in texts)
        part.rename(path)
    return Index(path)


def _drawn(row: dict[str, Any]) -> str:
    return hashlib.sha256(row["question"].encode()).hexdigest()


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="rows of a set, to see that all of it works")
    parser.add_argument("--rationales", type=int, default=MOST_RATIONALES)
    args = parser.parse_args()
    rows = [*all_rows(args.out, args.most)]
    asked = sorted((row for row in rows if "answers" in row), key=_drawn)[: args.rationales]
    write_rows(args.out / "questions.jsonl", asked)
    write_rows(args.out / "instructions.jsonl", rows)
    print(f"{len(rows)} instructions, {len(asked)} of them questions for rationales")


if __name__ == "__main__":
    main()
